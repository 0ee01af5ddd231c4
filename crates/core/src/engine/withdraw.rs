//! Orders that were given and never sent.

use jiff::Timestamp;

use super::{Engine, Order};
use crate::ids::NodeName;

impl Engine {
    /// The nodes that the next call of [`Engine::decide`] considers, besides those whose timer fires until then. The
    /// caller takes their unsent orders back first. While the cluster is suspected, these are also the nodes that were
    /// about to be closed or deleted.
    pub fn changed(&mut self, now: Timestamp) -> impl Iterator<Item = &NodeName> {
        let now = self.not_back(now);
        self.release_late_slots(now);
        if self.trouble().is_some() {
            self.changed.extend(self.grants.harmful().cloned());
        }
        // A worker is worth more than the condition that says that the node waits for one.
        self.changed.extend(self.grants.slots.take_aside(self.settings.worker_slots));
        self.changed.iter()
    }

    /// Releases the slots of workers that did not start or end in time.
    pub(super) fn release_late_slots(&mut self, now: Timestamp) {
        while let Some(name) = self.grants.slots.next_late(now) {
            self.note_workers(&name, now);
        }
    }

    /// Withdraws an order that was never sent. Its node is reconsidered without a delay, because nothing failed.
    pub fn withdraw(&mut self, order: &Order) {
        let name = &order.action.node().name;
        if self.tasks.get(name).is_some_and(|task| task.given(order.ticket).is_some()) {
            self.release(name);
            self.changed.insert(name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::super::tests::restarted;
    use super::super::{Outcome, Plan};
    use super::*;
    use crate::action::Action;
    use crate::config::Config;
    use crate::ids::Version;
    use crate::names;
    use crate::state::{NodeState, StatePhase};
    use crate::view::NodeView;
    use crate::world::tests::node_named;
    use crate::world::{Fact, Source};

    const ONE_WORKER: &str = "limits: {maxConcurrentWorkers: 1}";

    fn noon() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn closed(name: &str, uid: &str) -> NodeView {
        let taint = json!({ "key": names::UNVERIFIED_TAINT, "effect": "NoSchedule" });
        NodeView { taints: vec![taint], ..node_named(name, uid, 2) }
    }

    /// Two closed nodes, of which the first gets the only worker.
    fn engine() -> (Engine, Plan) {
        let mut engine = Engine::new(&Config::parse(ONE_WORKER).unwrap());
        let nodes = vec![closed("n1", "u1"), closed("n2", "u2")];
        engine.learn(Fact::Nodes(nodes, Version(2)), noon());
        engine.learn(Fact::Workers(Vec::new(), Version(2)), noon());
        engine.lead();
        let plan = engine.decide(noon());
        (engine, plan)
    }

    fn starts_worker_of(plan: &Plan, name: &str) -> bool {
        let [Order { action: Action::StartWorker { stamp }, .. }] = plan.orders.as_slice() else {
            return false;
        };
        stamp.node.name.as_str() == name
    }

    #[test]
    fn an_order_that_was_taken_back_is_decided_about_again_without_a_pause() {
        let (mut engine, first) = engine();
        assert!(starts_worker_of(&first, "n1"), "{first:?}");
        assert!(engine.decide(noon()).orders.is_empty(), "the order is in flight");
        engine.withdraw(&first.orders[0]);
        assert_eq!(engine.changed(noon()).map(NodeName::as_str).collect::<Vec<_>>(), ["n1"]);
        let second = engine.decide(noon());
        assert!(starts_worker_of(&second, "n1"), "its place for a worker is free again: {second:?}");
        assert_ne!(second.orders[0].ticket, first.orders[0].ticket);
    }

    #[test]
    fn only_the_order_that_is_under_way_can_be_taken_back() {
        let (mut engine, first) = engine();
        engine.withdraw(&first.orders[0]);
        let second = engine.decide(noon());
        engine.withdraw(&first.orders[0]);
        assert_eq!(engine.changed(noon()).count(), 0, "another order has taken its place");
        engine.withdraw(&second.orders[0]);
        assert_eq!(engine.changed(noon()).count(), 1);
    }

    /// A closed node that has just failed.
    fn failed(name: &str, uid: &str) -> NodeView {
        let state = NodeState {
            phase: StatePhase::Failed,
            attempt: 1,
            ..NodeState::new(uid.into(), "b1".into(), noon())
        };
        let annotations = [(names::STATE_ANNOTATION.to_owned(), serde_json::to_string(&state).unwrap())];
        NodeView { version: Version(3), annotations: annotations.into_iter().collect(), ..closed(name, uid) }
    }

    #[test]
    fn a_node_that_was_about_to_be_closed_is_reconsidered_once_the_cluster_is_suspected() {
        let config = "{nodeManagement: {onReboot: close}, limits: {deletion: {maxFailingPercent: 40}}}";
        let mut engine = Engine::new(&Config::parse(config).unwrap());
        let nodes = vec![restarted("n1", "u1"), closed("n2", "u2"), closed("n3", "u3")];
        engine.learn(Fact::Nodes(nodes, Version(2)), noon());
        engine.learn(Fact::Workers(Vec::new(), Version(2)), noon());
        engine.lead();
        let plan = engine.decide(noon());
        let closes = |plan: &Plan| {
            let closing = |order: &&Order| matches!(order.action, Action::CloseGate { .. });
            plan.orders.iter().find(closing).cloned()
        };
        let closing = closes(&plan).unwrap();
        assert_eq!(engine.changed(noon()).count(), 0);
        for node in [failed("n2", "u2"), failed("n3", "u3")] {
            engine.learn(Fact::Node(node, Source::Watch), noon());
        }
        assert!(engine.trouble().is_some());
        assert!(engine.changed(noon()).any(|name| name.as_str() == "n1"));
        engine.withdraw(&closing);
        assert!(closes(&engine.decide(noon())).is_none(), "the cluster is suspected");
        assert!(engine.changed(noon()).all(|name| name.as_str() != "n1"), "there is no such order any more");
    }

    #[test]
    fn a_node_that_says_that_it_waits_is_not_passed_over_when_a_slot_becomes_free() {
        let (mut engine, first) = engine();
        let later = noon() + SignedDuration::from_secs(10);
        let waits = engine.decide(later);
        assert!(
            matches!(&waits.orders[..], [Order { action: Action::SetCondition { .. }, .. }]),
            "{waits:?}"
        );
        assert_eq!(engine.changed(later).count(), 0, "no slot is free");
        engine.settle(&first.orders[0], Outcome::Refused("no".to_owned()), later);
        assert_eq!(engine.changed(later).map(NodeName::as_str).collect::<Vec<_>>(), ["n1", "n2"]);
        engine.withdraw(&waits.orders[0]);
        let next = engine.decide(later);
        let starts: Vec<_> = next.orders.iter().filter(|order| {
            matches!(&order.action, Action::StartWorker { stamp } if stamp.node.name.as_str() == "n2")
        }).collect();
        assert_eq!(starts.len(), 1, "{next:?}");
    }
}

//! Orders that were given and never sent.

use jiff::Timestamp;

use super::{Engine, Order};
use crate::ids::NodeName;

impl Engine {
    /// The nodes that the next call of [`Engine::decide`] considers, besides those whose timer fires until then. The
    /// caller takes their unsent orders back first.
    pub fn changed(&mut self, now: Timestamp) -> impl Iterator<Item = &NodeName> {
        self.release_late_slots(now);
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

    use super::super::{Outcome, Plan};
    use super::*;
    use crate::action::Action;
    use crate::config::Config;
    use crate::ids::Version;
    use crate::names;
    use crate::view::NodeView;
    use crate::world::Fact;
    use crate::world::tests::node_named;

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

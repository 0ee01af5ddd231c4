mod feeds;

use super::*;
use crate::action::{EventReason, EventText};
use crate::feed::ObjectKind;
use crate::ids::Version;
use crate::names;
use crate::queue::testing::stamp;
use crate::state::{NodeState, StatePhase};
use crate::view::{LedgerView, NodeView, Purpose, Stamp};
use crate::world::Fact;
use crate::world::tests::node_named;

fn config(yaml: &str) -> Config {
    Config::parse(yaml).unwrap()
}

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn knowing_everything(yaml: &str) -> Engine {
    let config = config(yaml);
    let mut engine = Engine::new(&config);
    engine.learn(Fact::Nodes(Vec::new(), Version(1)), noon());
    engine.learn(Fact::Workers(Vec::new(), Version(1)), noon());
    list_init_pods(&mut engine, &config);
    engine
}

fn list_init_pods(engine: &mut Engine, config: &Config) {
    for feed in Feed::of_init_pods(&Policies::from(config)) {
        engine.learn(Fact::InitPods(Vec::new(), Version(1), feed), noon());
    }
}

#[test]
fn what_was_learned_can_be_looked_at() {
    let mut engine = knowing_everything("");
    assert!(engine.world().ledger().is_none());
    engine.learn(Fact::Ledger(LedgerView::default()), noon());
    assert!(engine.world().ledger().is_some());
}

#[test]
fn every_node_that_was_decided_about_is_counted() {
    let nodes = vec![node_named("n1", "u1", 2), node_named("n2", "u2", 2)];
    let mut engine = knowing_everything("");
    engine.learn(Fact::Nodes(nodes, Version(2)), noon());
    engine.lead();
    assert_eq!(engine.decide(noon()).considered, 2);
    assert_eq!(engine.decide(noon()).considered, 0, "nothing has changed since");
}

#[test]
fn an_order_that_is_carried_out_twice_had_no_effect_that_we_can_see() {
    let order = |name: &str| {
        let event = EventText { reason: EventReason::Verified, message: String::new(), warning: false };
        Action::SendEvent { node: node_named(name, "u", 1).id, claim: None, event }
    };
    let mut task = NodeTask::default();
    task.carried_out(&order("n1"), noon());
    task.carried_out(&order("n2"), noon());
    assert!(task.underway.is_none(), "the two orders differ");
    task.carried_out(&order("n2"), noon());
    assert!(matches!(task.underway, Some(Underway::Unclear { asked: None })));
}

fn deletion() -> Action {
    let event = EventText { reason: EventReason::NodeDeleted, message: String::new(), warning: true };
    Action::DeleteNode { node: node_named("n1", "u1", 2).id, version: Version(2), claim: None, event }
}

/// The deletions that are confirmed once the node is gone, by a replica that stands by and then leads.
fn confirmed_after(lose: impl FnOnce(&mut Engine)) -> usize {
    let mut engine = knowing_everything("");
    engine.learn(Fact::Nodes(vec![node_named("n1", "u1", 2)], Version(2)), noon());
    engine.lead();
    engine.decide(noon());
    lose(&mut engine);
    engine.decide(noon());
    engine.learn(Fact::NodeGone(node_named("n1", "u1", 2).id, Version(3)), noon());
    let standing_by = engine.decide(noon()).confirmed.len();
    engine.lead();
    standing_by + engine.decide(noon()).confirmed.len()
}

#[test]
fn a_deletion_whose_answer_was_lost_is_confirmed_once_although_the_lease_is_lost_too() {
    let order = Order { ticket: 1_000, action: deletion() };
    let before = confirmed_after(|engine| {
        engine.tasks.entry("n1".into()).or_default().lost(&order.action, noon());
        engine.stand_by();
    });
    let after = confirmed_after(|engine| {
        engine.stand_by();
        engine.settle(&order, Outcome::Unknown, noon());
    });
    let restored = confirmed_after(|engine| {
        engine.tasks.entry("n1".into()).or_default().lost(&order.action, noon());
        engine.learn(Fact::Restored(Feed::of(ObjectKind::Nodes)), noon());
        engine.learn(Fact::Nodes(vec![node_named("n1", "u1", 1)], Version(1)), noon());
        engine.learn(Fact::Workers(Vec::new(), Version(1)), noon());
    });
    assert_eq!((before, after, restored), (1, 1, 0));
}

/// A closed node whose checks have failed, as recorded by a run that checked what this configuration requires.
fn failing(name: &str, config: &Config) -> NodeView {
    let (uid, requires) = (format!("u-{name}"), Policy::from(config).requires);
    let state = NodeState {
        phase: StatePhase::Failed,
        attempt: 1,
        requires: Some(requires),
        ..NodeState::new(uid.as_str().into(), "b1".into(), noon())
    };
    let annotations = [(names::STATE_ANNOTATION.to_owned(), serde_json::to_string(&state).unwrap())];
    let taint = serde_json::json!({ "key": names::UNVERIFIED_TAINT, "effect": "NoSchedule" });
    NodeView {
        taints: vec![taint],
        annotations: annotations.into_iter().collect(),
        ..node_named(name, &uid, 2)
    }
}

#[test]
fn trouble_ends_when_other_checks_are_required() {
    let mut engine = knowing_everything("");
    let nodes = ["n1", "n2", "n3"].map(|name| failing(name, &config(""))).into();
    engine.learn(Fact::Nodes(nodes, Version(2)), noon());
    engine.lead();
    engine.decide(noon());
    assert!(engine.trouble().is_some());
    engine.configure(&config("worker: {pendingTimeoutSeconds: 77}"));
    assert!(engine.trouble().is_some(), "the same checks are required");
    engine.configure(&config("worker: {dnsTestDomains: [example.com]}"));
    assert_eq!(engine.trouble(), None);
}

/// A node that was verified, is open, and was restarted since.
pub(super) fn restarted(name: &str, uid: &str) -> NodeView {
    let state = NodeState { phase: StatePhase::Verified, ..NodeState::new(uid.into(), "b0".into(), noon()) };
    let annotations = [(names::STATE_ANNOTATION.to_owned(), serde_json::to_string(&state).unwrap())];
    let labels = [(names::VERIFIED_LABEL.to_owned(), "true".to_owned())];
    NodeView {
        annotations: annotations.into_iter().collect(),
        labels: labels.into_iter().collect(),
        ..node_named(name, uid, 2)
    }
}

#[test]
fn a_recorded_state_names_its_policy_and_what_that_required() {
    let yaml = "nodeManagement: {onReboot: close}";
    let mut engine = knowing_everything(yaml);
    engine.learn(Fact::Nodes(vec![restarted("n1", "u1")], Version(2)), noon());
    engine.lead();
    let plan = engine.decide(noon());
    let [Order { action: Action::CloseGate { patch, .. }, .. }] = &plan.orders[..] else {
        panic!("{plan:?}")
    };
    let Policy { name, requires, .. } = Policy::from(&config(yaml));
    let recorded = format!("{patch:?}");
    for part in
        [format!("policy\\\":\\\"{}", name.as_str()), format!("requires\\\":\\\"{}", requires.as_str())]
    {
        assert!(recorded.contains(&part), "{part} is not in {recorded}");
    }
}

/// Whether the condition that is about to be written only says what the node waits for.
fn only_waits(plan: &Plan) -> Option<bool> {
    plan.orders.iter().find_map(|order| match &order.action {
        Action::SetCondition { only_waits, .. } => Some(*only_waits),
        _ => None,
    })
}

#[test]
fn a_condition_that_an_operator_has_to_act_on_is_not_one_that_only_waits() {
    let taint = serde_json::json!({ "key": names::UNVERIFIED_TAINT, "effect": "NoSchedule" });
    let closed = NodeView { taints: vec![taint], ..node_named("n1", "u1", 2) };
    let mut engine = knowing_everything("limits: {maxConcurrentWorkers: 1}");
    let other = NodeView { id: NodeRef { name: "n2".into(), uid: "u2".into() }, ..closed.clone() };
    engine.learn(Fact::Nodes(vec![closed, other], Version(2)), noon());
    engine.lead();
    let [first] = &engine.decide(noon()).orders[..] else { panic!("there is one slot") };
    let later = noon() + SignedDuration::from_secs(11);
    assert_eq!(only_waits(&engine.decide(later)), Some(true), "the other node waits for the slot");
    engine.settle(first, Outcome::Refused("denied".to_owned()), later);
    assert_eq!(only_waits(&engine.decide(later)), Some(false), "the worker is refused");
}

#[test]
fn a_reference_run_that_is_due_and_cannot_be_made_does_not_wake_the_loop_at_once() {
    let mut engine = knowing_everything("");
    engine.lead();
    let stamp = Stamp { purpose: Purpose::Reference, ..stamp("n2") };
    engine.grants.ordered(&Action::StartWorker { stamp }, noon());
    engine.grants.settled(&"n2".into());
    engine.grants.references.note_waiting(&"n1".into(), true);
    let due = engine.grants.reference_due().unwrap();
    assert_eq!(due, noon() + SignedDuration::from_secs(1));
    assert_eq!(engine.decide(noon()).wake, Some(due));
    assert!(engine.decide(due).wake.is_none_or(|wake| due < wake));
}

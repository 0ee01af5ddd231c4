//! Feeds that have to be listed, and objects that are forgotten.

use super::*;
use crate::view::InitPodView;
use crate::world::{Reread, Source};

const GATE: &str = "gates: [{name: a}]";
const TWO_GATES: &str = "gates: [{name: a}, {name: b, podSelector: x=y, taint: {key: b, effect: NoSchedule}, \
                         completedAnnotation: c}]";

fn pod(feed: &Feed, version: u64) -> InitPodView {
    let label = feed.selector().unwrap().to_string();
    let (key, value) = label.split_once('=').unwrap();
    InitPodView {
        uid: label.as_str().into(),
        version: Version(version),
        namespace: "kube-system".to_owned(),
        name: "p".to_owned(),
        host: "n1".into(),
        created: noon(),
        labels: [(key, value)].into_iter().collect(),
        annotations: BTreeMap::new(),
        ready: true,
        containers: String::new(),
        leaving: false,
    }
}

#[test]
fn every_feed_has_to_be_listed() {
    let config = config(TWO_GATES);
    let mut engine = Engine::new(&config);
    let lists = [Fact::Nodes(Vec::new(), Version(1)), Fact::Workers(Vec::new(), Version(1))];
    let of_pods = Feed::of_init_pods(&Policies::from(&config))
        .into_iter()
        .map(|feed| Fact::InitPods(Vec::new(), Version(1), feed));
    for list in lists.into_iter().chain(of_pods) {
        assert!(!engine.knows_enough());
        engine.learn(list, noon());
    }
    assert!(engine.knows_enough(), "pools are not waited for");
    assert_eq!(*engine.feeds(), Feed::all(&Policies::from(&config)));
}

#[test]
fn only_what_was_not_watched_before_has_to_be_listed() {
    let mut engine = knowing_everything(GATE);
    engine.configure(&config("gates: [{name: a, minimumHoldSeconds: 5}]"));
    assert!(engine.knows_enough(), "it waits for the same pods");
    engine.configure(&config(TWO_GATES));
    assert!(!engine.knows_enough());
    list_init_pods(&mut engine, &config(TWO_GATES));
    assert!(engine.knows_enough());
    engine.configure(&config(GATE));
    assert!(engine.knows_enough(), "what is left is known");
    engine.configure(&config(TWO_GATES));
    assert!(!engine.knows_enough(), "that feed was not watched in between");
}

#[test]
fn pods_of_gates_that_were_removed_are_forgotten_with_their_node() {
    let mut engine = knowing_everything(TWO_GATES);
    for feed in Feed::of_init_pods(&Policies::from(&config(TWO_GATES))) {
        engine.learn(Fact::InitPod(pod(&feed, 2), feed), noon());
    }
    engine.learn(Fact::Node(node_named("n1", "u1", 2), Source::Watch), noon());
    engine.lead();
    engine.decide(noon());
    engine.configure(&config(GATE));
    assert_eq!(engine.world().entry(&"n1".into()).unwrap().init_pods.len(), 1);
    engine.configure(&config(""));
    engine.learn(Fact::NodeGone(node_named("n1", "u1", 2).id, Version(3)), noon());
    assert_eq!(engine.decide(noon()).changes, [("n1".into(), None)]);
    assert_eq!(engine.explanations().count(), 0);
}

#[test]
fn what_a_watch_that_has_ended_still_shows_does_not_count() {
    let mut engine = knowing_everything(GATE);
    engine.configure(&config(""));
    for feed in Feed::of_init_pods(&Policies::from(&config(GATE))) {
        engine.learn(Fact::InitPods(vec![pod(&feed, 2)], Version(2), feed), noon());
    }
    assert_eq!(engine.world().entries().count(), 0);
    engine.configure(&config(GATE));
    assert!(!engine.knows_enough());
}

#[test]
fn nodes_that_vanish_while_another_replica_leads_leave_nothing_behind() {
    let mut engine = knowing_everything("");
    engine.learn(Fact::Node(node_named("n1", "u1", 2), Source::Watch), noon());
    engine.lead();
    engine.decide(noon());
    assert_eq!(engine.tasks.len(), 1);
    engine.stand_by();
    engine.learn(Fact::NodeGone(node_named("n1", "u1", 2).id, Version(3)), noon());
    engine.decide(noon());
    assert_eq!((engine.tasks.len(), engine.timers.first()), (0, None));
}

/// An engine that leads, knows one node and has an order in flight for it.
fn leading() -> Engine {
    let mut engine = knowing_everything("");
    let taint = serde_json::json!({ "key": crate::names::UNVERIFIED_TAINT, "effect": "NoSchedule" });
    let node = crate::view::NodeView { taints: vec![taint], ..node_named("n1", "u1", 50) };
    engine.learn(Fact::Node(node, Source::Watch), noon());
    engine.lead();
    assert_eq!(engine.decide(noon()).orders.len(), 1);
    engine
}

fn restored(kind: ObjectKind) -> Fact {
    Fact::Restored(Feed::of(kind))
}

#[test]
fn after_a_restore_nothing_is_decided_until_everything_is_listed_again() {
    let mut engine = leading();
    engine.learn(restored(ObjectKind::Nodes), noon());
    assert_eq!(engine.grants.slots.ordered.len(), 0);
    let plan = engine.decide(noon());
    assert_eq!((plan.questions, plan.orders), (vec![Question::StartOver], vec![]));
    assert_eq!(engine.decide(noon()).questions, [], "it asks only once");
    engine.learn(Fact::Nodes(vec![node_named("n1", "u1", 5)], Version(6)), noon());
    engine.learn(restored(ObjectKind::Workers), noon());
    assert!(
        !engine.knows_enough() && engine.world().entries().count() == 1,
        "the second one finds nothing new"
    );
    assert_eq!(engine.decide(noon()).questions, []);
    engine.learn(Fact::Workers(Vec::new(), Version(6)), noon());
    assert!(engine.knows_enough());
    let plan = engine.decide(noon());
    assert_eq!(plan.considered, 1);
    assert_eq!(
        plan.questions,
        [Question::Node(node_named("n1", "u1", 5).id)],
        "what the order did is not known"
    );
}

#[test]
fn what_is_still_shown_of_the_time_before_a_restore_does_not_count() {
    let mut engine = leading();
    engine.learn(restored(ObjectKind::Workers), noon());
    engine.learn(Fact::Node(node_named("n1", "u1", 51), Source::Watch), noon());
    let (node, view) = (node_named("n1", "u1", 1).id, Some(node_named("n1", "u1", 51)));
    let (node_version, worker_version) = (Version(60), Version(60));
    let reread = Fact::Reread(Box::new(Reread { node, view, node_version, worker: None, worker_version }));
    engine.learn(reread.clone(), noon());
    assert_eq!(engine.world().entries().count(), 0);
    engine.learn(Fact::Nodes(vec![node_named("n1", "u1", 5)], Version(6)), noon());
    engine.learn(reread, noon());
    let version =
        |engine: &Engine| engine.world().entry(&"n1".into()).unwrap().view.as_ref().unwrap().version;
    assert_eq!(version(&engine), Version(5));
}

#[test]
fn an_answer_to_an_order_from_before_a_restore_shows_nothing() {
    let mut engine = leading();
    let order = Order { ticket: 0, action: deletion() };
    for fact in [
        restored(ObjectKind::Workers),
        Fact::Nodes(vec![node_named("n1", "u1", 5)], Version(6)),
        Fact::Workers(Vec::new(), Version(6)),
    ] {
        engine.learn(fact, noon());
    }
    let answer = Fact::Node(node_named("n1", "u1", 60), Source::Answer);
    engine.settle(&order, Outcome::Done(vec![answer]), noon());
    assert_eq!(engine.world().entry(&"n1".into()).unwrap().view.as_ref().unwrap().version, Version(5));
}

#[test]
fn a_replica_that_stands_by_starts_over_after_a_restore_too() {
    let mut engine = leading();
    engine.stand_by();
    engine.learn(restored(ObjectKind::Nodes), noon());
    assert_eq!(engine.decide(noon()).questions, [Question::StartOver]);
    assert!(!engine.knows_enough());
}

#[test]
fn nodes_that_a_restore_does_not_bring_back_are_reported_as_gone() {
    let mut engine = leading();
    engine.learn(restored(ObjectKind::Nodes), noon());
    engine.decide(noon());
    engine.learn(Fact::Nodes(Vec::new(), Version(6)), noon());
    engine.learn(Fact::Workers(Vec::new(), Version(6)), noon());
    assert_eq!(engine.decide(noon()).changes, [("n1".into(), None)]);
}

#[test]
fn a_node_that_is_read_below_what_was_known_before_means_that_the_store_was_restored() {
    let read = |version: u64| {
        let view = Some(node_named("n1", "u1", version.min(50)));
        let (node_version, worker_version) = (Version(version), Version(version));
        let node = node_named("n1", "u1", 1).id;
        Fact::Reread(Box::new(Reread { node, view, node_version, worker: None, worker_version }))
    };
    let asking = || {
        let mut engine = leading();
        engine.stand_by();
        engine.lead();
        assert_eq!(engine.decide(noon()).questions, [Question::Node(node_named("n1", "u1", 1).id)]);
        engine
    };
    let mut engine = asking();
    engine.learn(read(49), noon());
    assert_eq!(engine.decide(noon()).questions, [Question::StartOver]);
    let mut engine = asking();
    engine.learn(Fact::Node(node_named("n1", "u1", 60), Source::Watch), noon());
    engine.learn(read(50), noon());
    assert!(engine.knows_enough(), "the watch was faster than the answer");
}

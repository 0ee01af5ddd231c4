mod feeds;
mod init_pods;

use super::*;
use crate::action::worker_name;
use crate::feed::ObjectKind;
use crate::ids::WorkerRef;
use crate::texts::Texts;
use crate::view::{ClaimRef, Ending, InitPodView, LedgerEntry, Purpose, Stage};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn node_named(name: &str, uid: &str, version: u64) -> NodeView {
    NodeView {
        id: NodeRef { name: name.into(), uid: uid.into() },
        version: Version(version),
        boot: "b1".into(),
        created: at(0),
        taints: Vec::new(),
        labels: Texts::default(),
        annotations: Texts::default(),
        condition: None,
        ready: true,
        leaving: false,
        claim: None::<ClaimRef>,
    }
}

fn node(uid: &str, version: u64) -> NodeView {
    node_named("n1", uid, version)
}

/// The worker of node `n1` with UID `a`.
fn worker(pod: &str, version: u64) -> WorkerView {
    WorkerView {
        id: WorkerRef { name: worker_name(&"a".into()), uid: pod.into() },
        version: Version(version),
        stamp: Stamp {
            node: node("a", 1).id,
            boot: "b1".into(),
            serial: 1,
            attempt: 1,
            purpose: Purpose::Verify,
            policy: "".into(),
            requires: "".into(),
        },
        host: Some("n1".into()),
        stage: Stage::Running,
        leaving: false,
    }
}

fn pod(uid: &str, version: u64) -> InitPodView {
    InitPodView {
        uid: uid.into(),
        version: Version(version),
        namespace: "kube-system".to_owned(),
        name: uid.to_owned(),
        host: "n1".into(),
        created: at(0),
        labels: Texts::default(),
        annotations: BTreeMap::new(),
        ready: true,
        containers: "first".to_owned(),
        leaving: false,
    }
}

/// The feed of init pods, where there is only one.
fn feed() -> Feed {
    Feed::init_pods("kube-system", &"a=b".parse().unwrap())
}

fn seen_pod(view: InitPodView) -> Fact {
    Fact::InitPod(view, feed())
}

fn listed_pods(views: Vec<InitPodView>, version: Version) -> Fact {
    Fact::InitPods(views, version, feed())
}

fn knowing(facts: Vec<Fact>) -> World {
    let mut world = World::default();
    for fact in facts {
        world.learn(fact, at(1));
    }
    world.take_touched();
    world
}

fn watched(view: NodeView) -> Fact {
    Fact::Node(view, Source::Watch)
}

fn watched_worker(view: WorkerView) -> Fact {
    Fact::Worker(view, Source::Watch)
}

fn node_gone(version: u64) -> Fact {
    Fact::NodeGone(node("a", 1).id, Version(version))
}

fn worker_gone(pod: &str, version: u64) -> Fact {
    Fact::WorkerGone(worker(pod, 1).id, "n1".into(), Version(version), Source::Watch)
}

fn pod_gone(version: u64) -> Fact {
    Fact::InitPodGone("p".into(), "n1".into(), Version(version), feed())
}

fn reread(view: Option<NodeView>, worker: Option<WorkerView>, version: u64) -> Fact {
    Fact::Reread(Box::new(Reread {
        node: node("a", 1).id,
        view,
        node_version: Version(version),
        worker,
        worker_version: Version(version),
    }))
}

/// The versions of node `n1`, of its worker and of its init pod `p`, as far as they are known.
fn known(world: &World) -> [Option<u64>; 3] {
    let name = "n1".into();
    let versions = [
        world.node_version(&name),
        world.worker_version(&name, &worker_name(&"a".into())),
        world.init_pod_version(&name, &"p".into()),
    ];
    versions.map(|version| version.map(|version| version.0))
}

const NOTHING: [Option<u64>; 3] = [None; 3];

#[test]
fn what_is_gone_does_not_come_back_by_an_old_fact() {
    let gone = || {
        knowing(vec![
            watched(node("a", 5)),
            watched_worker(worker("w", 5)),
            seen_pod(pod("p", 5)),
            node_gone(10),
            worker_gone("w", 10),
            pod_gone(10),
        ])
    };
    let old = [
        vec![watched(node("a", 10)), watched_worker(worker("w", 10)), seen_pod(pod("p", 10))],
        vec![
            Fact::Nodes(vec![node("a", 5)], Version(9)),
            Fact::Workers(vec![worker("w", 5)], Version(9)),
            listed_pods(vec![pod("p", 5)], Version(9)),
        ],
        vec![reread(Some(node("a", 5)), Some(worker("w", 5)), 9)],
    ];
    for facts in old {
        let mut world = gone();
        for fact in facts {
            world.learn(fact.clone(), at(2));
            assert_eq!(known(&world), NOTHING, "{fact:?}");
        }
    }
}

#[test]
fn a_list_that_is_not_older_than_the_watch_shows_what_the_watch_has_lost() {
    for version in [10, 11] {
        let mut world = knowing(vec![
            watched(node_named("n2", "b", 10)),
            watched_worker(WorkerView {
                id: WorkerRef { name: "other".to_owned(), uid: "w2".into() },
                ..worker("w2", 10)
            }),
            seen_pod(pod("p2", 10)),
        ]);
        world.learn(reread(Some(node("a", 5)), Some(worker("w", 6)), version), at(2));
        assert_eq!(known(&world), [Some(5), Some(6), None], "read at {version}");
        world.learn(Fact::Nodes(vec![node("a", 7)], Version(version)), at(2));
        world.learn(Fact::Workers(vec![worker("w", 8)], Version(version)), at(2));
        world.learn(listed_pods(vec![pod("p", 9)], Version(version)), at(2));
        assert_eq!(known(&world), [Some(7), Some(8), Some(9)], "listed at {version}");
    }
}

#[test]
fn what_is_reported_twice_is_no_news() {
    let mut world =
        knowing(vec![watched(node("a", 5)), watched_worker(worker("w", 5)), seen_pod(pod("p", 5))]);
    for fact in [
        watched(node("a", 5)),
        watched_worker(worker("w", 5)),
        seen_pod(pod("p", 5)),
        Fact::Nodes(vec![node("a", 5)], Version(5)),
        Fact::Workers(vec![worker("w", 5)], Version(5)),
        listed_pods(vec![pod("p", 5)], Version(5)),
        watched(node("a", 4)),
        watched_worker(worker("w", 4)),
        seen_pod(pod("p", 4)),
        node_gone(4),
        worker_gone("w", 4),
        worker_gone("another", 9),
        pod_gone(4),
        Fact::Occupancy(node("z", 1).id, Occupancy::Idle),
    ] {
        world.learn(fact.clone(), at(2));
        assert!(world.take_touched().is_empty(), "{fact:?}");
    }
    assert_eq!(known(&world), [Some(5); 3]);
}

#[test]
fn a_fresh_read_that_is_older_than_what_is_known_changes_nothing() {
    let mut world = knowing(vec![watched(node("a", 5)), watched_worker(worker("w", 5))]);
    world.learn(reread(Some(node("a", 4)), Some(worker("w", 4)), 4), at(2));
    assert_eq!(known(&world), [Some(5), Some(5), None]);
    world.learn(reread(None, None, 4), at(2));
    assert_eq!(known(&world), [Some(5), Some(5), None]);
    assert_eq!(world.entry(&"n1".into()).unwrap().reread, Some(at(2)));
}

#[test]
fn what_a_list_or_a_fresh_read_does_not_show_is_gone() {
    for version in [5, 6] {
        let facts = || vec![watched(node("a", 5)), watched_worker(worker("w", 5)), seen_pod(pod("p", 5))];
        let mut world = knowing(facts());
        world.learn(reread(None, None, version), at(2));
        assert_eq!(known(&world), [None, None, Some(5)]);
        let mut world = knowing(facts());
        world.learn(Fact::Nodes(vec![], Version(version)), at(2));
        assert_eq!(known(&world), [None, Some(5), Some(5)]);
        world.learn(Fact::Workers(vec![], Version(version)), at(2));
        assert_eq!(known(&world), [None, None, Some(5)]);
        assert!(world.entry(&"n1".into()).is_some());
        world.learn(listed_pods(vec![], Version(version)), at(2));
        assert!(world.entry(&"n1".into()).is_none(), "nothing is left that is known about it");
        assert_eq!(world.take_touched(), ["n1".into()].into());
    }
}

#[test]
fn what_came_after_a_list_was_made_is_not_gone() {
    let mut world =
        knowing(vec![watched(node("a", 5)), watched_worker(worker("w", 5)), seen_pod(pod("p", 5))]);
    world.learn(Fact::Nodes(vec![], Version(4)), at(2));
    world.learn(Fact::Workers(vec![], Version(4)), at(2));
    world.learn(listed_pods(vec![], Version(4)), at(2));
    assert_eq!(known(&world), [Some(5); 3]);
}

#[test]
fn the_end_of_an_object_may_have_the_version_in_which_it_was_seen_last() {
    let mut world =
        knowing(vec![watched(node("a", 5)), watched_worker(worker("w", 5)), seen_pod(pod("p", 5))]);
    for fact in [node_gone(5), worker_gone("w", 5), pod_gone(5)] {
        world.learn(fact, at(2));
    }
    assert_eq!(known(&world), NOTHING);
    assert!(world.entry(&"n1".into()).is_none());
}

#[test]
fn an_answer_to_a_write_says_nothing_about_what_the_watch_has_shown() {
    let mut world = knowing(vec![
        Fact::Node(node_named("n2", "b", 10), Source::Answer),
        Fact::Worker(WorkerView { version: Version(10), ..other_worker() }, Source::Answer),
    ]);
    world.learn(watched(node("a", 8)), at(2));
    world.learn(watched_worker(worker("w", 8)), at(2));
    assert_eq!(known(&world), [Some(8), Some(8), None]);
}

#[test]
fn an_answer_that_a_worker_is_gone_is_believed_and_says_nothing_else() {
    let other = WorkerView { version: Version(4), ..other_worker() };
    let mut world = knowing(vec![watched_worker(other.clone())]);
    world.learn(Fact::WorkerGone(other.id, "n2".into(), Version(10), Source::Answer), at(2));
    assert_eq!(world.live_workers(), 0);
    world.learn(watched_worker(worker("w", 8)), at(2));
    assert_eq!(known(&world), [None, Some(8), None]);
}

#[test]
fn the_watch_has_shown_everything_up_to_what_it_shows() {
    let mut world = knowing(vec![
        watched(node_named("n2", "b", 10)),
        watched_worker(WorkerView { version: Version(10), ..other_worker() }),
    ]);
    world.learn(Fact::Node(node("a", 8), Source::Answer), at(2));
    world.learn(Fact::Worker(worker("w", 8), Source::Answer), at(2));
    assert_eq!(known(&world), NOTHING, "they have been deleted since");
}

/// The worker of another node.
fn other_worker() -> WorkerView {
    let mut other = worker("w2", 1);
    other.id.name = worker_name(&"b".into());
    other.stamp.node = node_named("n2", "b", 1).id;
    other
}

#[test]
fn live_workers_are_counted() {
    let mut other = other_worker();
    let mut world = knowing(vec![watched_worker(worker("w", 5)), watched_worker(other.clone())]);
    assert_eq!(world.live_workers(), 1, "the other one is older than the watch");
    other.version = Version(6);
    world.learn(watched_worker(other.clone()), at(2));
    assert_eq!(world.live_workers(), 2);
    other.version = Version(7);
    other.stage = Stage::Ended(Ending::Killed(String::new()));
    world.learn(watched_worker(other.clone()), at(2));
    assert_eq!(world.live_workers(), 1);
    world.learn(Fact::WorkerGone(other.id, "n2".into(), Version(8), Source::Watch), at(2));
    world.learn(worker_gone("w", 9), at(2));
    assert_eq!(world.live_workers(), 0);
}

#[test]
fn workers_are_counted_by_how_far_they_are() {
    let counts = |world: &World| {
        let counts = world.worker_counts();
        [counts.pending, counts.running, counts.succeeded, counts.failed]
    };
    let mut world = knowing(vec![watched_worker(WorkerView { version: Version(4), ..other_worker() })]);
    let ended = |code: i32| Stage::Ended(Ending::Exited { code, message: String::new() });
    for (version, stage, expected) in [
        (5, Stage::Pending(None), [1, 1, 0, 0]),
        (6, Stage::Running, [0, 2, 0, 0]),
        (7, ended(0), [0, 1, 1, 0]),
        (8, ended(1), [0, 1, 0, 1]),
        (9, Stage::Ended(Ending::Killed(String::new())), [0, 1, 0, 1]),
    ] {
        world.learn(watched_worker(WorkerView { stage, ..worker("w", version) }), at(2));
        assert_eq!(counts(&world), expected);
    }
    world.learn(worker_gone("w", 10), at(2));
    assert_eq!(counts(&world), [0, 1, 0, 0]);
}

#[test]
fn when_a_worker_was_asked_for_is_known_of_no_other_pod_of_its_name() {
    let asked_for = |world: &World| {
        let entry = world.entry(&"n1".into()).unwrap();
        entry.workers.values().next().unwrap().asked_for
    };
    let mut world = knowing(vec![watched(node("a", 1)), watched_worker(worker("w", 5))]);
    assert_eq!(asked_for(&world), None, "seeing it run proves nothing");
    world.worker_was_asked_for(&node("a", 1).id, at(1));
    world.learn(watched_worker(worker("w", 6)), at(2));
    assert_eq!(asked_for(&world), Some(at(1)));
    world.learn(watched_worker(worker("next", 7)), at(3));
    assert_eq!(asked_for(&world), None);
    world.worker_was_asked_for(&node("b", 1).id, at(4));
    assert_eq!(asked_for(&world), None, "that worker was for another node of this name");
}

#[test]
fn a_worker_that_another_one_took_the_place_of_has_vanished() {
    let mut world = knowing(vec![watched(node("a", 5)), watched_worker(worker("w", 5))]);
    let vanished = |world: &World| {
        world.entry(&"n1".into()).unwrap().vanished.as_ref().map(|worker| worker.stamp.serial)
    };
    world.learn(watched_worker(worker("w", 6)), at(2));
    assert_eq!(vanished(&world), None);
    let mut next = worker("next", 7);
    next.stamp.serial = 2;
    world.learn(watched_worker(next), at(3));
    assert_eq!(vanished(&world), Some(1));
}

#[test]
fn the_time_of_a_worker_begins_again_with_each_stage_and_each_pod() {
    let mut world = knowing(vec![watched_worker(worker("w", 5))]);
    let since = |world: &World| world.entry(&"n1".into()).unwrap().workers.values().next().unwrap().since;
    world.learn(watched_worker(worker("w", 6)), at(2));
    assert_eq!(since(&world), at(1), "it still runs");
    world.learn(watched_worker(worker("next", 7)), at(3));
    assert_eq!(since(&world), at(3), "another pod");
    let ended = WorkerView { stage: Stage::Ended(Ending::Killed(String::new())), ..worker("next", 8) };
    world.learn(watched_worker(ended), at(4));
    assert_eq!(since(&world), at(4), "another stage");
}

#[test]
fn the_ledger_is_replaced_by_an_older_one_only_if_that_is_there_to_stay() {
    let ledger = |version: u64, second: i64| {
        let entry = LedgerEntry { node: node("a", 1).id, at: at(second) };
        Fact::Ledger(LedgerView { version: Version(version), entries: vec![entry] })
    };
    let mut world = knowing(vec![ledger(5, 5)]);
    world.learn(ledger(4, 4), at(2));
    assert_eq!(world.ledger().unwrap().entries[0].at, at(5));
    world.learn(ledger(6, 6), at(2));
    assert_eq!(world.ledger().unwrap().entries[0].at, at(6));
    world.learn(ledger(4, 4), at(2));
    world.learn(ledger(3, 3), at(2));
    assert_eq!(world.ledger().unwrap().entries[0].at, at(6), "each may be a late answer");
    world.learn(ledger(3, 3), at(2));
    assert_eq!(world.ledger().unwrap().entries[0].at, at(3), "it was restored from a backup");
}

#[test]
fn what_was_known_of_a_node_is_not_held_against_the_next_one_of_its_name() {
    let mut world = knowing(vec![watched(node("a", 5)), watched_worker(worker("w", 5)), worker_gone("w", 6)]);
    world.learn(Fact::Occupancy(node("a", 5).id, Occupancy::Idle), at(2));
    let seen = SeenOccupancy { occupancy: Occupancy::Idle, at: at(2), times_busy: 0 };
    assert_eq!(world.entry(&"n1".into()).unwrap().occupancy, Some(seen));
    world.learn(watched(node("b", 7)), at(3));
    let entry = world.entry(&"n1".into()).unwrap();
    assert_eq!((entry.seen, entry.doubt), (at(3), None));
    assert_eq!((&entry.occupancy, &entry.vanished), (&None, &None));
}

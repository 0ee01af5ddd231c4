//! Several feeds that show the same pods, and stores that are restored from a backup.

use super::*;

fn feed_of(selector: &str) -> Feed {
    Feed::init_pods("kube-system", &selector.parse().unwrap())
}

/// The feeds of two gates with different selectors that match the same pod.
fn feeds() -> [Feed; 2] {
    [feed_of("a"), feed_of("b")]
}

fn labelled(uid: &str, version: u64, labels: &[&str]) -> InitPodView {
    InitPodView { labels: labels.iter().map(|label| (*label, "x")).collect(), ..pod(uid, version) }
}

fn shown(uid: &str, version: u64, labels: &[&str], feed: &Feed) -> Fact {
    Fact::InitPod(labelled(uid, version, labels), feed.clone())
}

fn gone_from(uid: &str, version: u64, feed: &Feed) -> Fact {
    Fact::InitPodGone(uid.into(), "n1".into(), Version(version), feed.clone())
}

fn is_ready(world: &World, uid: &str) -> Option<bool> {
    Some(world.entry(&"n1".into())?.init_pods.get(&uid.into())?.view.ready)
}

#[test]
fn a_pod_that_two_feeds_show_is_gone_when_neither_shows_it() {
    let [a, b] = feeds();
    let both = || vec![shown("p", 5, &["a", "b"], &a), shown("p", 5, &["a", "b"], &b)];
    for (first, last) in [(&a, &b), (&b, &a)] {
        let mut world = knowing(both());
        world.learn(gone_from("p", 6, first), at(2));
        assert!(world.init_pod_version(&"n1".into(), &"p".into()).is_some());
        world.learn(gone_from("p", 6, last), at(2));
        assert!(world.entry(&"n1".into()).is_none());
    }
}

#[test]
fn the_list_of_one_feed_says_nothing_about_the_pods_of_another() {
    let [a, b] = feeds();
    let mut world = knowing(vec![shown("p", 5, &["a"], &a), shown("q", 6, &["b"], &b)]);
    world.learn(Fact::InitPods(Vec::new(), Version(7), a), at(2));
    assert_eq!((is_ready(&world, "p"), is_ready(&world, "q")), (None, Some(true)));
}

#[test]
fn each_feed_is_as_far_as_it_has_come_itself() {
    let [a, b] = feeds();
    let mut world = knowing(vec![shown("q", 9, &["b"], &b)]);
    world.learn(shown("p", 5, &["a"], &a), at(2));
    assert_eq!(is_ready(&world, "p"), Some(true), "feed a has not shown it before");
    world.learn(gone_from("p", 6, &a), at(2));
    world.learn(shown("p", 5, &["a"], &a), at(2));
    assert_eq!(is_ready(&world, "p"), None, "feed a has reported it as gone");
}

#[test]
fn a_feed_that_is_behind_shows_nothing_new() {
    let [a, b] = feeds();
    let mut world = knowing(vec![shown("p", 7, &["a", "b"], &a), shown("p", 5, &["a", "b"], &b)]);
    assert_eq!(known(&world)[2], Some(7));
    world.learn(shown("p", 7, &["a", "b"], &b), at(2));
    assert!(world.take_touched().is_empty());
    world.learn(gone_from("p", 8, &a), at(2));
    world.learn(gone_from("p", 8, &b), at(2));
    assert_eq!(known(&world)[2], None);
}

#[test]
fn nothing_counts_that_one_feed_has_shown_to_be_over_until_another_shows_how_it_is() {
    let [a, b] = feeds();
    let both = || vec![shown("p", 5, &["a", "b"], &a), shown("p", 5, &["a", "b"], &b)];
    let list = |version| Fact::InitPods(Vec::new(), Version(version), a.clone());
    for over in [gone_from("p", 8, &a), list(8)] {
        let mut world = knowing(both());
        world.learn(over.clone(), at(2));
        assert_eq!(is_ready(&world, "p"), Some(false), "{over:?}");
        assert_eq!(world.take_touched(), ["n1".into()].into());
        world.learn(shown("p", 6, &["a", "b"], &b), at(2));
        assert_eq!(is_ready(&world, "p"), Some(false), "that was before: {over:?}");
        world.learn(shown("p", 8, &["b"], &b), at(2));
        assert_eq!(is_ready(&world, "p"), Some(true), "{over:?}");
    }
}

#[test]
fn a_pod_that_is_known_to_have_left_a_feed_still_counts() {
    let [a, b] = feeds();
    let mut world = knowing(vec![shown("p", 5, &["a", "b"], &a), shown("p", 5, &["a", "b"], &b)]);
    world.learn(shown("p", 6, &["b"], &b), at(2));
    world.learn(gone_from("p", 6, &a), at(2));
    assert_eq!(is_ready(&world, "p"), Some(true));
}

#[test]
fn what_a_pod_says_counts_again_once_it_is_shown_again() {
    let [a, b] = feeds();
    let says = |version: u64, labels: &[&str]| InitPodView {
        annotations: [("k".to_owned(), "v".to_owned())].into(),
        ..labelled("p", version, labels)
    };
    let outlived = |world: &World| world.entry(&"n1".into()).unwrap().init_pods[&"p".into()].outlived.len();
    let mut world = knowing(vec![
        watched(node("a", 1)),
        Fact::InitPod(says(5, &["a", "b"]), a.clone()),
        Fact::InitPod(says(5, &["a", "b"]), b.clone()),
    ]);
    assert_eq!(outlived(&world), 0);
    world.learn(gone_from("p", 6, &a), at(2));
    assert_eq!(outlived(&world), 1, "its annotations may be outdated");
    world.learn(Fact::InitPod(says(6, &["b"]), b), at(2));
    assert_eq!(outlived(&world), 0);
}

#[test]
fn a_restart_of_the_node_is_not_forgotten_while_nothing_counts() {
    let [a, b] = feeds();
    let says = |version: u64, labels: &[&str]| InitPodView {
        annotations: [("k".to_owned(), "v".to_owned())].into(),
        ..labelled("p", version, labels)
    };
    let mut world = knowing(vec![
        watched(node("a", 1)),
        Fact::InitPod(says(5, &["a", "b"]), a.clone()),
        Fact::InitPod(says(5, &["a", "b"]), b.clone()),
    ]);
    world.learn(gone_from("p", 6, &a), at(2));
    world.learn(watched(NodeView { boot: "b2".into(), ..node("a", 7) }), at(2));
    world.learn(Fact::InitPod(says(8, &["b"]), b), at(100));
    let outlived = &world.entry(&"n1".into()).unwrap().init_pods[&"p".into()].outlived;
    assert_eq!(outlived.len(), 1, "the annotation predates the restart");
}

#[test]
fn what_nobody_watches_any_more_is_forgotten() {
    let [a, b] = feeds();
    let pods =
        || vec![shown("p", 5, &["a"], &a), shown("q", 6, &["a", "b"], &a), shown("q", 6, &["a", "b"], &b)];
    let mut world = knowing(pods());
    world.keep_only(&[b].into());
    assert_eq!((is_ready(&world, "p"), is_ready(&world, "q")), (None, Some(true)));
    world.keep_only(&BTreeSet::new());
    assert!(world.entry(&"n1".into()).is_none());
    assert_eq!(world.take_touched(), ["n1".into()].into());
    world.learn(shown("p", 5, &["a"], &a), at(2));
    assert!(is_ready(&world, "p").is_some(), "a watch that begins again shows what it showed before");
}

#[test]
fn after_a_restore_nothing_is_compared_with_what_was_known() {
    let mut world = knowing(vec![
        watched(node("a", 50)),
        watched(node_named("n2", "b", 51)),
        watched_worker(worker("w", 52)),
        seen_pod(pod("p", 53)),
        Fact::Pools(Vec::new()),
        Fact::Ledger(LedgerView { version: Version(54), entries: Vec::new() }),
    ]);
    let facts = world.facts();
    world.learn(Fact::Restored(Feed::of(ObjectKind::Nodes)), at(2));
    assert_eq!(world.take_touched(), ["n1".into(), "n2".into()].into());
    assert_eq!((world.entries().count(), world.live_workers()), (0, 0));
    assert!(world.pools().is_none() && world.ledger().is_none());
    assert!(world.facts() > facts, "facts before and after the restore must have different numbers");
    world.learn(Fact::Nodes(vec![node("a", 5)], Version(6)), at(3));
    world.learn(watched_worker(worker("w", 7)), at(3));
    world.learn(seen_pod(pod("p", 8)), at(3));
    assert_eq!(known(&world), [Some(5), Some(7), Some(8)]);
    let entry = world.entry(&"n1".into()).unwrap();
    assert_eq!((entry.seen, entry.vanished.as_ref()), (at(3), None));
}

#[test]
fn a_list_replaces_what_is_known_up_to_its_version() {
    let facts = || vec![watched(node("a", 50)), watched_worker(worker("w", 50)), seen_pod(pod("p", 50))];
    let lists = |version: u64| {
        [
            Fact::Nodes(vec![node("a", 20)], Version(version)),
            Fact::Workers(vec![worker("w", 20)], Version(version)),
            listed_pods(vec![pod("p", 20)], Version(version)),
        ]
    };
    for (version, expected) in [(49, 50), (50, 20), (60, 20)] {
        let mut world = knowing(facts());
        for list in lists(version) {
            world.learn(list, at(2));
        }
        assert_eq!(known(&world), [Some(expected); 3], "listed at {version}");
        let mut world = knowing(facts());
        world.learn(reread(Some(node("a", 20)), Some(worker("w", 20)), version), at(2));
        assert_eq!(known(&world), [Some(expected), Some(expected), Some(50)], "read at {version}");
    }
}

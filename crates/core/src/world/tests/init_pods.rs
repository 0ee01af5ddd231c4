//! The status of init pods, and when it may predate a restart.

use super::*;

/// The annotations that an init pod carried before a restart of its node and still carries.
fn outlived(world: &World, pod: &str) -> Vec<String> {
    let pods = &world.entry(&"n1".into()).unwrap().init_pods;
    pods[&pod.into()].outlived.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

fn saying(uid: &str, version: u64, said: &[(&str, &str)]) -> Fact {
    let annotations = said.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    seen_pod(InitPodView { annotations, ..pod(uid, version) })
}

fn restarted(version: u64) -> Fact {
    watched(NodeView { boot: "b2".into(), ..node("a", version) })
}

#[test]
fn what_an_init_pod_said_before_a_restart_is_known_to_be_old_until_it_says_otherwise() {
    let mut world = knowing(vec![watched(node("a", 1)), saying("p", 2, &[("k", "v")])]);
    assert_eq!(outlived(&world, "p"), [""; 0]);
    world.learn(restarted(3), at(2));
    assert_eq!(world.entry(&"n1".into()).unwrap().restart_seen, Some(at(2)));
    assert_eq!(outlived(&world, "p"), ["k=v"]);
    world.learn(saying("p", 4, &[("k", "v"), ("l", "v")]), at(100));
    assert_eq!(outlived(&world, "p"), ["k=v"], "it says more, but this still");
    world.learn(saying("p", 5, &[("k", "w")]), at(101));
    assert_eq!(outlived(&world, "p"), [""; 0]);
}

#[test]
fn a_pod_that_is_first_seen_soon_after_a_restart_may_have_been_there_before() {
    let mut world = knowing(vec![watched(node("a", 1))]);
    world.learn(restarted(2), at(2));
    world.learn(saying("soon", 3, &[("k", "v")]), at(61));
    world.learn(saying("late", 4, &[("k", "v")]), at(62));
    assert_eq!((outlived(&world, "soon"), outlived(&world, "late")), (vec!["k=v".to_owned()], Vec::new()));
}

#[test]
fn what_new_containers_say_after_they_were_seen_is_new() {
    let mut world = knowing(vec![watched(node("a", 1)), saying("p", 2, &[])]);
    world.learn(restarted(3), at(2));
    for (version, said, expected) in [(4, ("k", "v"), vec!["k=v"]), (5, ("k", "w"), vec![])] {
        let Fact::InitPod(seen, _) = saying("p", version, &[said]) else { unreachable!() };
        world.learn(seen_pod(InitPodView { containers: "second".to_owned(), ..seen }), at(3));
        assert_eq!(outlived(&world, "p"), expected);
    }
}

/// The only init pod, with new containers.
fn with_new_containers(version: u64, said: &[(&str, &str)]) -> Fact {
    let Fact::InitPod(seen, _) = saying("p", version, said) else { unreachable!() };
    seen_pod(InitPodView { containers: "second".to_owned(), ..seen })
}

#[test]
fn what_the_containers_before_said_says_nothing_if_we_came_in_between() {
    let mut world = knowing(vec![saying("p", 2, &[("k", "v")]), Fact::Nodes(vec![node("a", 3)], Version(3))]);
    world.learn(with_new_containers(4, &[("k", "v"), ("l", "v")]), at(2));
    assert_eq!(outlived(&world, "p"), ["k=v"]);
    world.learn(with_new_containers(5, &[("k", "w")]), at(3));
    assert_eq!(outlived(&world, "p"), [""; 0]);
}

#[test]
fn containers_that_are_replaced_long_after_we_came_are_believed() {
    let mut world = knowing(vec![saying("p", 2, &[("k", "v")]), Fact::Nodes(vec![node("a", 3)], Version(3))]);
    world.learn(with_new_containers(4, &[("k", "v")]), at(62));
    assert_eq!(outlived(&world, "p"), [""; 0]);
}

#[test]
fn what_a_pod_said_before_we_came_is_known_to_be_found() {
    let found = |world: &World| -> Vec<String> {
        let pods = &world.entry(&"n1".into()).unwrap().init_pods;
        pods[&"p".into()].found.iter().map(|(key, value)| format!("{key}={value}")).collect()
    };
    let listed = || Fact::Nodes(vec![node("a", 3)], Version(3));
    let node_last = knowing(vec![saying("p", 2, &[("k", "v")]), listed()]);
    assert_eq!(found(&node_last), ["k=v"]);
    let node_first = knowing(vec![listed(), saying("p", 2, &[("k", "v")])]);
    assert_eq!(found(&node_first), ["k=v"]);
    let mut late = knowing(vec![saying("p", 1, &[]), listed(), saying("p", 3, &[("k", "v")])]);
    assert_eq!(found(&late), ["k=v"], "that version predates the node as it was found");
    late.learn(saying("p", 4, &[("k", "v"), ("l", "v")]), at(2));
    assert_eq!(found(&late), ["k=v"], "it says more, but this still");
    late.learn(saying("p", 5, &[("k", "w")]), at(2));
    assert_eq!(found(&late), [""; 0]);
    let seen_to_come = knowing(vec![watched(node("a", 1)), saying("p", 2, &[("k", "v")])]);
    assert_eq!(found(&seen_to_come), [""; 0]);
}

#[test]
fn a_node_was_not_seen_to_join_if_a_pod_turns_out_to_be_older() {
    let doubt = |version: u64| {
        let mut world = knowing(vec![watched(node("a", 3)), watched(node("a", 9))]);
        world.learn(listed_pods(vec![pod("p", version)], Version(9)), at(2));
        world.entry(&"n1".into()).unwrap().doubt
    };
    assert_eq!(doubt(3), Some(Doubt { since: at(2), version: Version(3) }));
    assert_eq!(doubt(4), None, "it came after the node");
}

#[test]
fn what_is_reported_late_of_containers_dispels_no_doubt() {
    let is_restarted = |version: u64| {
        let mut world = knowing(vec![watched(node("a", 1)), seen_pod(pod("p", 2))]);
        world.learn(restarted(5), at(2));
        world.learn(with_new_containers(version, &[]), at(3));
        world.entry(&"n1".into()).unwrap().init_pods[&"p".into()].restarted
    };
    assert!(!is_restarted(5), "that version predates the restart of the node");
    assert!(is_restarted(6));
}

#[test]
fn a_node_whose_pods_were_there_before_it_was_restarted_unless_all_is_reported_at_once() {
    let restart_seen = |fact: Fact| {
        let mut world = knowing(vec![seen_pod(pod("p", 1))]);
        world.learn(fact, at(2));
        world.entry(&"n1".into()).unwrap().restart_seen
    };
    assert_eq!(restart_seen(watched(node("a", 2))), Some(at(2)));
    assert_eq!(restart_seen(Fact::Nodes(vec![node("a", 2)], Version(2))), None);
}

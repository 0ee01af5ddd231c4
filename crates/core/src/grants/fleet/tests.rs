use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn name(text: &str) -> NodeName {
    text.into()
}

fn seen(second: i64, fact: u64) -> Seen {
    Seen { at: at(second), fact }
}

fn failed(second: i64, fact: u64) -> Member {
    Member {
        membership: Membership::Managed,
        failing_until: Some(at(second + 600)),
        own_failure: Some(seen(second, fact)),
        ..Member::default()
    }
}

fn verified(runs: &[(i64, bool, i64, u64)]) -> Member {
    let run = |(started, passed, second, fact): &(i64, bool, i64, u64)| Run {
        started: at(*started),
        ended_by: at(*second),
        passed: *passed,
        seen: Some(seen(*second, *fact)),
    };
    Member {
        membership: Membership::Managed,
        runs: runs.iter().map(run).collect(),
        is_reference: true,
        ..Member::default()
    }
}

fn fleet(members: &[(&str, Member)]) -> Fleet {
    let mut fleet = Fleet::default();
    for (node, member) in members {
        fleet.note(&name(node), member.clone(), at(0));
    }
    fleet
}

fn trouble(fleet: &Fleet, second: i64) -> Option<String> {
    fleet.trouble(&DeletionLimits::default(), at(second)).map(|trouble| trouble.to_string())
}

fn observe(fleet: &mut Fleet, second: i64) {
    fleet.observe(&DeletionLimits::default(), at(second));
}

fn passed_elsewhere(fleet: &Fleet, by: i64, now: i64) -> Option<String> {
    fleet.pass_elsewhere(&name("n1"), at(by), at(now)).map(|passed| passed.node.to_string())
}

#[test]
fn many_failures_at_once_are_trouble_until_they_are_old_or_gone() {
    let mut fleet = fleet(&[("n1", failed(0, 1)), ("n2", failed(0, 1)), ("n3", failed(60, 1))]);
    assert_eq!(
        trouble(&fleet, 0).as_deref(),
        Some("3 of 3 nodes fail at once, the cluster itself is suspected")
    );
    observe(&mut fleet, 601);
    assert_eq!(trouble(&fleet, 601), None, "a single failure is not trouble");
    assert_eq!(fleet.managed(), 3);
    fleet.note(&name("n3"), Member::default(), at(602));
    assert_eq!((fleet.managed(), fleet.failing.len()), (2, 0));
}

#[test]
fn a_failure_that_another_clock_dates_earlier_counts_as_long_as_before_until_the_node_passes() {
    let mut fleet = fleet(&[("n1", failed(0, 1)), ("n2", failed(0, 1)), ("n3", failed(0, 1))]);
    for node in ["n1", "n2", "n3"] {
        fleet.note(&name(node), failed(-3_600, 2), at(10));
    }
    observe(&mut fleet, 590);
    assert!(trouble(&fleet, 590).is_some());
    for node in ["n1", "n2", "n3"] {
        fleet.note(&name(node), verified(&[]), at(591));
    }
    assert_eq!(trouble(&fleet, 591), None);
}

#[test]
fn a_pass_elsewhere_counts_if_it_was_started_after_the_failure_and_known_before_the_next_run() {
    let fleet = fleet(&[("n1", failed(10, 5)), ("n2", verified(&[(20, true, 30, 6)]))]);
    assert_eq!(passed_elsewhere(&fleet, 30, 40).as_deref(), Some("n2"));
    assert_eq!(
        passed_elsewhere(&fleet, 29, 40),
        None,
        "the pass was not known when the node was tried again"
    );
    assert_eq!(passed_elsewhere(&fleet, 30, 20 + 15 * 60), None, "the run is too old");
    let fleet = self::fleet(&[("n1", failed(21, 5)), ("n2", verified(&[(20, true, 30, 6)]))]);
    assert_eq!(passed_elsewhere(&fleet, 30, 40), None, "it was started before the failure");
    let fleet = self::fleet(&[("n1", failed(10, 6)), ("n2", verified(&[(20, true, 30, 6)]))]);
    assert_eq!(passed_elsewhere(&fleet, 30, 40), None, "both were learned by the same fact");
    let fleet = self::fleet(&[("n1", failed(10, 5)), ("n2", verified(&[(20, false, 30, 6)]))]);
    assert_eq!(passed_elsewhere(&fleet, 30, 40), None, "that was no pass");
}

#[test]
fn a_pass_that_was_started_in_the_future_proves_nothing() {
    let fleet = fleet(&[("n1", failed(10, 5)), ("n2", verified(&[(7_200, true, 30, 6)]))]);
    assert_eq!(passed_elsewhere(&fleet, 30, 40), None);
    assert!(!fleet.has_passed_elsewhere_after(&name("n1"), seen(10, 5), at(40)));
    assert!(fleet.has_passed_elsewhere_after(&name("n1"), seen(10, 5), at(7_200)));
}

#[test]
fn a_pass_counts_after_a_failure_only_if_it_is_known_from_a_later_fact_about_another_node() {
    let fleet = fleet(&[("n2", verified(&[(20, true, 30, 6)]))]);
    let passed_after = |node: &str, fact: u64, now: i64| {
        fleet.has_passed_elsewhere_after(&name(node), seen(10, fact), at(now))
    };
    assert!(passed_after("n1", 5, 40));
    assert!(!passed_after("n1", 6, 40), "both were learned by the same fact");
    assert!(!passed_after("n2", 5, 40), "it is about the node itself");
    assert!(!passed_after("n1", 5, 20 + 15 * 60), "it is too old");
}

#[test]
fn what_is_not_known_when_it_was_made_proves_nothing() {
    let mut member = verified(&[(20, true, 30, 6)]);
    member.runs[0].seen = None;
    assert_eq!(passed_elsewhere(&fleet(&[("n1", failed(10, 5)), ("n2", member)]), 30, 40), None);
}

#[test]
fn a_pass_elsewhere_says_nothing_about_a_failure_after_it() {
    let mut fleet = fleet(&[("n1", failed(10, 5)), ("n2", verified(&[(20, true, 30, 6)]))]);
    fleet.note(&name("n1"), failed(35, 7), at(35));
    assert_eq!(passed_elsewhere(&fleet, 40, 40), None);
    assert!(fleet.has_passed_elsewhere(&name("n1"), at(10), at(40)));
    assert!(!fleet.has_passed_elsewhere(&name("n1"), at(35), at(40)));
}

#[test]
fn a_pass_that_was_known_before_the_failure_says_nothing_about_it_whatever_its_time() {
    let fleet = fleet(&[("n2", verified(&[(60, true, 0, 1)]))]);
    assert!(!fleet.has_passed_elsewhere(&name("n1"), at(20), at(60)), "another clock is ahead");
}

#[test]
fn trouble_voids_what_was_before_it() {
    let mut fleet = fleet(&[("n1", failed(10, 5)), ("n2", verified(&[(20, true, 30, 6)]))]);
    fleet.note(&name("n3"), failed(40, 7), at(40));
    observe(&mut fleet, 41);
    assert!(!fleet.is_after_trouble(at(41)) && fleet.is_after_trouble(at(42)));
    fleet.note(&name("n3"), Member::default(), at(42));
    observe(&mut fleet, 43);
    assert_eq!(passed_elsewhere(&fleet, 50, 50), None);
    fleet.note(&name("n1"), failed(50, 9), at(50));
    fleet.note(&name("n2"), verified(&[(55, true, 60, 10)]), at(60));
    assert_eq!(passed_elsewhere(&fleet, 60, 60).as_deref(), Some("n2"));
}

#[test]
fn a_failed_reference_is_trouble_for_a_while_or_until_a_later_pass() {
    let sick = verified(&[(100, false, 110, 6)]);
    let mut fleet = Fleet::default();
    fleet.note(&name("n2"), sick.clone(), at(110));
    assert!(trouble(&fleet, 110).is_some() && trouble(&fleet, 110 + 299).is_some());
    assert_eq!(trouble(&fleet, 110 + 300), None);
    fleet.note(&name("n3"), verified(&[(105, true, 115, 7)]), at(115));
    assert!(trouble(&fleet, 115).is_some(), "it was started before the other one ended");
    fleet.note(&name("n4"), verified(&[(112, true, 116, 8)]), at(116));
    assert_eq!(trouble(&fleet, 116), None);
    let mut fleet = Fleet::default();
    fleet.note(&name("n2"), sick, at(110 + 300));
    assert_eq!(trouble(&fleet, 110 + 300), None, "that was long ago");
}

#[test]
fn a_reference_run_counts_from_its_end_however_long_it_took() {
    let mut fleet = Fleet::default();
    fleet.note(&name("n2"), verified(&[(100, false, 1_000, 6)]), at(1_000));
    assert!(trouble(&fleet, 1_299).is_some());
    assert_eq!(trouble(&fleet, 1_300), None);
}

#[test]
fn a_pass_that_another_clock_dates_in_the_future_does_not_end_trouble() {
    let mut fleet = Fleet::default();
    fleet.note(&name("n2"), verified(&[(100, false, 110, 6)]), at(110));
    fleet.note(&name("n3"), verified(&[(3_600, true, 115, 7)]), at(115));
    assert!(trouble(&fleet, 115).is_some());
}

#[test]
fn trouble_ends_when_earlier_results_no_longer_count() {
    let mut fleet = fleet(&[("n2", verified(&[(-10, false, 0, 6)]))]);
    assert!(trouble(&fleet, 1).is_some());
    fleet.start_over(at(1));
    assert_eq!(trouble(&fleet, 1), None);
}

#[test]
fn a_run_that_is_noted_again_keeps_the_time_when_it_was_first_seen() {
    let mut fleet = fleet(&[("n1", failed(10, 5)), ("n2", verified(&[(20, true, 30, 6)]))]);
    fleet.note(&name("n2"), verified(&[(20, true, 90, 9)]), at(90));
    assert_eq!(passed_elsewhere(&fleet, 30, 95).as_deref(), Some("n2"));
}

#[test]
fn the_node_that_ran_the_checks_longest_ago_comes_first() {
    let mut member = verified(&[(5, true, 6, 1)]);
    member.is_reference = false;
    let fleet = fleet(&[
        ("n1", verified(&[(20, true, 30, 6)])),
        ("n2", verified(&[(10, true, 30, 6), (40, true, 50, 7)])),
        ("n3", verified(&[(15, true, 30, 6)])),
        ("n4", member),
    ]);
    assert_eq!(fleet.references().map(NodeName::as_str).collect::<Vec<_>>(), ["n3", "n1", "n2"]);
}

#[test]
fn a_node_that_was_asked_in_vain_is_asked_again_last() {
    let mut fleet =
        fleet(&[("a", verified(&[])), ("b", verified(&[(50, true, 50, 1)])), ("c", verified(&[]))]);
    let order = |fleet: &Fleet| fleet.references().map(ToString::to_string).collect::<String>();
    assert_eq!(order(&fleet), "acb");
    fleet.asked_for_reference(&name("a"), at(60));
    assert_eq!(order(&fleet), "cba");
    fleet.note(&name("a"), verified(&[]), at(61));
    assert_eq!(order(&fleet), "cba", "its run had no result");
    fleet.note(&name("a"), Member::default(), at(62));
    fleet.note(&name("a"), verified(&[]), at(63));
    assert_eq!(order(&fleet), "acb", "it was gone in between");
}

#[test]
fn a_reference_run_whose_result_cannot_be_recorded_is_not_waited_for() {
    let running = Member { runs_reference: true, ..verified(&[]) };
    let mut fleet = fleet(&[("a", running.clone()), ("b", running)]);
    fleet.give_up_reference(&name("a"));
    fleet.give_up_reference(&name("a"));
    fleet.give_up_reference(&name("c"));
    assert!(fleet.runs_reference(), "another one is under way");
    fleet.give_up_reference(&name("b"));
    assert!(!fleet.runs_reference());
}

#[test]
fn reference_runs_under_way_are_counted() {
    let running = Member { runs_reference: true, ..verified(&[]) };
    let mut fleet = fleet(&[("a", running.clone()), ("a", running)]);
    assert!(fleet.runs_reference());
    fleet.note(&name("a"), Member::default(), at(1));
    assert!(!fleet.runs_reference());
}

#[test]
fn only_closed_nodes_in_scope_keep_others_open() {
    let member = |membership, closure| Member { membership, closure, ..Member::default() };
    let mut fleet = fleet(&[
        ("open", member(Membership::Managed, Closure::Open)),
        ("new", member(Membership::InScope, Closure::Closed)),
        ("failed", member(Membership::Managed, Closure::Unproven)),
    ]);
    let counts = |fleet: &Fleet, node: &str| {
        [Counted::Closed, Counted::Unproven].map(|counted| fleet.closed_besides(&name(node), counted))
    };
    assert_eq!(counts(&fleet, "open"), [2, 1]);
    assert_eq!(counts(&fleet, "new"), [1, 1]);
    assert_eq!(counts(&fleet, "failed"), [1, 0]);
    for node in ["open", "failed"] {
        fleet.expect_closed(&name(node), true);
    }
    assert_eq!(counts(&fleet, "new"), [2, 2], "each counts once");
    fleet.note(&name("open"), Member::default(), at(1));
    assert_eq!(counts(&fleet, "new"), [1, 1], "it is paused now");
    fleet.note(&name("open"), member(Membership::Managed, Closure::Open), at(2));
    assert_eq!(
        counts(&fleet, "new"),
        [2, 2],
        "it is about to be closed, or was, and nobody has seen it open"
    );
    fleet.expect_nothing();
    assert_eq!(counts(&fleet, "new"), [1, 1]);
}

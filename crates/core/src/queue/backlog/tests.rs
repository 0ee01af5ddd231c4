use super::super::testing::{condition, deletion_event, event, node, noon, open, order, start, verified};
use super::*;
use crate::view::ConditionStatus;

const SECOND: SignedDuration = SignedDuration::from_secs(1);

fn drained(backlog: &mut Backlog, lane: Lane) -> Vec<u64> {
    std::iter::from_fn(|| backlog.next(lane)).map(|next| next.order.ticket).collect()
}

fn late(backlog: &mut Backlog, now: Timestamp) -> Vec<QueuedWrite> {
    std::iter::from_fn(|| backlog.next_late(now)).collect()
}

fn ticket(waiting: Option<QueuedWrite>) -> Option<u64> {
    waiting.map(|waiting| waiting.order.ticket)
}

#[test]
fn whoever_has_waited_longest_comes_first() {
    let mut backlog = Backlog::default();
    for (ticket, name) in [(1, "c"), (2, "a"), (3, "b")] {
        backlog.take(order(ticket, open(name)), None, noon() + i32::try_from(ticket).unwrap() * SECOND);
    }
    for (ticket, name) in [(4, "e"), (5, "d")] {
        backlog.take(order(ticket, start(name)), None, noon());
    }
    assert_eq!(drained(&mut backlog, Lane::Gate), [1, 2, 3]);
    assert_eq!(drained(&mut backlog, Lane::Step), [4, 5], "as they were decided");
    assert_eq!(backlog.len(), 0);
}

#[test]
fn what_was_decided_too_long_ago_is_taken_back() {
    let (mut backlog, later) = (Backlog::default(), noon() + 29 * SECOND);
    backlog.take(order(1, verified("a")), None, noon());
    backlog.take(order(2, open("b")), None, later);
    assert!(late(&mut backlog, later).is_empty());
    assert_eq!(backlog.first_late(), Some(later + SECOND));
    assert_eq!(ticket(late(&mut backlog, later + SECOND).pop()), Some(1));
    assert_eq!((backlog.len(), backlog.oldest(Lane::Verified)), (1, None));
}

#[test]
fn what_is_given_again_keeps_its_place_and_may_wait_once_more() {
    let (mut backlog, later) = (Backlog::default(), noon() + 30 * SECOND);
    backlog.take(order(1, verified("a")), None, noon());
    backlog.take(order(2, verified("b")), None, noon() + SECOND);
    let back = late(&mut backlog, later);
    backlog.take(order(3, verified("a")), back.first(), later);
    assert!(late(&mut backlog, later).is_empty(), "it was decided just now");
    assert_eq!(drained(&mut backlog, Lane::Verified), [3, 2]);
}

/// A condition carries the time of its transition.
#[test]
fn other_work_does_not_take_the_place_of_what_was_taken_back() {
    let (mut backlog, later) = (Backlog::default(), noon() + SECOND);
    backlog.take(order(1, condition("a", ConditionStatus::False)), None, noon());
    backlog.take(order(2, open("b")), None, noon());
    let back = ["a", "b"].map(|name| backlog.remove(&node(name).name));
    assert_eq!(backlog.len(), 0);
    backlog.take(order(3, condition("a", ConditionStatus::Unknown)), back[0].as_ref(), later);
    backlog.take(order(4, start("b")), back[1].as_ref(), later);
    for (ticket, lane) in [(3, Lane::Unverified), (4, Lane::Step)] {
        assert_eq!(backlog.next(lane).map(|next| (next.order.ticket, next.since)), Some((ticket, later)));
    }
}

#[test]
fn only_the_order_of_the_node_is_taken_back() {
    let mut backlog = Backlog::default();
    backlog.take(order(1, open("a")), None, noon());
    backlog.take(order(2, open("b")), None, noon());
    backlog.report(event("a"), noon());
    assert_eq!(ticket(backlog.remove(&node("a").name)), Some(1));
    for name in ["a", "c"] {
        assert_eq!(ticket(backlog.remove(&node(name).name)), None);
    }
    assert_eq!(drained(&mut backlog, Lane::Gate), [2]);
    assert_eq!(backlog.len(), 1, "an event reports what was done, and stays true");
}

#[test]
fn a_second_order_of_a_node_replaces_the_first() {
    let mut backlog = Backlog::default();
    backlog.take(order(1, verified("a")), None, noon());
    backlog.take(order(2, open("a")), None, noon());
    assert_eq!((backlog.len(), backlog.oldest(Lane::Verified)), (1, None));
    assert_eq!(ticket(backlog.remove(&node("a").name)), Some(2));
    assert_eq!(backlog.len(), 0);
}

#[test]
fn old_events_are_dropped() {
    let mut backlog = Backlog::default();
    backlog.report(event("a"), noon());
    backlog.report(event("b"), noon() + 29 * SECOND);
    assert_eq!(backlog.drop_old_events(noon() + 29 * SECOND), 0);
    assert_eq!((backlog.drop_old_events(noon() + 30 * SECOND), backlog.len()), (1, 1));
    assert_eq!((backlog.drop_events(), backlog.len()), (1, 0));
}

/// Nothing else in the cluster shows for long that a node was deleted, and why.
#[test]
fn an_event_that_reports_a_deletion_is_not_dropped_however_long_it_waits() {
    let mut backlog = Backlog::default();
    backlog.report(deletion_event("a"), noon());
    backlog.report(event("b"), noon());
    assert_eq!((backlog.drop_old_events(noon() + 31 * SECOND), backlog.len()), (1, 1));
    assert_eq!((backlog.drop_events(), backlog.len()), (0, 1));
    assert_eq!(backlog.oldest(Lane::Deletion), Some(noon()));
    assert_eq!(backlog.next(Lane::Deletion).map(|next| next.order.action), Some(deletion_event("a")));
    assert_eq!(backlog.len(), 0);
}

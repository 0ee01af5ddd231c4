use knr_core::view::ConditionStatus;
use tokio::time::advance;

use super::super::testing::{condition, deletion_event, event, node, open, order, start, verified};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn tickets(waiting: &[Waiting]) -> Vec<u64> {
    waiting.iter().map(|waiting| waiting.order.ticket).collect()
}

fn drained(queue: &mut Queue, lane: Lane) -> Vec<u64> {
    std::iter::from_fn(|| queue.next(lane)).map(|next| next.order.ticket).collect()
}

#[tokio::test(start_paused = true)]
async fn whoever_has_waited_longest_comes_first() {
    let mut queue = Queue::default();
    for (ticket, name) in [(1, "c"), (2, "a"), (3, "b")] {
        queue.take(order(ticket, open(name)), None);
        advance(SECOND).await;
    }
    queue.take(order(4, start("d")), None);
    assert_eq!(drained(&mut queue, Lane::Gate), [1, 2, 3]);
    assert_eq!(drained(&mut queue, Lane::Step), [4]);
    assert_eq!(queue.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_too_long_ago_is_taken_back() {
    let mut queue = Queue::default();
    queue.take(order(1, verified("a")), None);
    advance(29 * SECOND).await;
    queue.take(order(2, open("b")), None);
    assert!(queue.take_back_late().is_empty());
    assert_eq!(queue.next_late(), Some(Instant::now() + SECOND));
    advance(SECOND).await;
    assert_eq!((tickets(&queue.take_back_late()), queue.len()), (vec![1], 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_again_keeps_its_place_and_may_wait_once_more() {
    let mut queue = Queue::default();
    queue.take(order(1, verified("a")), None);
    advance(SECOND).await;
    queue.take(order(2, verified("b")), None);
    advance(29 * SECOND).await;
    let back = queue.take_back_late();
    queue.take(order(3, verified("a")), back.first());
    assert!(queue.take_back_late().is_empty(), "it was decided just now");
    assert_eq!(drained(&mut queue, Lane::Condition), [3, 2]);
}

/// A condition bears the time since when it has been so.
#[tokio::test(start_paused = true)]
async fn other_work_does_not_take_the_place_of_what_was_taken_back() {
    let mut queue = Queue::default();
    queue.take(order(1, condition("a", ConditionStatus::False)), None);
    queue.take(order(2, open("b")), None);
    advance(SECOND).await;
    let (nodes, now) = ([node("a").name, node("b").name], Instant::now());
    let back = queue.take_back(nodes.iter());
    assert_eq!((tickets(&back), queue.len()), (vec![1, 2], 0));
    queue.take(order(3, condition("a", ConditionStatus::Unknown)), back.first());
    queue.take(order(4, start("b")), back.last());
    for ticket in [3, 4] {
        assert_eq!(queue.next(Lane::Step).map(|next| (next.order.ticket, next.since)), Some((ticket, now)));
    }
}

#[tokio::test]
async fn only_orders_of_these_nodes_are_taken_back() {
    let mut queue = Queue::default();
    queue.take(order(1, open("a")), None);
    queue.take(order(2, open("b")), None);
    queue.tell(event("a"));
    let nodes = [node("a").name, node("c").name];
    assert_eq!(tickets(&queue.take_back(nodes.iter())), [1]);
    assert!(queue.take_back(nodes.iter()).is_empty());
    assert_eq!(drained(&mut queue, Lane::Gate), [2]);
    assert_eq!(queue.len(), 1, "an event reports what was done, and stays true");
}

#[tokio::test]
async fn a_second_order_of_a_node_replaces_the_first() {
    let mut queue = Queue::default();
    queue.take(order(1, verified("a")), None);
    queue.take(order(2, open("a")), None);
    assert_eq!((queue.len(), queue.oldest(Lane::Condition)), (1, None));
    assert_eq!(tickets(&queue.take_back([node("a").name].iter())), [2]);
    assert_eq!(queue.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn old_events_are_dropped() {
    let mut queue = Queue::default();
    queue.tell(event("a"));
    advance(29 * SECOND).await;
    queue.tell(event("b"));
    assert_eq!(queue.drop_old_events(), 0);
    advance(SECOND).await;
    assert_eq!((queue.drop_old_events(), queue.len()), (1, 1));
    assert_eq!((queue.drop_events(), queue.len()), (1, 0));
}

/// Nothing else on the cluster shows for long that a node was deleted, and why.
#[tokio::test(start_paused = true)]
async fn an_event_that_reports_a_deletion_is_not_dropped_however_long_it_waits() {
    let mut queue = Queue::default();
    queue.tell(deletion_event("a"));
    queue.tell(event("b"));
    advance(31 * SECOND).await;
    assert_eq!((queue.drop_old_events(), queue.len()), (1, 1));
    assert_eq!(queue.oldest(Lane::Deletion), Some(Instant::now() - 31 * SECOND));
    assert_eq!(queue.next(Lane::Deletion).map(|next| next.order.action), Some(deletion_event("a")));
    assert_eq!(queue.len(), 0);
    queue.tell(deletion_event("a"));
    assert_eq!((queue.drop_events(), queue.len()), (1, 0), "without the right to write nothing is sent");
}

//! Reports of deletions: they outlast other events, and are sent again.

use super::*;

#[test]
fn the_report_of_a_deletion_is_sent_again_with_growing_delays_for_an_hour() {
    let mut orders = Orders::new();
    orders.give(deletion_event("a"));
    assert_eq!(orders.queue.first_report(), None);
    let mut delays = Vec::new();
    loop {
        let report = orders.queue.next(orders.now).unwrap();
        orders.answered(&report.order.action);
        if !orders.queue.send_again(report, orders.now) {
            break;
        }
        assert_eq!(orders.queue.waiting(), 1);
        let again = orders.queue.first_report().unwrap();
        assert_eq!(orders.queue.wake(orders.now), Some(again));
        delays.push(again.duration_since(orders.now).as_secs());
        orders.now = again - SECOND / 1000;
        assert_eq!(orders.send(), []);
        orders.now = again;
    }
    assert_eq!(delays[..9], [1, 1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(delays.iter().sum::<i64>(), 3604, "the first attempt after an hour is the last one");
    assert_eq!(orders.queue.waiting(), 0);
}

#[test]
fn a_report_that_has_failed_for_exactly_an_hour_is_given_up() {
    let mut orders = Orders::new();
    orders.give(deletion_event("a"));
    let mut report = orders.queue.next(orders.now).unwrap();
    report.failing = Some(orders.now - LONGEST_FAILING);
    assert!(!orders.queue.send_again(report, orders.now));
}

#[test]
fn reports_of_deletions_outlast_other_events() {
    let mut orders = Orders::new();
    orders.give(deletion_event("a"));
    let report = orders.queue.next(orders.now).unwrap();
    orders.answered(&report.order.action);
    assert!(orders.queue.send_again(report, orders.now));
    for name in ["b", "c"] {
        orders.give(deletion_event(name));
        orders.give(event(name));
    }
    assert_eq!(orders.queue.drop_events(), 2);
    assert_eq!(orders.queue.waiting(), 3);
    assert_eq!(orders.queue.drop_reports(), 3);
    assert_eq!((orders.queue.waiting(), orders.queue.first_report()), (0, None));
}

#[test]
fn an_event_that_was_not_sent_after_all_keeps_its_place_and_its_history() {
    let mut orders = Orders::new();
    for event in [deletion_event("a"), deletion_event("b"), event("c"), event("d")] {
        orders.give(event);
    }
    let mut report = orders.queue.next(orders.now).unwrap();
    orders.answered(&report.order.action);
    report.failing = Some(orders.now - LONGEST_FAILING);
    orders.queue.put_back(report);
    let report = orders.queue.next(orders.now).unwrap();
    assert_eq!(report.order.action, deletion_event("a"));
    orders.answered(&report.order.action);
    assert!(!orders.queue.send_again(report, orders.now), "its hour is over");
    assert_eq!(orders.send(), [deletion_event("b")]);
    orders.now += 20 * SECOND;
    let late = orders.queue.next(orders.now).unwrap();
    assert_eq!(late.order.action, event("c"));
    orders.answered(&late.order.action);
    orders.queue.put_back(late);
    assert_eq!(orders.queue.next(orders.now).unwrap().order.action, event("c"));
}

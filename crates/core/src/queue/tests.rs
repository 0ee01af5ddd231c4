mod reports;

use std::collections::VecDeque;

use super::testing::{
    condition, deletion_event, event, node, noon, open, order, removal, start, verified, waiting,
};
use super::*;
use crate::view::ConditionStatus;

const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// The slots of the controller.
const MAIN: usize = 42;
const CONDITIONS: usize = 21;
const SPARE: usize = 8;

struct Orders {
    queue: Queue,
    next_ticket: u64,
    now: Timestamp,
}

impl Orders {
    fn new() -> Self {
        Self { queue: Queue::new(Capacity::default()), next_ticket: 0, now: noon() }
    }

    fn give(&mut self, action: Action) {
        match Lane::of(&action) {
            Lane::Deletion | Lane::Event => self.queue.report(action, self.now),
            Lane::Gate | Lane::Step | Lane::Unverified | Lane::Waiting | Lane::Verified | Lane::Removal => {
                self.take(action, None);
            }
        }
    }

    fn take(&mut self, action: Action, before: Option<&QueuedWrite>) {
        self.next_ticket += 1;
        self.queue.take(order(self.next_ticket, action), before, self.now);
    }

    fn answered(&mut self, action: &Action) {
        self.queue.answered(action, self.now);
    }

    fn send(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.queue.next(self.now)).map(|next| next.order.action).collect()
    }

    /// The number of writes that are sent now, by lane.
    fn count(&mut self) -> [usize; 6] {
        let sent = self.send();
        [Lane::Gate, Lane::Step, Lane::Unverified, Lane::Verified, Lane::Removal, Lane::Event]
            .map(|wanted| sent.iter().filter(|action| Lane::of(action) == wanted).count())
    }

    /// Queues many writes of each lane.
    fn flood(&mut self) {
        for number in 0..100 {
            self.give(open(&format!("gate-{number}")));
            self.give(start(&format!("step-{number}")));
            self.give(verified(&format!("condition-{number}")));
            self.give(removal(&format!("removal-{number}")));
            self.give(event(&format!("event-{number}")));
        }
    }

    fn wakes_in(&self) -> Option<SignedDuration> {
        self.queue.wake(self.now).map(|at| at.duration_since(self.now))
    }
}

#[test]
fn gates_go_first_and_nothing_else_while_they_do() {
    let mut orders = Orders::new();
    orders.give(start("a"));
    orders.flood();
    assert_eq!(orders.count(), [MAIN, 0, 0, 0, 0, 0]);
    orders.answered(&open("gate-0"));
    assert_eq!(orders.count(), [1, 0, 0, 0, 0, 0]);
}

#[test]
fn an_event_that_reports_a_deletion_does_not_wait_for_gates() {
    let mut orders = Orders::new();
    orders.flood();
    orders.give(deletion_event("a"));
    assert_eq!(orders.send().first(), Some(&deletion_event("a")));
}

#[test]
fn when_it_is_quiet_a_few_of_the_others_go_conditions_first() {
    let mut orders = Orders::new();
    orders.give(open("a"));
    assert_eq!(orders.count(), [1, 0, 0, 0, 0, 0]);
    for name in ["b", "c"] {
        orders.give(verified(name));
        orders.give(event(name));
    }
    orders.give(removal("d"));
    orders.now += SECOND;
    assert_eq!(orders.send(), [], "a gate is in flight");
    orders.answered(&open("a"));
    assert_eq!(orders.send(), [], "another one may follow");
    assert_eq!(orders.wakes_in(), Some(QUIET));
    orders.now += QUIET;
    assert_eq!(orders.send(), [verified("b"), verified("c"), event("b"), event("c"), removal("d")]);
    for number in 0..20 {
        orders.give(verified(&format!("n{number}")));
    }
    assert_eq!(orders.count(), [0, 0, 0, SPARE - 5, 0, 0]);
    assert_eq!(orders.queue.in_flight(), SPARE);
}

#[test]
fn conditions_that_are_due_share_the_places_with_gates() {
    let mut orders = Orders::new();
    orders.flood();
    assert_eq!(orders.count(), [MAIN, 0, 0, 0, 0, 0]);
    orders.now += Lane::Verified.yields_for();
    assert_eq!(orders.count(), [0; 6], "no slot is free, and events go last");
    assert_eq!(orders.wakes_in(), Some(10 * SECOND), "then unsent orders are taken back");
    for number in 0..MAIN {
        orders.answered(&open(&format!("gate-{number}")));
    }
    assert_eq!(orders.count(), [MAIN - CONDITIONS, 0, 0, CONDITIONS, 0, 0]);
    orders.now += Lane::Removal.yields_for();
    assert_eq!(orders.count(), [0, 0, 0, 0, SPARE, 0], "removals have slots of their own");
}

#[test]
fn events_that_are_due_go_while_gates_open_unless_these_take_all_places() {
    let mut orders = Orders::new();
    orders.give(event("a"));
    orders.give(open("a"));
    assert_eq!(orders.count(), [1, 0, 0, 0, 0, 0]);
    assert_eq!(orders.wakes_in(), Some(Lane::Event.yields_for()));
    orders.now += Lane::Event.yields_for();
    assert_eq!(orders.count(), [0, 0, 0, 0, 0, 1]);
}

#[test]
fn an_order_that_gets_too_old_wakes_the_loop() {
    let mut orders = Orders::new();
    orders.give(removal("a"));
    orders.give(open("b"));
    assert_eq!(orders.count(), [1, 0, 0, 0, 0, 0]);
    assert_eq!(orders.wakes_in(), Some(30 * SECOND));
    orders.now += 30 * SECOND;
    assert_eq!(orders.queue.take_back_late(orders.now).len(), 1);
    assert_eq!(orders.wakes_in(), None);
}

#[test]
fn when_all_orders_are_taken_back_and_events_are_dropped_only_reports_of_deletions_are_left() {
    let mut orders = Orders::new();
    orders.flood();
    orders.give(deletion_event("a"));
    assert_eq!(orders.queue.waiting(), 501);
    assert_eq!(orders.queue.take_back_all().len(), 400);
    assert_eq!(orders.queue.drop_events(), 100);
    assert!(orders.queue.take_back([node("gate-0").name].iter()).is_empty());
    assert_eq!(orders.send(), [deletion_event("a")]);
    assert_eq!(orders.queue.waiting(), 0);
}

#[test]
fn a_single_slot_serves_gates_and_due_conditions() {
    let mut orders = Orders::new();
    orders.queue = Queue::new(Capacity { main: 1, spare: 1 });
    orders.flood();
    assert_eq!(orders.count(), [1, 0, 0, 0, 0, 0]);
    orders.now += Lane::Verified.yields_for();
    orders.answered(&open("gate-0"));
    assert_eq!(orders.count(), [0, 0, 0, 1, 0, 0]);
}

fn unverified(name: &str) -> Action {
    condition(name, ConditionStatus::Unknown)
}

#[test]
fn conditions_of_ten_thousand_nodes_that_wait_delay_no_worker() {
    let mut orders = Orders::new();
    for number in 0..10_000 {
        orders.give(unverified(&format!("n{number}")));
    }
    orders.now += SECOND;
    orders.give(start("a"));
    let sent = orders.send();
    assert_eq!((sent.first(), sent.len()), (Some(&start("a")), 1 + CONDITIONS));
    orders.give(start("b"));
    assert_eq!(orders.send(), [start("b")], "they leave places for steps");
    orders.now += Lane::Unverified.yields_for();
    orders.answered(&unverified("n0"));
    orders.give(start("c"));
    assert_eq!(orders.send().len(), 2, "when they are due, they still leave places for steps");
}

#[test]
fn a_condition_of_a_node_that_waits_yields_to_gates_and_steps_for_a_while() {
    let mut orders = Orders::new();
    orders.give(unverified("a"));
    orders.flood();
    assert_eq!(orders.count(), [MAIN, 0, 0, 0, 0, 0]);
    orders.now += Lane::Unverified.yields_for();
    orders.answered(&open("gate-0"));
    assert_eq!(orders.send(), [unverified("a")]);
}

#[test]
fn a_condition_that_only_says_what_a_node_waits_for_waits_until_it_is_quiet() {
    let mut orders = Orders::new();
    orders.give(open("a"));
    assert_eq!(orders.send(), [open("a")]);
    orders.give(waiting("b"));
    orders.give(unverified("c"));
    assert_eq!(orders.send(), [unverified("c")]);
    orders.answered(&open("a"));
    assert_eq!(orders.send(), [], "another gate may follow");
    assert_eq!(orders.wakes_in(), Some(QUIET));
    orders.now += QUIET;
    assert_eq!(orders.send(), [waiting("b")]);
}

#[test]
fn a_condition_that_only_says_what_a_node_waits_for_is_sent_in_the_end() {
    let mut orders = Orders::new();
    orders.give(waiting("a"));
    orders.flood();
    assert_eq!(orders.count(), [MAIN, 0, 0, 0, 0, 0]);
    orders.answered(&open("gate-0"));
    orders.now += Lane::Waiting.yields_for() - SECOND;
    assert_eq!(orders.count(), [1, 0, 0, 0, 0, 0]);
    orders.now += SECOND;
    orders.answered(&open("gate-1"));
    assert_eq!(orders.send(), [waiting("a")]);
}

#[test]
fn of_the_conditions_that_are_due_the_one_that_has_waited_longest_goes_first() {
    let mut orders = Orders::new();
    orders.give(unverified("a"));
    orders.now += SECOND;
    orders.give(verified("b"));
    orders.now += SECOND;
    orders.give(unverified("c"));
    orders.now += SECOND;
    orders.flood();
    assert_eq!(orders.count(), [MAIN, 0, 0, 0, 0, 0]);
    orders.now += Lane::Verified.yields_for();
    for (number, due) in [unverified("a"), verified("b"), unverified("c")].into_iter().enumerate() {
        orders.answered(&open(&format!("gate-{number}")));
        assert_eq!(orders.send(), [due]);
    }
}

#[test]
fn conditions_of_nodes_that_wait_do_not_keep_events_and_removals_waiting() {
    let mut orders = Orders::new();
    for number in 0..100 {
        orders.give(unverified(&format!("n{number}")));
    }
    orders.give(event("a"));
    orders.give(removal("b"));
    assert_eq!(orders.count(), [0, 0, CONDITIONS, 0, 1, 1]);
}

/// Many gates open, and the API server is slow: it answers one write after another.
struct Rush {
    orders: Orders,
    server: VecDeque<Action>,
    opened: Vec<Option<Timestamp>>,
    condition_lags: Vec<SignedDuration>,
    removed: usize,
    events: usize,
    dropped: usize,
}

const NODES: usize = 10_000;
/// Writes that the API server answers each second, and workers that end each second.
const ANSWERS: i32 = 150;
const ENDS: usize = 100;

impl Rush {
    fn new() -> Self {
        let (orders, server) = (Orders::new(), VecDeque::new());
        let (opened, condition_lags) = (vec![None; NODES], Vec::new());
        Self { orders, server, opened, condition_lags, removed: 0, events: 0, dropped: 0 }
    }

    fn is_over(&self) -> bool {
        self.removed == NODES && self.events + self.dropped == NODES
    }

    /// Does what the loop does: gives orders again that are too old, then sends as much as possible.
    fn turn(&mut self) {
        for late in self.orders.queue.take_back_late(self.orders.now) {
            self.orders.take(late.order.action.clone(), Some(&late));
        }
        self.dropped += self.orders.queue.drop_old_events(self.orders.now);
        let sent = self.orders.send();
        self.server.extend(sent);
    }

    fn answer(&mut self) {
        let Some(action) = self.server.pop_front() else { return };
        self.orders.answered(&action);
        let name = action.node().name.as_str();
        let number: usize = name.parse().unwrap();
        match Lane::of(&action) {
            Lane::Gate => {
                self.opened[number] = Some(self.orders.now);
                self.orders.give(event(name));
                self.orders.give(verified(name));
            }
            Lane::Verified => {
                self.condition_lags.push(self.orders.now.duration_since(self.opened[number].unwrap()));
                self.orders.give(removal(name));
            }
            Lane::Removal => self.removed += 1,
            Lane::Event => self.events += 1,
            Lane::Deletion | Lane::Step | Lane::Unverified | Lane::Waiting => {
                unreachable!("there are none")
            }
        }
    }
}

#[test]
fn only_the_orders_of_the_given_nodes_are_taken_back() {
    let mut orders = Orders::new();
    for name in ["a", "b", "c"] {
        orders.give(start(name));
    }
    let names: [NodeName; 2] = ["a".into(), "x".into()];
    let taken = orders.queue.take_back(names.iter());
    assert_eq!(taken.iter().map(|taken| &taken.order.action).collect::<Vec<_>>(), [&start("a")]);
    assert_eq!(orders.send(), [start("b"), start("c")]);
}

#[test]
fn ten_thousand_openings_at_a_hundred_a_second_delay_no_condition_by_a_minute() {
    let (mut rush, start) = (Rush::new(), noon());
    let mut ended = 0;
    while !rush.is_over() {
        let due = usize::try_from(rush.orders.now.duration_since(start).as_millis()).unwrap() * ENDS / 1000;
        while ended < NODES.min(due) {
            rush.orders.give(open(&ended.to_string()));
            ended += 1;
        }
        rush.turn();
        rush.orders.now += SECOND / ANSWERS;
        rush.answer();
        assert!(rush.orders.now < start + 600 * SECOND, "{} removed, {} events", rush.removed, rush.events);
    }
    let latest = rush.condition_lags.iter().max().unwrap();
    assert!(*latest < 60 * SECOND, "a condition came {latest:?} after its opening");
    assert_eq!(rush.condition_lags.len(), NODES);
    assert!(rush.dropped > 0, "events are what is dropped");
}

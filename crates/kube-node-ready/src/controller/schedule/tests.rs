use std::collections::VecDeque;

use tokio::time::advance;

use super::super::testing::{deletion_event, event, node, open, order, removal, start, verified};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct Orders {
    schedule: Schedule,
    next_ticket: u64,
}

impl Orders {
    fn new() -> Self {
        Self { schedule: Schedule::new(), next_ticket: 0 }
    }

    fn give(&mut self, action: Action) {
        match Lane::of(&action) {
            Lane::Deletion | Lane::Event => self.schedule.tell(action),
            Lane::Gate | Lane::Step | Lane::Condition | Lane::Removal => {
                self.next_ticket += 1;
                self.schedule.take(order(self.next_ticket, action), None);
            }
        }
    }

    fn send(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.schedule.next()).map(|next| next.order.action).collect()
    }

    /// How many of each lane are sent now.
    fn count(&mut self) -> [usize; 5] {
        let sent = self.send();
        [Lane::Gate, Lane::Step, Lane::Condition, Lane::Removal, Lane::Event]
            .map(|wanted| sent.iter().filter(|action| Lane::of(action) == wanted).count())
    }

    /// Many of each lane.
    fn flood(&mut self) {
        for number in 0..100 {
            self.give(open(&format!("gate-{number}")));
            self.give(start(&format!("step-{number}")));
            self.give(verified(&format!("condition-{number}")));
            self.give(removal(&format!("removal-{number}")));
            self.give(event(&format!("event-{number}")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gates_go_first_and_nothing_else_while_they_do() {
    let mut orders = Orders::new();
    orders.give(start("a"));
    orders.flood();
    assert_eq!(orders.count(), [MAIN, 0, 0, 0, 0]);
    orders.schedule.answered(&open("gate-0"));
    assert_eq!(orders.count(), [1, 0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_reports_a_deletion_does_not_wait_for_gates() {
    let mut orders = Orders::new();
    orders.flood();
    orders.give(deletion_event("a"));
    assert_eq!(orders.send().first(), Some(&deletion_event("a")));
}

#[tokio::test(start_paused = true)]
async fn when_it_is_quiet_a_few_of_the_others_go_conditions_first() {
    let mut orders = Orders::new();
    orders.give(open("a"));
    assert_eq!(orders.count(), [1, 0, 0, 0, 0]);
    for name in ["b", "c"] {
        orders.give(verified(name));
        orders.give(event(name));
    }
    orders.give(removal("d"));
    advance(SECOND).await;
    assert_eq!(orders.send(), [], "a gate is under way");
    orders.schedule.answered(&open("a"));
    assert_eq!(orders.send(), [], "another one may follow");
    let quiet = Instant::now() + QUIET;
    assert_eq!(orders.schedule.wake(), Some(quiet));
    advance(QUIET).await;
    assert_eq!(orders.send(), [verified("b"), verified("c"), event("b"), event("c"), removal("d")]);
    for number in 0..20 {
        orders.give(verified(&format!("n{number}")));
    }
    assert_eq!(orders.count(), [0, 0, SPARE - 5, 0, 0]);
    assert_eq!(orders.schedule.in_flight(), SPARE);
}

#[tokio::test(start_paused = true)]
async fn conditions_that_are_due_share_the_places_with_gates() {
    let mut orders = Orders::new();
    orders.flood();
    assert_eq!(orders.count(), [MAIN, 0, 0, 0, 0]);
    advance(CONDITION_DUE).await;
    assert_eq!(orders.count(), [0; 5], "no place is free, and events go last");
    for number in 0..MAIN {
        orders.schedule.answered(&open(&format!("gate-{number}")));
    }
    assert_eq!(orders.count(), [MAIN - CONDITIONS, 0, CONDITIONS, 0, 0]);
    advance(REMOVAL_DUE).await;
    assert_eq!(orders.count(), [0, 0, 0, SPARE, 0], "removals have places of their own");
}

#[tokio::test(start_paused = true)]
async fn events_that_are_due_go_while_gates_open_unless_these_take_all_places() {
    let mut orders = Orders::new();
    orders.give(event("a"));
    orders.give(open("a"));
    assert_eq!(orders.count(), [1, 0, 0, 0, 0]);
    assert_eq!(orders.schedule.wake(), Some(Instant::now() + EVENT_DUE));
    advance(EVENT_DUE).await;
    assert_eq!(orders.count(), [0, 0, 0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_gets_too_old_wakes_the_loop() {
    let mut orders = Orders::new();
    orders.give(removal("a"));
    orders.give(open("b"));
    assert_eq!(orders.count(), [1, 0, 0, 0, 0]);
    assert_eq!(orders.schedule.wake(), Some(Instant::now() + 30 * SECOND));
    advance(30 * SECOND).await;
    assert_eq!(orders.schedule.take_back_late().len(), 1);
    assert_eq!(orders.schedule.wake(), None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_after_it_is_cleared() {
    let mut orders = Orders::new();
    orders.flood();
    assert_eq!(orders.schedule.waiting(), 500);
    assert_eq!(orders.schedule.clear(), 100);
    assert_eq!((orders.schedule.waiting(), orders.count()), (0, [0; 5]));
    assert!(orders.schedule.take_back([node("gate-0").name].iter()).is_empty());
}

/// Many gates open, and the API server is slow: it answers one write after another.
struct Rush {
    orders: Orders,
    server: VecDeque<Action>,
    opened: Vec<Option<Instant>>,
    condition_lags: Vec<Duration>,
    removed: usize,
    events: usize,
    dropped: usize,
}

const NODES: usize = 10_000;
/// The API server answers so many writes a second, and so many workers end.
const ANSWERS: u32 = 150;
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

    /// What the loop does: orders that are too old are given again, then as much is sent as may be.
    fn turn(&mut self) {
        for late in self.orders.schedule.take_back_late() {
            self.orders.next_ticket += 1;
            let again = order(self.orders.next_ticket, late.order.action.clone());
            self.orders.schedule.take(again, Some(&late));
        }
        self.dropped += self.orders.schedule.drop_old_events();
        let sent = self.orders.send();
        self.server.extend(sent);
    }

    fn answer(&mut self) {
        let Some(action) = self.server.pop_front() else { return };
        self.orders.schedule.answered(&action);
        let name = action.node().name.as_str();
        let number: usize = name.parse().unwrap();
        match Lane::of(&action) {
            Lane::Gate => {
                self.opened[number] = Some(Instant::now());
                self.orders.give(event(name));
                self.orders.give(verified(name));
            }
            Lane::Condition => {
                self.condition_lags.push(self.opened[number].unwrap().elapsed());
                self.orders.give(removal(name));
            }
            Lane::Removal => self.removed += 1,
            Lane::Event => self.events += 1,
            Lane::Deletion | Lane::Step => unreachable!("there are none"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_openings_at_a_hundred_a_second_delay_no_condition_by_a_minute() {
    let (mut rush, start) = (Rush::new(), Instant::now());
    let mut ended = 0;
    while !rush.is_over() {
        let due = usize::try_from(start.elapsed().as_millis()).unwrap() * ENDS / 1000;
        while ended < NODES.min(due) {
            rush.orders.give(open(&ended.to_string()));
            ended += 1;
        }
        rush.turn();
        advance(SECOND / ANSWERS).await;
        rush.answer();
        assert!(start.elapsed() < 600 * SECOND, "{} removed, {} events", rush.removed, rush.events);
    }
    let latest = rush.condition_lags.iter().max().unwrap();
    assert!(*latest < 60 * SECOND, "a condition came {latest:?} after its opening");
    assert_eq!(rush.condition_lags.len(), NODES);
    assert!(rush.dropped > 0, "events are what is given up");
}

//! Orders on their way to the API server, and nothing at all without the right to write.

use std::sync::Arc;
use std::time::Duration;

use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::{Order, Outcome};
use knr_k8s::act::Actor;
use knr_k8s::lease::Leadership;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::queue::{Queue, Room, Urgency, Waiting};
use crate::clock::Clock;
use crate::pace;

/// Requests under way at most.
const AT_ONCE: usize = 50;
/// Of these, requests that nobody waits for.
const IN_THE_BACKGROUND: usize = 8;
/// They come once nothing else was under way for this long. Where many gates open one after another, a request that nobody
/// waits for would take the API server's time from the next gate.
const QUIET: Duration = Duration::from_millis(250);
/// An order without an answer that anybody waits for.
const NO_TICKET: u64 = u64::MAX;

/// What came of an order.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) order: Order,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

/// Orders that wait and orders that are under way.
pub(super) struct Writers {
    actor: Actor,
    clock: Clock,
    answers: mpsc::UnboundedSender<Answer>,
    queue: Queue,
    in_flight: usize,
    in_background: usize,
    /// When something that somebody waits for was last begun or answered.
    busy: Instant,
}

impl Writers {
    /// Nothing waits yet. Answers go to the returned channel.
    pub(super) fn new(actor: Actor, clock: Clock) -> (Self, mpsc::UnboundedReceiver<Answer>) {
        let (answers, received) = mpsc::unbounded_channel();
        let (queue, busy) = (Queue::default(), Instant::now());
        (Self { actor, clock, answers, queue, in_flight: 0, in_background: 0, busy }, received)
    }

    /// Takes an order.
    pub(super) fn take(&mut self, order: Order) {
        self.queue.take(order);
    }

    /// Takes something to tell, of which no answer is expected.
    pub(super) fn tell(&mut self, action: Action) {
        self.take(Order { ticket: NO_TICKET, action });
    }

    /// How many wait, and how many are under way.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.queue.len(), self.in_flight)
    }

    /// Sends as many as may be under way at once, the urgent ones first.
    pub(super) fn dispatch(&mut self, leadership: &Leadership, config: &Arc<Config>) {
        let Leadership::Leading { until } = *leadership else { return self.give_up_all() };
        if until <= Instant::now() {
            return self.give_up_all();
        }
        for order in self.queue.drain_late() {
            self.give_up(order);
        }
        let before = self.in_flight;
        while self.in_flight < AT_ONCE
            && let Some(next) = self.queue.next(self.room())
        {
            self.send(next, until, config);
        }
        if (before + 1..AT_ONCE).contains(&self.in_flight) {
            pace::sent();
        }
    }

    /// Whether all that is under way is such that nobody waits for it.
    pub(super) fn is_unhurried(&self) -> bool {
        self.in_flight > 0 && self.in_flight == self.in_background
    }

    /// When to dispatch again, even if nothing happens until then.
    pub(super) fn wake(&self) -> Option<Instant> {
        let waits = self.queue.has_background() && self.in_flight == self.in_background;
        (waits && self.in_background < IN_THE_BACKGROUND).then_some(self.busy + QUIET)
    }

    fn room(&self) -> Room {
        if self.in_background >= IN_THE_BACKGROUND {
            Room::Foreground
        } else if self.in_flight > self.in_background || self.busy.elapsed() < QUIET {
            Room::Patient
        } else {
            Room::Anything
        }
    }

    fn send(&mut self, next: Waiting, until: Instant, config: &Arc<Config>) {
        let Waiting { order, since } = next;
        self.begin(&order);
        let (actor, answers, config) = (self.actor.clone(), self.answers.clone(), Arc::clone(config));
        // What is told is told of the time when it was decided.
        let decided = self.clock.at(since);
        tokio::spawn(async move {
            let began = Instant::now();
            // The process may have been frozen since it was decided to send this.
            let left = until.saturating_duration_since(began);
            let outcome = if left.is_zero() {
                Outcome::Unavailable
            } else {
                let deadline = began + config.kubernetes.request_timeout().min(left);
                actor.carry_out(&order.action, &config, decided, deadline).await
            };
            // Without a receiver the process is ending.
            let _ = answers.send(Answer { order, outcome, took: began.elapsed() });
        });
    }

    fn begin(&mut self, order: &Order) {
        self.in_flight += 1;
        match Urgency::of(&order.action) {
            Urgency::Urgent | Urgency::Usual => self.busy = Instant::now(),
            Urgency::Background => self.in_background += 1,
        }
    }

    /// Notes that an answer has come.
    pub(super) fn landed(&mut self, answer: &Answer) {
        self.in_flight -= 1;
        match Urgency::of(&answer.order.action) {
            Urgency::Urgent | Urgency::Usual => self.busy = Instant::now(),
            Urgency::Background => self.in_background -= 1,
        }
    }

    /// Sends nothing of what waits.
    pub(super) fn give_up_all(&mut self) {
        for order in self.queue.drain() {
            self.give_up(order);
        }
    }

    /// What was not sent was not carried out, and is said to be so.
    fn give_up(&mut self, order: Order) {
        self.begin(&order);
        let _ = self.answers.send(Answer { order, outcome: Outcome::Unavailable, took: Duration::ZERO });
    }
}

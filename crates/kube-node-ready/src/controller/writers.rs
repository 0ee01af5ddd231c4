//! Orders on their way to the API server: what opens a gate first, what only tells of it last, and nothing at all without
//! the right to write.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::{LONGEST_QUEUE, Order, Outcome};
use knr_k8s::act::Actor;
use knr_k8s::lease::Leadership;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::clock::Clock;

/// Requests under way at most.
const AT_ONCE: usize = 50;
/// Of these, requests that nobody waits for. They come between others, not before them.
const IN_THE_BACKGROUND: usize = 8;
/// An order without an answer that anybody waits for.
const NO_TICKET: u64 = u64::MAX;

/// What came of an order.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) order: Order,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    background: bool,
}

/// Orders that wait and orders that are under way.
pub(super) struct Writers {
    actor: Actor,
    clock: Clock,
    answers: mpsc::UnboundedSender<Answer>,
    urgent: VecDeque<Waiting>,
    usual: VecDeque<Waiting>,
    background: VecDeque<Waiting>,
    in_flight: usize,
    background_in_flight: usize,
}

struct Waiting {
    order: Order,
    since: Instant,
}

/// How urgent an action is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Urgency {
    /// Work waits for it, or must be kept away.
    Urgent,
    /// It brings the next step.
    Usual,
    /// Nothing waits for it.
    Background,
}

fn urgency(action: &Action) -> Urgency {
    match action {
        Action::OpenGate { .. } | Action::CloseGate { .. } => Urgency::Urgent,
        Action::StartWorker { .. }
        | Action::Record { .. }
        | Action::ReserveDeletion { .. }
        | Action::DeleteNode { .. } => Urgency::Usual,
        Action::RemoveWorker { .. } | Action::SetCondition { .. } | Action::Tell { .. } => {
            Urgency::Background
        }
    }
}

impl Writers {
    /// Nothing waits yet. Answers go to the returned channel.
    pub(super) fn new(actor: Actor, clock: Clock) -> (Self, mpsc::UnboundedReceiver<Answer>) {
        let (answers, received) = mpsc::unbounded_channel();
        let writers = Self {
            actor,
            clock,
            answers,
            urgent: VecDeque::new(),
            usual: VecDeque::new(),
            background: VecDeque::new(),
            in_flight: 0,
            background_in_flight: 0,
        };
        (writers, received)
    }

    /// Takes an order.
    pub(super) fn take(&mut self, order: Order) {
        let queue = match urgency(&order.action) {
            Urgency::Urgent => &mut self.urgent,
            Urgency::Usual => &mut self.usual,
            Urgency::Background => &mut self.background,
        };
        queue.push_back(Waiting { order, since: Instant::now() });
    }

    /// Takes something to tell, of which no answer is expected.
    pub(super) fn tell(&mut self, action: Action) {
        self.take(Order { ticket: NO_TICKET, action });
    }

    /// How many wait, and how many are under way.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.urgent.len() + self.usual.len() + self.background.len(), self.in_flight)
    }

    /// Sends as many as may be under way at once, the urgent ones first.
    pub(super) fn dispatch(&mut self, leadership: &Leadership, config: &Arc<Config>) {
        let now = Instant::now();
        let Leadership::Leading { until } = *leadership else { return self.drop_all() };
        if until <= now {
            return self.drop_all();
        }
        self.drop_late(now);
        while self.in_flight < AT_ONCE
            && let Some(next) = self.next()
        {
            self.send(next.order, until, config);
        }
    }

    fn next(&mut self) -> Option<Waiting> {
        if let Some(next) = self.urgent.pop_front().or_else(|| self.usual.pop_front()) {
            return Some(next);
        }
        let has_room = self.background_in_flight < IN_THE_BACKGROUND;
        self.background.pop_front_if(|_| has_room)
    }

    fn send(&mut self, order: Order, until: Instant, config: &Arc<Config>) {
        let background = urgency(&order.action) == Urgency::Background;
        self.in_flight += 1;
        self.background_in_flight += usize::from(background);
        let (actor, answers, config) = (self.actor.clone(), self.answers.clone(), Arc::clone(config));
        let clock = self.clock;
        tokio::spawn(async move {
            let began = Instant::now();
            let left = until.saturating_duration_since(began);
            let limit = config.kubernetes.request_timeout().min(left);
            let outcome = if left.is_zero() {
                Outcome::Unavailable
            } else {
                actor.carry_out(&order.action, &config, clock.now(), limit).await
            };
            // Without a receiver the process is ending.
            let _ = answers.send(Answer { order, outcome, took: began.elapsed(), background });
        });
    }

    /// Notes that an answer has come.
    pub(super) fn landed(&mut self, answer: &Answer) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.background_in_flight = self.background_in_flight.saturating_sub(usize::from(answer.background));
    }

    /// What cannot be sent was not carried out, and is said to be so.
    fn drop_all(&mut self) {
        let all = self.urgent.drain(..).chain(self.usual.drain(..)).chain(self.background.drain(..));
        let all: Vec<Waiting> = all.collect();
        for waiting in all {
            self.give_up(waiting.order);
        }
    }

    /// The rules look into an order that has waited for too long, so it must not be sent any more.
    fn drop_late(&mut self, now: Instant) {
        let longest = Duration::try_from(LONGEST_QUEUE).unwrap_or_default();
        let mut late = Vec::new();
        for queue in [&mut self.urgent, &mut self.usual, &mut self.background] {
            while let Some(waiting) =
                queue.pop_front_if(|waiting| now.duration_since(waiting.since) >= longest)
            {
                late.push(waiting.order);
            }
        }
        for order in late {
            self.give_up(order);
        }
    }

    fn give_up(&mut self, order: Order) {
        self.in_flight += 1;
        let answer = Answer { order, outcome: Outcome::Unavailable, took: Duration::ZERO, background: false };
        let _ = self.answers.send(answer);
    }
}

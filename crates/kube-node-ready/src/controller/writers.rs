//! Orders on their way to the API server, and nothing at all without the right to write.

use std::sync::Arc;
use std::time::Duration;

use knr_core::engine::{Order, Outcome};
use knr_core::policy::Policies;
use knr_k8s::act::Actor;
use knr_k8s::lease::Leadership;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::queue::Waiting;
use super::schedule::Schedule;
use crate::clock::Clock;
use crate::journal;

/// What came of a write that was sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) order: Order,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

/// Sends what is scheduled.
pub(super) struct Writers {
    actor: Actor,
    clock: Clock,
    answers: mpsc::UnboundedSender<Answer>,
    pub(super) schedule: Schedule,
}

impl Writers {
    /// Nothing waits yet. Answers go to the returned channel.
    pub(super) fn new(actor: Actor, clock: Clock) -> (Self, mpsc::UnboundedReceiver<Answer>) {
        let (answers, received) = mpsc::unbounded_channel();
        (Self { actor, clock, answers, schedule: Schedule::new() }, received)
    }

    /// Sends as many as may be under way at once. Without the right to write all of them wait, until they are too old.
    pub(super) fn dispatch(&mut self, leadership: &Leadership, policies: &Arc<Policies>, timeout: Duration) {
        let Leadership::Leading { until } = *leadership else { return };
        if until <= Instant::now() {
            return;
        }
        while let Some(next) = self.schedule.next() {
            self.send(next, until, policies, timeout);
        }
    }

    fn send(&self, next: Waiting, until: Instant, policies: &Arc<Policies>, timeout: Duration) {
        let Waiting { order, since, .. } = next;
        journal::sending(&order.action);
        let (actor, answers, policies) = (self.actor.clone(), self.answers.clone(), Arc::clone(policies));
        // Conditions and events bear the time when what they report was decided.
        let decided = self.clock.at(since);
        tokio::spawn(async move {
            let began = Instant::now();
            // The process may have been frozen since it was decided to send this.
            let left = until.saturating_duration_since(began);
            let outcome = if left.is_zero() {
                Outcome::Unavailable
            } else {
                let deadline = began + timeout.min(left);
                actor.carry_out(&order.action, &policies, decided, deadline).await
            };
            // Without a receiver the process is ending.
            let _ = answers.send(Answer { order, outcome, took: began.elapsed() });
        });
    }
}

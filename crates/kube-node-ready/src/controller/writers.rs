//! Sends orders to the API server, and nothing at all unless this replica leads.

use std::sync::Arc;
use std::time::Duration;

use knr_core::engine::Outcome;
use knr_core::policy::Policies;
use knr_core::queue::{Capacity, Queue, QueuedWrite};
use knr_k8s::act::Actor;
use knr_k8s::lease::Leadership;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::journal;

/// The outcome of a write that was sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) sent: QueuedWrite,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

/// A write that is no longer in flight.
#[derive(Debug)]
pub(super) enum Ended {
    Answered(Answer),
    /// It was not sent, because the lease had expired by then.
    Unsent(QueuedWrite),
}

/// Sends the queued writes.
pub(super) struct Writers {
    actor: Actor,
    clock: Clock,
    ended: mpsc::UnboundedSender<Ended>,
    pub(super) queue: Queue,
}

impl Writers {
    /// Starts with an empty queue. Every write that was sent comes back through the returned channel.
    pub(super) fn new(actor: Actor, clock: Clock) -> (Self, mpsc::UnboundedReceiver<Ended>) {
        let (ended, received) = mpsc::unbounded_channel();
        (Self { actor, clock, ended, queue: Queue::new(Capacity::default()) }, received)
    }

    /// Sends as many writes as may be in flight at once. Without leadership all of them wait, until they are too old.
    pub(super) fn dispatch(&mut self, leadership: &Leadership, policies: &Arc<Policies>, timeout: Duration) {
        let Leadership::Leading { until } = *leadership else { return };
        if until <= Instant::now() {
            return;
        }
        while let Some(next) = self.queue.next(self.clock.now()) {
            self.send(next, until, policies, timeout);
        }
    }

    fn send(&self, next: QueuedWrite, until: Instant, policies: &Arc<Policies>, timeout: Duration) {
        let (actor, ended, policies) = (self.actor.clone(), self.ended.clone(), Arc::clone(policies));
        tokio::spawn(async move {
            let began = Instant::now();
            // The process may have been suspended since the decision to send this.
            let left = until.saturating_duration_since(began);
            let end = if left.is_zero() {
                Ended::Unsent(next)
            } else {
                let action = &next.order.action;
                journal::sending(action);
                let deadline = began + timeout.min(left);
                // Conditions and events carry the time at which the change that they report was decided.
                let outcome = actor.carry_out(action, &policies, next.since, deadline).await;
                Ended::Answered(Answer { sent: next, outcome, took: began.elapsed() })
            };
            // Without a receiver the process is ending.
            let _ = ended.send(end);
        });
    }
}

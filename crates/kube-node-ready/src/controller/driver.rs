//! The loop: facts, answers and time in; orders and questions out. It alone owns the engine, so no two decisions are
//! ever made concurrently.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::{Engine, Outcome, Plan};
use knr_core::ids::NodeName;
use knr_core::queue::QueuedWrite;
use knr_core::world::Fact;
use knr_k8s::lease::Leadership;
use knr_web::{Health, Leader, Metrics, Vital, WorkerCounts};
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::readers::Readers;
use super::recorder::Recorder;
use super::watches::Watches;
use super::writers::{Answer, Ended, Writers};
use crate::clock::Clock;

/// Facts that are taken in one batch.
const BATCH: usize = 512;
/// The loop runs at least this often, to show that it is not stuck.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Writes in flight may take this long after the stop signal.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// The inputs of the loop.
pub(super) struct Inputs {
    pub(super) facts: mpsc::Receiver<Fact>,
    pub(super) ended: mpsc::UnboundedReceiver<Ended>,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) config: watch::Receiver<Arc<Config>>,
    pub(super) stop: CancellationToken,
}

/// The state of the writes in flight when the loop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    /// All of them were answered.
    All,
    /// Some may still be carried out.
    NotAll,
}

/// The loop.
pub(super) struct Driver {
    pub(super) engine: Engine,
    pub(super) clock: Clock,
    pub(super) config: Arc<Config>,
    pub(super) writers: Writers,
    pub(super) readers: Readers,
    pub(super) watches: Watches,
    pub(super) recorder: Recorder,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Health,
    pub(super) pulse: Vital,
    pub(super) leadership: Leadership,
    pub(super) wake: Option<Instant>,
}

impl Driver {
    /// Runs until the stop signal, then waits for the writes in flight.
    pub(super) async fn run(mut self, mut inputs: Inputs) -> Drained {
        let mut facts = Vec::with_capacity(BATCH);
        loop {
            let heartbeat = Instant::now() + HEARTBEAT;
            let wake = self.wake.map_or(heartbeat, |wake| wake.min(heartbeat));
            tokio::select! {
                biased;
                () = inputs.stop.cancelled() => break,
                Ok(()) = inputs.leadership.changed() => {
                    let leadership = inputs.leadership.borrow_and_update().clone();
                    self.lead_or_stand_by(leadership);
                }
                Ok(()) = inputs.config.changed() => {
                    let config = Arc::clone(&inputs.config.borrow_and_update());
                    self.configure(config, &mut inputs.facts).await;
                }
                Some(ended) = inputs.ended.recv() => self.settle(ended),
                _ = inputs.facts.recv_many(&mut facts, BATCH) => self.learn(&mut facts),
                () = sleep_until(wake) => {}
            }
            self.take_all(&mut inputs).await;
            self.turn();
        }
        self.finish(inputs).await
    }

    /// Takes everything else that has arrived: decisions need all of it, and a turn costs the same for one input as for
    /// many.
    async fn take_all(&mut self, inputs: &mut Inputs) {
        yield_now().await;
        for _ in 0..BATCH {
            let Ok(fact) = inputs.facts.try_recv() else { break };
            self.engine.learn(fact, self.clock.now());
        }
        while let Ok(ended) = inputs.ended.try_recv() {
            self.settle(ended);
        }
    }

    fn learn(&mut self, facts: &mut Vec<Fact>) {
        let now = self.clock.now();
        for fact in facts.drain(..) {
            self.engine.learn(fact, now);
        }
    }

    fn settle(&mut self, ended: Ended) {
        let now = self.clock.now();
        match ended {
            Ended::Answered(answer) => {
                let action = &answer.sent.order.action;
                self.writers.queue.answered(action, now);
                let policy = self.engine.policy(&action.node().name);
                self.recorder.answer(&answer, &policy.verified_label);
                let Answer { sent, outcome, .. } = answer;
                let is_taken = !matches!(outcome, Outcome::Unavailable | Outcome::Unknown);
                for event in self.engine.settle(&sent.order, outcome, now) {
                    self.report(event, now);
                }
                if !is_taken && matches!(sent.order.action, Action::SendEvent { .. }) {
                    self.event_not_taken(sent, now);
                }
            }
            Ended::Unsent(write) => {
                self.writers.queue.answered(&write.order.action, now);
                if let Action::SendEvent { .. } = write.order.action {
                    self.event_not_sent(write);
                } else {
                    self.recorder.late_orders(1);
                    self.engine.withdraw(&write.order);
                }
            }
        }
    }

    fn report(&mut self, event: Action, now: Timestamp) {
        if self.may_report(&event) {
            self.writers.queue.report(event, now);
        } else {
            self.recorder.dropped_events(1);
        }
    }

    fn event_not_sent(&mut self, event: QueuedWrite) {
        if self.may_report(&event.order.action) {
            self.writers.queue.put_back(event);
        } else {
            self.recorder.dropped_events(1);
        }
    }

    /// While nothing may be written, only deletions are reported.
    fn may_report(&self, event: &Action) -> bool {
        let settings = &self.config.reconciliation;
        event.reports_deletion() || !(settings.paused || settings.dry_run)
    }

    /// Nothing else shows for long that a node was deleted, so its event is sent again. Any other event is given up.
    fn event_not_taken(&mut self, event: QueuedWrite, now: Timestamp) {
        let reports_deletion = event.order.action.reports_deletion();
        if !reports_deletion || !self.writers.queue.send_again(event, now) {
            self.recorder.dropped_events(1);
        }
    }

    fn lead_or_stand_by(&mut self, leadership: Leadership) {
        let led = matches!(self.leadership, Leadership::Leading { .. });
        let leads = matches!(leadership, Leadership::Leading { .. });
        self.leadership = leadership;
        match (led, leads) {
            (false, true) => {
                self.engine.lead();
                self.recorder.leading(Leader::Yes);
            }
            (true, false) => {
                self.drop_unsent();
                self.engine.stand_by();
                self.recorder.leading(Leader::No);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Applies a changed configuration. Every node is decided again, so all unsent orders are taken back before anything
    /// is sent.
    async fn configure(&mut self, config: Arc<Config>, facts: &mut mpsc::Receiver<Fact>) {
        let deleted_nodes = self.engine.policies().delete_nodes();
        self.engine.configure(&config);
        self.watches.keep_only(self.engine.feeds()).await;
        // The engine ignores facts from watches that have ended. If they stayed in the channel, it would take them for
        // facts from a later watch of the same feed.
        while let Ok(fact) = facts.try_recv() {
            self.engine.learn(fact, self.clock.now());
        }
        self.watches.begin(self.engine.feeds());
        if config.reconciliation.dry_run || config.reconciliation.paused {
            self.recorder.dropped_events(self.writers.queue.drop_events());
        }
        if self.engine.policies().delete_nodes() && !deleted_nodes {
            self.readers.read_ledger(config.kubernetes.request_timeout());
        }
        self.metrics.set_per_node(config.metrics.per_node);
        self.config = config;
    }

    /// Drops everything that has not been sent, except reports of deletions. The rules learn of it, because the nodes of
    /// orders that were never sent need not be read again.
    fn drop_unsent(&mut self) {
        let queue = &mut self.writers.queue;
        for unsent in queue.take_back_all() {
            self.engine.withdraw(&unsent.order);
        }
        self.recorder.dropped_events(queue.drop_events());
    }

    /// Takes back unsent orders whose node has changed since or can get a slot for its worker, and those that are too old.
    fn take_back(&mut self, now: Timestamp) -> BTreeMap<NodeName, QueuedWrite> {
        let queue = &mut self.writers.queue;
        let mut orders = queue.take_back_late(now);
        self.recorder.late_orders(orders.len());
        orders.extend(queue.take_back(self.engine.changed(now)));
        for waiting in &orders {
            self.engine.withdraw(&waiting.order);
        }
        orders.into_iter().map(|waiting| (waiting.order.action.node().name.clone(), waiting)).collect()
    }

    /// Makes all due decisions, and sends the resulting orders and questions.
    fn turn(&mut self) {
        let (now, began) = (self.clock.now(), Instant::now());
        let taken_back = self.take_back(now);
        let plan = self.engine.decide(now);
        self.pulse.beat();
        if plan.considered > 0 {
            self.metrics.decided(plan.considered, began.elapsed());
        }
        self.recorder.changes(&plan);
        if self.engine.knows_enough() {
            self.recorder.took_over();
        }
        let Plan { orders, questions, confirmed, wake, changes: _, considered: _, withheld: _ } = plan;
        for deletion in confirmed {
            self.recorder.confirmed(&deletion);
            deletion.events().into_iter().for_each(|event| self.report(event, now));
        }
        for order in orders {
            let before = taken_back.get(&order.action.node().name);
            self.writers.queue.take(order, before, now);
        }
        let timeout = self.config.kubernetes.request_timeout();
        for question in questions {
            self.readers.ask(question, timeout, &self.engine, &mut self.watches);
        }
        self.recorder.dropped_events(self.writers.queue.drop_old_events(now));
        self.dispatch();
        let wake = wake.into_iter().chain(self.writers.queue.wake(now)).min();
        self.wake = wake.map(|at| self.clock.instant(at));
        self.show();
    }

    fn dispatch(&mut self) {
        let timeout = self.config.kubernetes.request_timeout();
        self.writers.dispatch(&self.leadership, self.engine.policies(), timeout);
    }

    /// Keeps metrics and health up to date.
    fn show(&mut self) {
        let queue = &self.writers.queue;
        self.metrics.queue(queue.waiting(), queue.in_flight());
        self.recorder.summarize(queue.waiting());
        let leads = matches!(self.leadership, Leadership::Leading { .. });
        if leads {
            self.recorder.trouble(self.engine.trouble());
        }
        let counts = self.engine.world().worker_counts();
        self.metrics.workers(WorkerCounts {
            pending: counts.pending,
            running: counts.running,
            succeeded: counts.succeeded,
            failed: counts.failed,
        });
        if self.engine.knows_enough() {
            self.health.ready();
        } else {
            self.health.not_ready("reading the cluster");
        }
    }

    /// Decides nothing more, and waits for the writes in flight. Deletions are still reported while the lease lasts: no
    /// other replica knows of them.
    async fn finish(mut self, mut inputs: Inputs) -> Drained {
        self.health.not_ready("stopping");
        let deadline = Instant::now() + LAST_WRITES;
        loop {
            self.drop_unsent();
            self.dispatch();
            let in_flight = self.writers.queue.in_flight();
            let again = self.next_report().filter(|at| *at < deadline);
            if in_flight == 0 && again.is_none() {
                self.give_up();
                return Drained::All;
            }
            tokio::select! {
                biased;
                Ok(()) = inputs.leadership.changed() => {
                    self.leadership = inputs.leadership.borrow_and_update().clone();
                }
                Some(ended) = inputs.ended.recv() => self.settle(ended),
                () = sleep_until(again.unwrap_or(deadline)) => if again.is_none() {
                    tracing::warn!(in_flight, "stopped before all writes were answered");
                    self.give_up();
                    return Drained::NotAll;
                }
            }
        }
    }

    /// When a report of a deletion is sent again, if the lease lasts that long.
    fn next_report(&self) -> Option<Instant> {
        let Leadership::Leading { until } = self.leadership else { return None };
        let again = self.clock.instant(self.writers.queue.first_report()?);
        (Instant::now() < again && again < until).then_some(again)
    }

    /// Counts what will never be sent.
    fn give_up(&mut self) {
        self.recorder.dropped_events(self.writers.queue.drop_reports());
        self.recorder.summarize_all(self.writers.queue.waiting());
    }
}

#[cfg(test)]
mod tests;

//! The loop: facts, answers and time in; orders and questions out. It is the only one that knows the rules' engine, so
//! nothing is ever decided twice at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use knr_core::config::Config;
use knr_core::engine::{Engine, Plan};
use knr_core::ids::NodeName;
use knr_core::world::Fact;
use knr_k8s::lease::Leadership;
use knr_web::{Health, Leader, Metrics, Vital, WorkerCounts};
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::queue::Waiting;
use super::readers::Readers;
use super::recorder::Recorder;
use super::watches::Watches;
use super::writers::{Answer, Writers};
use crate::clock::Clock;

/// Facts that are learned before the next decision.
const BATCH: usize = 512;
/// The loop turns at least this often, to show that it does not stand still.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Writes that have been begun may take this long after we were told to stop.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// What the loop listens to.
pub(super) struct Inputs {
    pub(super) facts: mpsc::Receiver<Fact>,
    pub(super) answers: mpsc::UnboundedReceiver<Answer>,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) config: watch::Receiver<Arc<Config>>,
    pub(super) stop: CancellationToken,
}

/// Whether all writes that were begun have been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    /// All of them.
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
    /// Turns until it is told to stop, then waits for what has been begun.
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
                Some(answer) = inputs.answers.recv() => self.settle(answer),
                _ = inputs.facts.recv_many(&mut facts, BATCH) => self.learn(&mut facts),
                () = sleep_until(wake) => {}
            }
            self.take_all(&mut inputs).await;
            self.turn();
        }
        self.finish(inputs).await
    }

    /// Takes what came together with the first of it: decisions need all of it, and one turn costs as much as another.
    async fn take_all(&mut self, inputs: &mut Inputs) {
        yield_now().await;
        for _ in 0..BATCH {
            let Ok(fact) = inputs.facts.try_recv() else { break };
            self.engine.learn(fact, self.clock.now());
        }
        while let Ok(answer) = inputs.answers.try_recv() {
            self.settle(answer);
        }
    }

    fn learn(&mut self, facts: &mut Vec<Fact>) {
        let now = self.clock.now();
        for fact in facts.drain(..) {
            self.engine.learn(fact, now);
        }
    }

    fn settle(&mut self, answer: Answer) {
        self.writers.schedule.answered(&answer.order.action);
        self.recorder.answer(&answer, &self.config.node_management.verified_label);
        let Answer { order, outcome, .. } = answer;
        for event in self.engine.settle(&order, outcome, self.clock.now()) {
            self.writers.schedule.tell(event);
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
                self.engine.stand_by();
                self.recorder.leading(Leader::No);
                self.recorder.dropped_events(self.writers.schedule.clear());
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Takes up a changed configuration. What was watched for the last one is learned before, not after. Every node is
    /// decided about again, so all orders that have not been sent are taken back before anything is sent.
    async fn configure(&mut self, config: Arc<Config>, facts: &mut mpsc::Receiver<Fact>) {
        self.watches.leave(&config).await;
        while let Ok(fact) = facts.try_recv() {
            self.engine.learn(fact, self.clock.now());
        }
        if config.reconciliation.dry_run || config.reconciliation.paused {
            self.recorder.dropped_events(self.writers.schedule.drop_events());
        }
        let deletion = |config: &Config| config.node_management.delete_failed_nodes;
        if deletion(&config) && !deletion(&self.config) {
            self.readers.read_ledger(config.kubernetes.request_timeout());
        }
        self.metrics.set_per_node(config.metrics.per_node);
        self.watches.configure(&config);
        self.engine.configure(&config);
        self.config = config;
    }

    /// Takes back the orders that have not been sent and whose node has changed since, or that are too old.
    fn take_back(&mut self) -> BTreeMap<NodeName, Waiting> {
        let schedule = &mut self.writers.schedule;
        let mut orders = schedule.take_back_late();
        self.recorder.late_orders(orders.len());
        orders.extend(schedule.take_back(self.engine.changed()));
        for waiting in &orders {
            self.engine.withdraw(&waiting.order);
        }
        orders.into_iter().map(|waiting| (waiting.order.action.node().name.clone(), waiting)).collect()
    }

    /// Decides what is to be decided and sends it on its way.
    fn turn(&mut self) {
        let (now, began) = (self.clock.now(), Instant::now());
        let taken_back = self.take_back();
        let plan = self.engine.decide(now);
        self.pulse.beat();
        if plan.considered > 0 {
            self.metrics.decided(plan.considered, began.elapsed());
        }
        self.recorder.changes(&plan);
        let Plan { orders, questions, confirmed, wake, changes: _, considered: _, withheld: _ } = plan;
        for deletion in confirmed {
            self.recorder.confirmed(&deletion);
            deletion.events().into_iter().for_each(|event| self.writers.schedule.tell(event));
        }
        for order in orders {
            let before = taken_back.get(&order.action.node().name);
            self.writers.schedule.take(order, before);
        }
        let timeout = self.config.kubernetes.request_timeout();
        for question in questions {
            self.readers.ask(question, timeout, &self.engine, &mut self.watches);
        }
        self.recorder.dropped_events(self.writers.schedule.drop_old_events());
        self.writers.dispatch(&self.leadership, self.engine.policies(), timeout);
        let schedule = &self.writers.schedule;
        self.wake = wake.map(|at| self.clock.instant(at)).into_iter().chain(schedule.wake()).min();
        self.show();
    }

    /// Keeps metrics and health up to date.
    fn show(&mut self) {
        let schedule = &self.writers.schedule;
        self.metrics.queue(schedule.waiting(), schedule.in_flight());
        self.recorder.summarize(schedule.waiting());
        let leads = matches!(self.leadership, Leadership::Leading { .. });
        self.recorder.trouble(self.engine.trouble().filter(|_| leads));
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

    /// Nothing more is decided; what has been sent is waited for.
    async fn finish(mut self, mut inputs: Inputs) -> Drained {
        self.health.not_ready("stopping");
        let deadline = Instant::now() + LAST_WRITES;
        while self.writers.schedule.in_flight() > 0 {
            match timeout_at(deadline, inputs.answers.recv()).await {
                Ok(Some(answer)) => {
                    self.writers.schedule.answered(&answer.order.action);
                    self.recorder.answer(&answer, &self.config.node_management.verified_label);
                }
                Ok(None) => return Drained::NotAll,
                Err(_) => {
                    let in_flight = self.writers.schedule.in_flight();
                    tracing::warn!(in_flight, "stopped before all writes were answered");
                    return Drained::NotAll;
                }
            }
        }
        Drained::All
    }
}

#[cfg(test)]
mod tests;

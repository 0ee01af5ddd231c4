//! The loop: facts, answers and time in; orders and questions out. It is the only one that knows the rules' engine, so
//! nothing is ever decided twice at once.

use std::sync::Arc;
use std::time::Duration;

use knr_core::config::Config;
use knr_core::engine::{Engine, Plan};
use knr_core::world::Fact;
use knr_k8s::lease::Leadership;
use knr_web::{Health, Leader, Metrics, Vital, WorkerCounts};
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::readers::Readers;
use super::watches::Watches;
use super::witness::Witness;
use super::writers::{Answer, Writers};
use crate::clock::Clock;
use crate::pace;

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
pub(super) enum Landed {
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
    pub(super) witness: Witness,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Health,
    pub(super) pulse: Vital,
    pub(super) leadership: Leadership,
    pub(super) wake: Option<Instant>,
}

impl Driver {
    /// Turns until it is told to stop, then waits for what has been begun.
    pub(super) async fn run(mut self, mut inputs: Inputs) -> Landed {
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
        self.writers.landed(&answer);
        self.witness.answer(&answer);
        let Answer { order, outcome, .. } = answer;
        if let Some(tell) = self.engine.settle(&order, outcome, self.clock.now()) {
            self.writers.tell(tell);
        }
    }

    fn lead_or_stand_by(&mut self, leadership: Leadership) {
        let led = matches!(self.leadership, Leadership::Leading { .. });
        let leads = matches!(leadership, Leadership::Leading { .. });
        self.leadership = leadership;
        match (led, leads) {
            (false, true) => {
                self.engine.lead();
                self.witness.leading(Leader::Yes);
            }
            (true, false) => {
                self.engine.stand_by();
                self.witness.leading(Leader::No);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Takes up a changed configuration. What was watched for the last one is learned before, not after.
    async fn configure(&mut self, config: Arc<Config>, facts: &mut mpsc::Receiver<Fact>) {
        self.watches.leave(&config).await;
        while let Ok(fact) = facts.try_recv() {
            self.engine.learn(fact, self.clock.now());
        }
        let is_held = |config: &Config| config.reconciliation.dry_run || config.reconciliation.paused;
        if is_held(&config) && !is_held(&self.config) {
            self.writers.give_up_all();
        }
        let deletion = |config: &Config| config.node_management.delete_failed_nodes;
        if deletion(&config) && !deletion(&self.config) {
            self.readers.read_ledger(config.kubernetes.request_timeout());
        }
        self.metrics.set_per_node(config.metrics.per_node);
        self.watches.configure(&config);
        self.engine.configure(Config::clone(&config));
        self.config = config;
    }

    /// Decides what is to be decided and sends it on its way.
    fn turn(&mut self) {
        let (now, began) = (self.clock.now(), Instant::now());
        let plan = self.engine.decide(now);
        self.pulse.beat();
        let Plan { orders, questions, news, wake, considered, withheld: _ } = plan;
        if considered > 0 {
            self.metrics.decided(considered, began.elapsed());
        }
        for (node, explanation) in &news {
            self.witness.news(node, explanation.as_ref());
        }
        for order in orders {
            self.writers.take(order);
        }
        let live = self.engine.world().live_workers();
        for question in questions {
            self.readers.ask(question, &self.config, live);
        }
        self.writers.dispatch(&self.leadership, &self.config);
        pace::set_unhurried(self.writers.is_unhurried());
        self.wake = wake.map(|at| self.clock.instant(at)).into_iter().chain(self.writers.wake()).min();
        let (waiting, in_flight) = self.writers.load();
        self.metrics.queue(waiting, in_flight);
        let tally = self.engine.world().tally();
        self.metrics.workers(WorkerCounts {
            pending: tally.pending,
            running: tally.running,
            succeeded: tally.succeeded,
            failed: tally.failed,
        });
        if self.engine.knows_enough() {
            self.health.ready();
        } else {
            self.health.not_ready("reading the cluster");
        }
    }

    /// Nothing more is decided; what has been sent is waited for.
    async fn finish(mut self, mut inputs: Inputs) -> Landed {
        self.health.not_ready("stopping");
        let deadline = Instant::now() + LAST_WRITES;
        while self.writers.load().1 > 0 {
            match timeout_at(deadline, inputs.answers.recv()).await {
                Ok(Some(answer)) => {
                    self.writers.landed(&answer);
                    self.witness.answer(&answer);
                }
                Ok(None) => return Landed::NotAll,
                Err(_) => {
                    tracing::warn!(
                        in_flight = self.writers.load().1,
                        "stopped before all writes were answered"
                    );
                    return Landed::NotAll;
                }
            }
        }
        Landed::All
    }
}

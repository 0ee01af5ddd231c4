//! The loop: facts about the node in; writes, reads and runs of the checks out.

mod reads;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::{Engine, Order, Outcome, Question};
use knr_core::explain::{Access, Phase};
use knr_core::ids::{NodeRef, Version};
use knr_core::report::Report;
use knr_core::view::NodeView;
use knr_core::world::{Fact, Source};
use knr_k8s::act::Actor;
use knr_k8s::api::{Api, Failed};
use knr_web::{Health, NodeMetrics, Vital};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Checks;
use super::monitor::{Judgement, Monitor, Monitoring};
use super::runs::Runs;
use crate::clock::Clock;
use crate::journal::{self, Refusals};

/// The loop runs at least this often, to show that it is not stuck.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The loop counts as stuck if it does not run for this long.
const STANDS_STILL: Duration = Duration::from_mins(1);
/// The writes that follow from the last result may take this long after the stop signal.
const LAST_WRITES: Duration = Duration::from_secs(8);

/// The parts that the loop is made of.
pub(super) struct Parts {
    pub(super) api: Api,
    pub(super) config: Config,
    pub(super) identity: String,
    pub(super) checks: Checks,
    pub(super) metrics: Arc<NodeMetrics>,
    pub(super) health: Health,
    pub(super) monitoring: Option<Monitoring>,
}

/// Manages one node.
pub(super) struct Keeper {
    engine: Engine,
    clock: Clock,
    config: Arc<Config>,
    api: Api,
    actor: Actor,
    checks: Checks,
    runs: Runs,
    monitor: Option<Monitor>,
    /// The report of the last monitoring run, for the worker that the rules are about to order.
    evidence: Option<Report>,
    writing: usize,
    /// The phase that was logged last.
    phase: Option<Phase>,
    refusals: Refusals,
    metrics: Arc<NodeMetrics>,
    health: Health,
    pulse: Vital,
    happened: mpsc::UnboundedSender<Event>,
    events: mpsc::UnboundedReceiver<Event>,
}

/// An input of the loop.
enum Event {
    /// A write was answered.
    Answer(Order, Outcome, Duration),
    /// A request to create an event was answered.
    Reported(Action, Outcome, Duration),
    /// The node was read to answer a question.
    Seen(Question, Result<Option<NodeView>, Failed>),
    /// Karpenter's pools were read.
    Pools(Fact),
    /// The checks were run for the rules.
    Ran(u64, Report),
    /// The checks were run on a verified node.
    Monitored(Report),
    /// The checks failed too often in a row. The result says whether the API server can still be reached from this
    /// node.
    Confirmed(Report, Result<Option<NodeView>, Failed>),
}

impl Keeper {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { api, config, identity, checks, metrics, health, monitoring } = parts;
        let (happened, events) = mpsc::unbounded_channel();
        Self {
            engine: Engine::on_its_node(&config),
            clock: Clock::start(),
            config: Arc::new(config),
            actor: Actor::new(api.clone(), identity),
            api,
            checks,
            runs: Runs::default(),
            monitor: monitoring.map(Monitor::new),
            evidence: None,
            writing: 0,
            phase: None,
            refusals: Refusals::default(),
            metrics,
            pulse: health.vital("loop", STANDS_STILL),
            health,
            happened,
            events,
        }
    }

    /// Runs until the stop signal, then writes what follows from the facts known by then.
    pub(super) async fn run(mut self, view: NodeView, stop: CancellationToken) {
        self.look_for_pools(&view);
        let (now, version) = (self.clock.now(), view.version);
        self.engine.learn(Fact::Nodes(vec![view], version), now);
        self.engine.learn(Fact::Workers(Vec::new(), Version::default()), now);
        self.engine.lead();
        self.health.ready();
        loop {
            let wake = self.turn();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(event) = self.events.recv() => self.take(event),
                () = sleep_until(wake) => {}
            }
        }
        self.finish().await;
    }

    /// Decides, and starts carrying out the decisions. Returns when to do so again.
    fn turn(&mut self) -> Instant {
        let plan = self.engine.decide(self.clock.now());
        self.pulse.beat();
        for (node, now) in &plan.changes {
            let (now, order) = (now.as_ref(), plan.orders.first().map(|order| &order.action));
            let is_taken_over = false;
            journal::status(&journal::Change { node, before: self.phase, now, order, is_taken_over });
            self.phase = now.map(|now| now.phase);
        }
        let is_settled_here = plan.orders.iter().any(|order| is_ours_to_carry_out(&order.action));
        for order in plan.orders {
            self.carry_out(order);
        }
        // A report that is not used now would be stale later.
        self.evidence = None;
        for question in plan.questions {
            self.look(question);
        }
        let now = Instant::now();
        let is_verified = self.is_verified();
        let mut next = now + HEARTBEAT;
        if let Some(monitor) = &mut self.monitor {
            monitor.node_is_verified(is_verified, now);
            if monitor.begins(now) {
                let (checks, happened) = (self.checks.clone(), self.happened.clone());
                tokio::spawn(async move { happened.send(Event::Monitored(checks.run().await)) });
            }
            next = monitor.wake().map_or(next, |at| at.min(next));
        }
        if is_settled_here {
            return now;
        }
        plan.wake.map_or(next, |at| self.clock.instant(at).min(next))
    }

    fn is_verified(&self) -> bool {
        self.engine
            .explanations()
            .any(|(_, shown)| shown.phase == Phase::Verified && shown.access == Access::Open)
    }

    fn take(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Answer(order, outcome, took) => {
                self.writing -= 1;
                self.log(&order.action, &outcome, took);
                let is_in_vain = is_in_vain(&order.action, &outcome);
                self.settle(&order, outcome);
                if is_in_vain {
                    self.forget_run();
                }
            }
            Event::Reported(action, outcome, took) => {
                self.writing -= 1;
                self.log(&action, &outcome, took);
            }
            Event::Seen(question, Ok(view)) => self.saw(question, view, now),
            Event::Seen(_, Err(error)) => tracing::warn!(%error, "the node cannot be read; looking again"),
            Event::Pools(fact) => self.engine.learn(fact, now),
            Event::Ran(number, report) => {
                self.metrics.ran(&report, Timestamp::now());
                if let Some(fact) = self.runs.ended(number, report) {
                    self.engine.learn(fact, now);
                }
            }
            Event::Monitored(report) => self.monitored(report, now),
            Event::Confirmed(report, Ok(Some(view))) => {
                self.evidence = Some(report);
                self.engine.learn(Fact::Node(view.clone(), Source::Answer), now);
                self.engine.learn(Fact::Unsound(view.id), now);
            }
            Event::Confirmed(_, Ok(None)) => {}
            Event::Confirmed(_, Err(error)) => {
                tracing::warn!(%error, "the API server is out of reach, so the node is not closed; trying again at the next failure");
                if let Some(monitor) = &mut self.monitor {
                    monitor.not_yet();
                }
            }
        }
    }

    /// A node is closed only on the current result of the checks. If the API server is out of reach, the write would be
    /// delayed until it is back, and by then this node and every other one may be healthy again.
    fn monitored(&mut self, report: Report, now: Timestamp) {
        self.metrics.ran(&report, Timestamp::now());
        let is_verified = self.is_verified();
        let Some(monitor) = &mut self.monitor else { return };
        match monitor.ran(report, is_verified) {
            Judgement::Warning => {}
            Judgement::Sound => {
                if let Some((node, _)) = self.known() {
                    self.engine.learn(Fact::Sound(node), now);
                }
            }
            Judgement::Unsound(report) => {
                let (api, happened, node) =
                    (self.api.clone(), self.happened.clone(), self.checks.node.clone());
                let deadline = self.deadline();
                tokio::spawn(async move {
                    let seen = api.own_node(&node, deadline).await;
                    let _ = happened.send(Event::Confirmed(report, seen));
                });
            }
        }
    }

    fn log(&mut self, action: &Action, outcome: &Outcome, took: Duration) {
        let label = &self.engine.policy(&action.node().name).verified_label;
        let answered = journal::Answered { action, outcome, took, worker_took: None, label };
        journal::answer(&answered, &mut self.refusals);
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.kubernetes.request_timeout()
    }

    /// The node, as last seen.
    fn known(&self) -> Option<(NodeRef, Version)> {
        let mut views = self.engine.world().entries().filter_map(|(_, entry)| entry.view.as_ref());
        views.next().map(|view| (view.id.clone(), view.version))
    }

    /// Starts or ends a run of the checks in this process; every other order goes to the API server.
    fn carry_out(&mut self, order: Order) {
        match &order.action {
            Action::StartWorker { stamp } => {
                let (number, began) = self.runs.begin(stamp.clone());
                self.settle(&order, Outcome::Done(vec![began]));
                let (checks, happened) = (self.checks.clone(), self.happened.clone());
                if let Some(report) = self.evidence.take() {
                    // The metrics counted this report when it was made.
                    if let Some(ended) = self.runs.ended(number, report) {
                        self.engine.learn(ended, self.clock.now());
                    }
                } else {
                    let task =
                        tokio::spawn(async move { happened.send(Event::Ran(number, checks.run().await)) });
                    self.runs.carried_out_by(task.abort_handle());
                }
            }
            Action::RemoveWorker { node, worker, .. } => {
                let gone = self.runs.remove(worker, &node.name);
                self.settle(&order, Outcome::Done(vec![gone]));
            }
            Action::OpenGate { .. }
            | Action::CloseGate { .. }
            | Action::Record { .. }
            | Action::SetCondition { .. }
            | Action::SendEvent { .. }
            | Action::ReserveDeletion { .. }
            | Action::DeleteNode { .. } => {
                let action = order.action.clone();
                self.write(action, |outcome, took| Event::Answer(order, outcome, took));
            }
        }
    }

    /// Drops a verdict that could not be written. By the time that it can be, the node may be healthy again; if it is
    /// not, further runs show it.
    fn forget_run(&mut self) {
        if let Some(run) = self.runs.now().0 {
            let (node, now) = (run.stamp.node, self.clock.now());
            let gone = self.runs.remove(&run.id, &node.name);
            self.engine.learn(Fact::Sound(node), now);
            self.engine.learn(gone, now);
        }
    }

    fn settle(&mut self, order: &Order, outcome: Outcome) {
        for report in self.engine.settle(order, outcome, self.clock.now()) {
            let sent = report.clone();
            self.write(report, |outcome, took| Event::Reported(sent, outcome, took));
        }
    }

    fn write(&mut self, action: Action, event: impl FnOnce(Outcome, Duration) -> Event + Send + 'static) {
        self.writing += 1;
        let (actor, happened) = (self.actor.clone(), self.happened.clone());
        let (policies, timeout) =
            (Arc::clone(self.engine.policies()), self.config.kubernetes.request_timeout());
        let decided = self.clock.now();
        tokio::spawn(async move {
            let began = Instant::now();
            let deadline = began + timeout;
            let outcome = actor.carry_out(&action, &policies, decided, deadline).await;
            // Without a receiver the process is ending.
            let _ = happened.send(event(outcome, began.elapsed()));
        });
    }

    /// Once the node has its label, the `DaemonSet` removes this pod. So the writes that follow from a result are
    /// completed even after the stop signal. The current run is aborted, and no new one is started.
    async fn finish(mut self) {
        self.health.not_ready("stopping");
        let deadline = Instant::now() + LAST_WRITES;
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
        loop {
            let orders = self.engine.decide(self.clock.now()).orders;
            let is_done = orders.is_empty() && self.writing == 0;
            for order in orders {
                match &order.action {
                    Action::StartWorker { .. } => self.settle(&order, Outcome::Unavailable),
                    _ => self.carry_out(order),
                }
            }
            if is_done {
                break;
            }
            if self.writing == 0 {
                continue;
            }
            match timeout_at(deadline, self.events.recv()).await {
                Ok(Some(event @ (Event::Answer(..) | Event::Reported(..)))) => self.take(event),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    tracing::warn!(writing = self.writing, "stopped before all writes were answered");
                    break;
                }
            }
        }
        self.runs.end_current();
    }
}

/// Returns true if a node was to be closed and may not have been.
fn is_in_vain(action: &Action, outcome: &Outcome) -> bool {
    matches!(action, Action::CloseGate { .. }) && !matches!(outcome, Outcome::Done(_) | Outcome::Conflict)
}

/// Returns true for orders that this process carries out itself, so that their outcome is known at once.
fn is_ours_to_carry_out(action: &Action) -> bool {
    matches!(action, Action::StartWorker { .. } | Action::RemoveWorker { .. })
}

//! Makes the work of the rules visible: a log line for each change, and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use knr_core::action::{Action, Closing, EventReason, Recorded};
use knr_core::config::Label;
use knr_core::engine::{Order, Outcome, Plan};
use knr_core::explain::{Explanation, Phase, Trouble};
use knr_core::ids::NodeName;
use knr_core::names;
use knr_core::queue::QueuedWrite;
use knr_k8s::act::{action_name, outcome_name};
use knr_web::{Leader, Metrics};
use tokio::time::Instant;

use super::writers::Answer;
use crate::journal::{self, Refusals};

/// Writes that the controller itself holds back are summarized in one line this often.
const SUMMARY: Duration = Duration::from_secs(30);

/// Logs changes and updates metrics.
pub(super) struct Recorder {
    metrics: Arc<Metrics>,
    nodes: BTreeMap<NodeName, Seen>,
    refusals: Refusals,
    held_back: HeldBack,
    /// True while the cluster rather than single nodes is suspected.
    is_suspected: bool,
    /// The next changes are what this replica finds as it begins to lead.
    takes_over: bool,
}

/// A node whose status was reported.
#[derive(Debug, Clone, Copy)]
struct Seen {
    phase: Phase,
    /// The start of its wait for a verdict.
    waiting: Option<Instant>,
    /// When its last worker was created.
    worker: Option<Instant>,
}

/// Writes that were held back since the last summary.
#[derive(Debug, Default)]
struct HeldBack {
    since: Option<Instant>,
    late_orders: usize,
    dropped_events: usize,
}

impl Recorder {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        let (nodes, refusals, held_back) = (BTreeMap::new(), Refusals::default(), HeldBack::default());
        Self { metrics, nodes, refusals, held_back, is_suspected: false, takes_over: false }
    }

    /// Reports the nodes whose status has changed.
    pub(super) fn changes(&mut self, plan: &Plan) {
        let orders: BTreeMap<&NodeName, &Action> = match plan.changes.as_slice() {
            [] => BTreeMap::new(),
            _ => plan.orders.iter().map(|order| (&order.action.node().name, &order.action)).collect(),
        };
        for (node, now) in &plan.changes {
            let before = self.nodes.get(node).map(|seen| seen.phase);
            let order = orders.get(node).copied();
            let is_taken_over = self.takes_over;
            journal::status(&journal::Change { node, before, now: now.as_ref(), order, is_taken_over });
            self.changed(node, now.as_ref());
        }
    }

    fn changed(&mut self, node: &NodeName, now: Option<&Explanation>) {
        let phase = now.map(|now| now.phase);
        self.metrics.node(node.as_str(), phase);
        let Some(phase) = phase else {
            self.nodes.remove(node);
            self.refusals.forget(node);
            return;
        };
        self.metrics.blocked(node.as_str(), now.and_then(Explanation::installation_fault));
        let waits = matches!(phase, Phase::Unverified | Phase::Pending | Phase::InProgress | Phase::Failed);
        let seen = self.nodes.entry(node.clone()).or_insert(Seen { phase, waiting: None, worker: None });
        seen.phase = phase;
        seen.waiting = waits.then(|| seen.waiting.unwrap_or_else(Instant::now));
    }

    /// Records the answer to an order.
    pub(super) fn answer(&mut self, answer: &Answer, label: &Label) {
        let Answer { sent: QueuedWrite { order: Order { action, .. }, .. }, outcome, took } = answer;
        self.metrics.write(action_name(action), outcome_name(outcome), *took);
        let worker = self.nodes.get(&action.node().name).and_then(|seen| seen.worker);
        let worker_took = worker.map(|made| made.elapsed());
        let answered = journal::Answered { action, outcome, took: *took, worker_took, label };
        journal::answer(&answered, &mut self.refusals);
        match outcome {
            Outcome::Done(_) => self.done(action),
            Outcome::Conflict => {}
            Outcome::Refused(_) | Outcome::Unavailable | Outcome::Unknown => self.metrics.reconcile_error(),
        }
    }

    /// Records a deletion that was carried out although its answer was lost.
    pub(super) fn confirmed(&mut self, action: &Action) {
        journal::deleted(action);
        self.done(action);
    }

    /// Counts orders that waited so long that they were decided again.
    pub(super) fn late_orders(&mut self, count: usize) {
        self.held_back.late_orders += count;
        self.held_back.begin(count);
    }

    /// Counts events that are given up.
    pub(super) fn dropped_events(&mut self, count: usize) {
        self.metrics.events_dropped(count);
        self.held_back.dropped_events += count;
        self.held_back.begin(count);
    }

    /// Logs a summary of the held-back writes, if there are any and it is due.
    pub(super) fn summarize(&mut self, waiting: usize) {
        if self.held_back.since.is_some_and(|since| since.elapsed() >= SUMMARY) {
            self.summarize_all(waiting);
        }
    }

    /// Logs a summary of the held-back writes, if there are any.
    pub(super) fn summarize_all(&mut self, waiting: usize) {
        let HeldBack { since, late_orders, dropped_events } = std::mem::take(&mut self.held_back);
        if since.is_some() {
            tracing::info!(waiting, late_orders, dropped_events, "Writes were held back");
        }
    }

    /// The nodes that were there when this replica began to lead have been reported.
    pub(super) fn took_over(&mut self) {
        self.takes_over = false;
    }

    fn done(&mut self, action: &Action) {
        let node = &action.node().name;
        match action {
            Action::OpenGate { gate, event, .. }
                if gate == names::VERIFICATION_GATE && event.reason == EventReason::Verified =>
            {
                let since = self.nodes.get(node).and_then(|seen| seen.waiting);
                self.metrics.verified(node.as_str(), since.map_or(Duration::ZERO, |since| since.elapsed()));
            }
            Action::StartWorker { .. } => {
                if let Some(seen) = self.nodes.get_mut(node) {
                    seen.worker = Some(Instant::now());
                }
            }
            Action::CloseGate { because: Closing::FailedAgain, .. }
            | Action::Record { what: Recorded::Failure, .. } => self.metrics.failed(node.as_str()),
            Action::Record { what: Recorded::NoVerdict, .. } => self.metrics.inconclusive(),
            Action::DeleteNode { .. } => self.metrics.deleted(),
            Action::Record { what: Recorded::Reference, .. }
            | Action::CloseGate { because: Closing::Rebooted | Closing::Backfill, .. }
            | Action::OpenGate { .. }
            | Action::RemoveWorker { .. }
            | Action::SetCondition { .. }
            | Action::SendEvent { .. }
            | Action::ReserveDeletion { .. } => {}
        }
    }

    /// Records whether the cluster rather than single nodes is suspected. Logs one line when that begins, and one when
    /// it ends.
    pub(super) fn trouble(&mut self, trouble: Option<Trouble>) {
        let was_suspected = std::mem::replace(&mut self.is_suspected, trouble.is_some());
        self.metrics.cluster_suspected(trouble.is_some());
        match trouble {
            Some(trouble) if !was_suspected => {
                tracing::warn!(reason = %trouble, "Cluster suspected: no node is closed, charged or deleted");
            }
            None if was_suspected => tracing::info!("Cluster no longer suspected"),
            _ => {}
        }
    }

    /// Records whether this replica leads. Only the leader reports the phases of nodes.
    pub(super) fn leading(&mut self, leader: Leader) {
        self.metrics.leading(leader);
        match leader {
            Leader::Yes => {
                tracing::info!("this replica leads");
                self.takes_over = true;
            }
            Leader::No => {
                tracing::info!("this replica stands by");
                self.refusals = Refusals::default();
                self.is_suspected = false;
                self.metrics.cluster_suspected(false);
                for node in std::mem::take(&mut self.nodes).into_keys() {
                    self.metrics.node(node.as_str(), None);
                }
            }
        }
    }
}

impl HeldBack {
    fn begin(&mut self, count: usize) {
        if count > 0 {
            self.since.get_or_insert_with(Instant::now);
        }
    }
}

#[cfg(test)]
mod tests;

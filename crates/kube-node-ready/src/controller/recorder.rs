//! What people see of the rules at work: a log line for each change, and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use knr_core::action::{Action, Closing, EventReason, Recorded};
use knr_core::config::Label;
use knr_core::engine::{Order, Outcome, Plan};
use knr_core::explain::{Explanation, Phase, Trouble};
use knr_core::fault::installation_fault;
use knr_core::ids::NodeName;
use knr_core::names;
use knr_k8s::act::{action_name, outcome_name};
use knr_web::{Leader, Metrics};
use tokio::time::Instant;

use super::writers::Answer;
use crate::journal;

/// What the controller holds back itself is summed up in one line this often.
const SUMMARY: Duration = Duration::from_secs(30);

/// Sees and tells.
pub(super) struct Recorder {
    metrics: Arc<Metrics>,
    nodes: BTreeMap<NodeName, Seen>,
    held_back: HeldBack,
    /// The cluster rather than single nodes is suspected.
    is_suspected: bool,
}

/// A node that is told of.
#[derive(Debug, Clone, Copy)]
struct Seen {
    phase: Phase,
    /// Since when it has been waiting for its verdict.
    waiting: Option<Instant>,
    /// When its last worker was made.
    worker: Option<Instant>,
}

/// What was held back since this was last reported.
#[derive(Debug, Default)]
struct HeldBack {
    since: Option<Instant>,
    late_orders: usize,
    dropped_events: usize,
}

impl Recorder {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, nodes: BTreeMap::new(), held_back: HeldBack::default(), is_suspected: false }
    }

    /// Tells of the nodes whose status has changed.
    pub(super) fn changes(&mut self, plan: &Plan) {
        let orders: BTreeMap<&NodeName, &Action> = match plan.changes.as_slice() {
            [] => BTreeMap::new(),
            _ => plan.orders.iter().map(|order| (&order.action.node().name, &order.action)).collect(),
        };
        for (node, now) in &plan.changes {
            let before = self.nodes.get(node).map(|seen| seen.phase);
            let order = orders.get(node).copied();
            journal::status(&journal::Change { node, before, now: now.as_ref(), order });
            self.changed(node, now.as_ref());
        }
    }

    fn changed(&mut self, node: &NodeName, now: Option<&Explanation>) {
        let phase = now.map(|now| now.phase);
        self.metrics.node(node.as_str(), phase);
        let Some(phase) = phase else {
            self.nodes.remove(node);
            return;
        };
        self.metrics.blocked(node.as_str(), now.and_then(|now| installation_fault(&now.word())));
        let waits = matches!(phase, Phase::Unverified | Phase::Pending | Phase::InProgress | Phase::Failed);
        let seen = self.nodes.entry(node.clone()).or_insert(Seen { phase, waiting: None, worker: None });
        seen.phase = phase;
        seen.waiting = waits.then(|| seen.waiting.unwrap_or_else(Instant::now));
    }

    /// An order was answered.
    pub(super) fn answer(&mut self, answer: &Answer, label: &Label) {
        let Answer { order: Order { action, .. }, outcome, took } = answer;
        self.metrics.write(action_name(action), outcome_name(outcome), *took);
        let worker = self.nodes.get(&action.node().name).and_then(|seen| seen.worker);
        let worker_took = worker.map(|made| made.elapsed());
        journal::answer(&journal::Answered { action, outcome, took: *took, worker_took, label });
        match outcome {
            Outcome::Done(_) => self.done(action),
            Outcome::Conflict => {}
            Outcome::Refused(_) | Outcome::Unavailable | Outcome::Unknown => self.metrics.reconcile_error(),
        }
    }

    /// A write was carried out although its answer was lost.
    pub(super) fn confirmed(&mut self, action: &Action) {
        journal::deleted(action);
        self.done(action);
    }

    /// Orders had waited for so long that they were decided again.
    pub(super) fn late_orders(&mut self, count: usize) {
        self.held_back.late_orders += count;
        self.held_back.begin(count);
    }

    /// Events were not sent, and will not be.
    pub(super) fn dropped_events(&mut self, count: usize) {
        self.metrics.events_dropped(count);
        self.held_back.dropped_events += count;
        self.held_back.begin(count);
    }

    /// Sums up what was held back, if there was anything, and if it is time for it.
    pub(super) fn summarize(&mut self, waiting: usize) {
        if self.held_back.since.is_some_and(|since| since.elapsed() >= SUMMARY) {
            let HeldBack { late_orders, dropped_events, .. } = std::mem::take(&mut self.held_back);
            tracing::info!(waiting, late_orders, dropped_events, "Writes were held back");
        }
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
            Action::Record { what: Recorded::Comparison, .. }
            | Action::CloseGate { because: Closing::Rebooted | Closing::Backfill, .. }
            | Action::OpenGate { .. }
            | Action::RemoveWorker { .. }
            | Action::SetCondition { .. }
            | Action::SendEvent { .. }
            | Action::ReserveDeletion { .. } => {}
        }
    }

    /// Whether the cluster rather than single nodes is suspected. One line when that begins, and one when it ends.
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

    /// We begin to lead, or do so no longer. Only who leads knows where nodes stand.
    pub(super) fn leading(&mut self, leader: Leader) {
        self.metrics.leading(leader);
        match leader {
            Leader::Yes => tracing::info!("this replica leads"),
            Leader::No => {
                tracing::info!("this replica stands by");
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

//! What people see of the rules at work: a log line for each change, and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use knr_core::action::{Action, Closing, Headline, Recorded};
use knr_core::engine::Outcome;
use knr_core::explain::{Explanation, Phase};
use knr_core::ids::NodeName;
use knr_core::names;
use knr_k8s::act::{action_name, outcome_name};
use knr_web::{Leader, Metrics};
use tokio::time::Instant;

use super::writers::Answer;
use crate::journal;

/// Sees and tells.
pub(super) struct Witness {
    metrics: Arc<Metrics>,
    /// Nodes that are told of, and since when each has been waiting for its verdict.
    nodes: BTreeMap<NodeName, Option<Instant>>,
}

impl Witness {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, nodes: BTreeMap::new() }
    }

    /// A node stands otherwise than before.
    pub(super) fn news(&mut self, node: &NodeName, explanation: Option<&Explanation>) {
        self.metrics.node(node.as_str(), explanation.map(|told| told.phase));
        journal::node(node, explanation);
        let Some(told) = explanation else {
            self.nodes.remove(node);
            return;
        };
        let waits =
            matches!(told.phase, Phase::Unverified | Phase::Pending | Phase::InProgress | Phase::Failed);
        let since = self.nodes.entry(node.clone()).or_default();
        *since = waits.then(|| since.unwrap_or_else(Instant::now));
    }

    /// An order was answered.
    pub(super) fn answer(&mut self, answer: &Answer) {
        let (action, outcome) = (&answer.order.action, &answer.outcome);
        self.metrics.write(action_name(action), outcome_name(outcome), answer.took);
        journal::answer(action, outcome, answer.took);
        match outcome {
            Outcome::Done(_) => self.done(action),
            Outcome::Conflict => {}
            Outcome::Refused(_) | Outcome::Unavailable | Outcome::Unknown => self.metrics.reconcile_error(),
        }
    }

    fn done(&mut self, action: &Action) {
        let node = action.node().name.clone();
        match action {
            Action::OpenGate { gate, news, .. }
                if gate == names::VERIFICATION_GATE && news.headline == Headline::Verified =>
            {
                let since = self.nodes.get(&node).copied().flatten();
                self.metrics.verified(node.as_str(), since.map_or(Duration::ZERO, |since| since.elapsed()));
            }
            Action::CloseGate { because: Closing::FailedAgain, .. }
            | Action::Record { what: Recorded::Failure, .. } => self.metrics.failed(node.as_str()),
            Action::Record { what: Recorded::NoVerdict, .. } => self.metrics.inconclusive(),
            Action::Record { what: Recorded::Comparison, .. }
            | Action::CloseGate { because: Closing::Rebooted | Closing::Backfill, .. }
            | Action::OpenGate { .. }
            | Action::StartWorker { .. }
            | Action::RemoveWorker { .. }
            | Action::SetCondition { .. }
            | Action::Tell { .. }
            | Action::ReserveDeletion { .. }
            | Action::DeleteNode { .. } => {}
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

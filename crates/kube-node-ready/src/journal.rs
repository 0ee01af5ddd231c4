//! The log lines about nodes, shared by the controller and the `DaemonSet`. Messages are constant, so they can be
//! searched for; everything variable is in the fields.
//!
//! A node that joins and passes costs four lines at the level `info`: `Node added to queue`, `Creating worker pod`,
//! `Worker completed successfully`, `Node verified`.

mod refusals;

use std::time::Duration;

use knr_core::action::{Action, EventReason, worker_name};
use knr_core::config::Label;
use knr_core::engine::Outcome;
use knr_core::explain::{Explanation, Phase};
use knr_core::ids::NodeName;
use knr_core::names;
use knr_core::view::{Purpose, Stamp};
use knr_k8s::act::outcome_name;

pub(crate) use refusals::Refusals;

/// A change in the status of a node.
pub(crate) struct Change<'a> {
    pub(crate) node: &'a NodeName,
    /// The previous phase, if known.
    pub(crate) before: Option<Phase>,
    /// None if the node is gone.
    pub(crate) now: Option<&'a Explanation>,
    /// The action that was ordered together with the change.
    pub(crate) order: Option<&'a Action>,
    /// The node is reported because this replica began to lead, and not because anything has changed.
    pub(crate) is_taken_over: bool,
}

/// Logs a change in the status of a node.
pub(crate) fn status(change: &Change<'_>) {
    let Change { node, before, now, order, is_taken_over } = *change;
    let Some(now) = now else {
        match before {
            Some(Phase::OutOfScope) | None => tracing::debug!(%node, "Node is gone"),
            Some(_) => tracing::info!(%node, "Node is gone"),
        }
        return;
    };
    let (phase, next) = (now.phase, now.next_attempt.map(|at| at.to_string()));
    let is_waiting = matches!(
        before,
        Some(Phase::Unverified | Phase::Pending | Phase::InProgress | Phase::Failed | Phase::Deleting)
    );
    match phase {
        Phase::OutOfScope => tracing::debug!(%node, %phase, state = %now, "Node is left alone"),
        _ if is_taken_over => tracing::debug!(%node, %phase, state = %now, next, "Node status changed"),
        Phase::Unverified if !is_waiting => {
            tracing::info!(%node, %phase, state = %now, next, "Node added to queue");
        }
        Phase::Failed if before.is_some_and(|before| before != Phase::Failed) => {
            tracing::warn!(%node, %phase, state = %now, next, "Verification failed");
        }
        _ if is_routine(before, phase, order) => {
            tracing::debug!(%node, %phase, state = %now, next, "Node status changed");
        }
        _ => tracing::info!(%node, %phase, state = %now, next, "Node status changed"),
    }
}

/// Returns true for a change that every node goes through. Anything else that a node waits for is worth a line at
/// `info`.
fn is_routine(before: Option<Phase>, now: Phase, order: Option<&Action>) -> bool {
    match now {
        Phase::Pending | Phase::InProgress | Phase::Deleting => before != Some(now),
        Phase::Verified if before.is_none_or(|before| before == Phase::OutOfScope) => true,
        Phase::OutOfScope | Phase::Unverified | Phase::Verified | Phase::Failed => {
            order.is_some_and(|order| match order {
                Action::StartWorker { .. }
                | Action::OpenGate { .. }
                | Action::RemoveWorker { .. }
                | Action::SetCondition { .. } => true,
                Action::CloseGate { .. }
                | Action::Record { .. }
                | Action::SendEvent { .. }
                | Action::ReserveDeletion { .. }
                | Action::DeleteNode { .. } => false,
            })
        }
    }
}

/// Logs a write that is about to be sent.
pub(crate) fn sending(action: &Action) {
    match action {
        Action::StartWorker { stamp: Stamp { node, attempt, purpose, .. } } => {
            let (node, pod) = (&node.name, worker_name(&node.uid));
            match purpose {
                Purpose::Verify => tracing::info!(%node, pod, attempt, "Creating worker pod"),
                Purpose::Reference => {
                    tracing::info!(%node, pod, purpose = "reference", "Creating worker pod");
                }
            }
        }
        Action::CloseGate { node, gate, because, .. } if gate != names::VERIFICATION_GATE => {
            tracing::info!(node = %node.name, gate, reason = %because, "Adding startup taint");
        }
        Action::DeleteNode { node, claim: Some(claim), .. } => tracing::info!(
            node = %node.name, nodeClaim = claim.name,
            "Found NodeClaim for failed node, deleting NodeClaim instead"
        ),
        Action::DeleteNode { node, claim: None, .. } => {
            tracing::info!(node = %node.name, "Deleting failed node");
        }
        Action::CloseGate { .. }
        | Action::OpenGate { .. }
        | Action::RemoveWorker { .. }
        | Action::Record { .. }
        | Action::SetCondition { .. }
        | Action::SendEvent { .. }
        | Action::ReserveDeletion { .. } => {}
    }
}

/// A write that was answered.
pub(crate) struct Answered<'a> {
    pub(crate) action: &'a Action,
    pub(crate) outcome: &'a Outcome,
    pub(crate) took: Duration,
    /// The time since the node's worker was created, if known.
    pub(crate) worker_took: Option<Duration>,
    /// The label of verified nodes.
    pub(crate) label: &'a Label,
}

/// Logs the answer to a write.
pub(crate) fn answer(answered: &Answered<'_>, refusals: &mut Refusals) {
    let Answered { action, outcome, took, .. } = *answered;
    let node = &action.node().name;
    let is_repeated = refusals.is_repeated(action, outcome);
    match outcome {
        Outcome::Done(_) => {
            tracing::debug!(%node, %action, ?took, "Write done");
            done(answered);
        }
        Outcome::Conflict => tracing::debug!(%node, %action, "Write conflicted; reading the node again"),
        Outcome::Unavailable | Outcome::Unknown
            if matches!(action, Action::SendEvent { .. }) && !action.reports_deletion() =>
        {
            tracing::warn!(%node, %action, outcome = outcome_name(outcome), "Event not sent");
        }
        Outcome::Refused(why) if is_repeated => {
            tracing::debug!(%node, %action, why, "the API server refused again");
        }
        Outcome::Refused(why) => tracing::error!(%node, %action, why, "the API server refused"),
        Outcome::Unavailable | Outcome::Unknown => {
            tracing::warn!(%node, %action, outcome = outcome_name(outcome), "Write failed; trying again");
        }
    }
}

fn done(answered: &Answered<'_>) {
    let Answered { action, worker_took, label, .. } = *answered;
    let node = &action.node().name;
    match action {
        Action::OpenGate { gate, .. } if gate != names::VERIFICATION_GATE => {
            tracing::info!(%node, gate, "Removed startup taint");
        }
        Action::OpenGate { event, .. } if event.reason == EventReason::Verified => {
            let duration = worker_took.map(|took| format!("{:.1}s", took.as_secs_f64()));
            tracing::info!(%node, duration, "Worker completed successfully");
            let label = format!("{}={}", label.key, label.value);
            tracing::info!(%node, label, state = event.message, "Node verified");
        }
        Action::OpenGate { .. } => tracing::info!(%node, "Taint removed again"),
        Action::CloseGate { gate, because, .. } => {
            tracing::info!(%node, gate, reason = %because, "Node closed");
        }
        Action::DeleteNode { .. } => deleted(action),
        Action::StartWorker { .. }
        | Action::RemoveWorker { .. }
        | Action::Record { .. }
        | Action::SetCondition { .. }
        | Action::SendEvent { .. }
        | Action::ReserveDeletion { .. } => {}
    }
}

/// Logs a deletion that was carried out, whether or not its answer arrived.
pub(crate) fn deleted(action: &Action) {
    let Action::DeleteNode { node, claim, event, .. } = action else { return };
    let (node, reason) = (&node.name, &event.message);
    if let Some(claim) = claim {
        tracing::info!(
            %node, nodeClaim = claim.name, reason,
            "Successfully deleted NodeClaim, node should be terminated by Karpenter"
        );
    } else {
        tracing::info!(%node, reason, "Successfully deleted node");
    }
}

#[cfg(test)]
mod tests;

//! What people read of the rules at work, in one wording for all who apply them.

use std::time::Duration;

use knr_core::action::Action;
use knr_core::engine::Outcome;
use knr_core::explain::{Explanation, Phase};
use knr_core::ids::NodeName;
use knr_k8s::act::outcome_name;

/// A node stands otherwise than before, or is gone.
pub(crate) fn node(node: &NodeName, told: Option<&Explanation>) {
    let Some(told) = told else {
        tracing::info!(%node, "node is gone");
        return;
    };
    let (phase, next) = (told.phase, told.next.as_ref().map(|next| next.at.to_string()));
    match told.phase {
        Phase::OutOfScope => tracing::debug!(%node, %phase, state = %told, "node"),
        Phase::Failed => tracing::warn!(%node, %phase, state = %told, next, "node"),
        _ => tracing::info!(%node, %phase, state = %told, next, "node"),
    }
}

/// A write was answered. How the node stands now is told anyhow.
pub(crate) fn answer(action: &Action, outcome: &Outcome, took: Duration) {
    let node = &action.node().name;
    match outcome {
        Outcome::Done(_) => tracing::debug!(%node, %action, ?took, "done"),
        Outcome::Conflict => tracing::debug!(%node, %action, "things have changed; looking again"),
        Outcome::Refused(why) => tracing::error!(%node, %action, why, "the API server refused"),
        Outcome::Unavailable | Outcome::Unknown => {
            tracing::warn!(%node, %action, outcome = outcome_name(outcome), "no result; looking again");
        }
    }
}

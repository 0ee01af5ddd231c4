//! What tells the states of a node apart, to count how many of them occur.

use std::hash::{DefaultHasher, Hash, Hasher};

use knr_core::action::worker_name;
use knr_core::config::Config;
use knr_core::view::{Ending, Stage};

use super::{Monitor, is_closed, is_labelled, state_of};
use crate::api::Api;

impl Monitor {
    /// Returns a hash of a node's state, regardless of its identity.
    #[must_use]
    pub(crate) fn fingerprint(api: &Api, config: &Config, name: &str) -> Option<u64> {
        let node = &api.node(name)?.view;
        let state = state_of(node);
        let mut hasher = DefaultHasher::new();
        (is_closed(node, &config.node_management.taints), is_labelled(node, config), node.leaving)
            .hash(&mut hasher);
        node.taints.len().hash(&mut hasher);
        if let Some(state) = &state {
            (state.phase as u8, state.attempt, state.inconclusive, state.boot == node.boot).hash(&mut hasher);
        }
        let worker = api.worker(&worker_name(&node.id.uid));
        if let Some(worker) = worker {
            let current = worker.stamp.serial == state.as_ref().map_or(0, |state| state.serial) + 1;
            let progress = match &worker.stage {
                Stage::Pending(_) => 0,
                Stage::Running => 1,
                Stage::Ended(Ending::Exited { code: 0, .. }) => 2,
                Stage::Ended(_) => 3,
            };
            (current, progress, worker.leaving, worker.stamp.boot == node.boot).hash(&mut hasher);
        }
        Some(hasher.finish())
    }
}

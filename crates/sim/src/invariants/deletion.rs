//! S4: when a node may be deleted.

use jiff::SignedDuration;
use knr_core::names;
use knr_core::state::StatePhase;
use knr_core::view::NodeView;

use super::{Monitor, Rule, Write, state_of};
use crate::actors::Fit;

/// The period of the deletion budget.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);

impl Monitor {
    /// Checks a deletion against S4.
    pub(super) fn right_to_delete(&mut self, write: &Write<'_>, node: &NodeView) {
        let (config, name) = (write.config(), node.id.name.as_str());
        let state = state_of(node);
        let used_up = state.as_ref().is_some_and(|state| {
            state.phase == StatePhase::Failed && state.attempt >= config.reconciliation.max_retries
        });
        let reserved = write.api.ledger().entries.iter().any(|entry| entry.node == node.id);
        let control_plane = names::CONTROL_PLANE_LABELS.iter().any(|label| node.labels.contains_key(label));
        let is_sound = write.machines.get(name).is_some_and(|machine| machine.fit == Fit::Always);
        let rules = [
            (Rule::S4, config.node_management.delete_failed_nodes, "nobody asked for it"),
            (Rule::S4, used_up, "attempts are left"),
            (Rule::S4, reserved, "no right was reserved"),
            (Rule::S4, !control_plane, "it is a control plane node"),
            (Rule::Budget, self.is_within_budget(write, node), "the budget is used up"),
        ];
        for (rule, holds, otherwise) in rules {
            if !holds {
                self.violate(name, rule, format_args!("a node was deleted although {otherwise}"));
            }
        }
        self.fair_trial(write, node);
        if is_sound {
            let how = "a node was deleted although it was healthy all the time";
            self.violate(name, Rule::TrialInOutage, how);
        }
    }

    /// Counts the most nodes that were managed within the hour: some may have left since the decision.
    fn is_within_budget(&mut self, write: &Write<'_>, node: &NodeView) -> bool {
        // A claim may be deleted again until its node is removed.
        self.deletions.entry(node.id.uid.clone()).or_insert(write.now);
        let recent = self.deletions.values().filter(|at| write.now.duration_since(**at) < WINDOW);
        let managed = self.managed.most_since(write.now - WINDOW);
        recent.count() <= write.config().limits.deletion.per_hour(managed)
    }
}

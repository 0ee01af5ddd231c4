//! Finds out whose fault a failure is that may be the node's or the cluster's: the same checks run on a verified node.

use jiff::Timestamp;

use super::{IfItFails, Trial};
use crate::decide::{Mode, verification};
use crate::explain::later;

/// Whether the checks pass elsewhere while they fail on a node.
pub(super) enum Comparison {
    /// Nothing follows from this failure but the next attempt.
    Unneeded,
    Passed,
    /// A reference run is worth waiting for, until then.
    Until(Timestamp),
    /// Nothing passed elsewhere in time.
    Missing,
}

impl Trial<'_> {
    /// Compares a node whose checks failed, which is known since `since`, with the verified nodes.
    pub(super) fn compare(self, attempt: u32, since: Timestamp) -> Comparison {
        let (cx, name) = (self.subject.cx, &self.subject.view.id.name);
        let may_close = || verification::may_be_closed(self.subject);
        let closes =
            self.probation.is_some_and(|probation| probation.if_it_fails == IfItFails::Close) && may_close();
        let max_attempts = cx.policy.retry.max_attempts;
        // It may count as failed already. Nothing new follows from the next failures then.
        let counts_as_failed = attempt >= max_attempts && self.attempt() <= max_attempts;
        // On its own node, a pod knows of no other node.
        if cx.mode == Mode::DaemonSet || !closes && !counts_as_failed {
            return Comparison::Unneeded;
        }
        if cx.grants.fleet.has_passed_elsewhere(name, since, cx.now) {
            return Comparison::Passed;
        }
        if !cx.grants.can_compare(name) {
            // Nothing else follows if a node that is not closed by this counts as failed: it is not deleted.
            return if closes { Comparison::Missing } else { Comparison::Unneeded };
        }
        let worker = &cx.policy.worker;
        let end = later(since, worker.pending_timeout() + worker.runs_within());
        if cx.now < end { Comparison::Until(end) } else { Comparison::Missing }
    }
}

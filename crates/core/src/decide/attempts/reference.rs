//! Finds out whose fault a failure is that may be the node's or the cluster's: the same checks run on a verified node.

use jiff::Timestamp;

use super::{Attempts, IfItFails};
use crate::decide::{Mode, verification};
use crate::explain::later;

/// Whether the checks pass on a verified node while they fail on this one.
pub(super) enum ReferenceRun {
    /// Nothing follows from this failure but the next attempt.
    NotNeeded,
    Passed,
    /// A reference run is worth waiting for, until then.
    AwaitedUntil(Timestamp),
    /// Nothing passed elsewhere in time.
    Missing,
}

impl Attempts<'_> {
    /// Finds out whether the checks pass on a verified node. They failed on this one, which is known since `since`.
    pub(super) fn reference(self, attempt: u32, since: Timestamp) -> ReferenceRun {
        let (cx, name) = (self.subject.cx, &self.subject.view.id.name);
        let may_close = || verification::may_be_closed(self.subject);
        let closes =
            self.probation.is_some_and(|probation| probation.if_it_fails == IfItFails::Close) && may_close();
        let max_attempts = cx.policy.retry.max_attempts;
        // It may count as failed already. Nothing new follows from the next failures then.
        let counts_as_failed = attempt >= max_attempts && self.attempt() <= max_attempts;
        // On its own node, a pod knows of no other node.
        if cx.mode == Mode::DaemonSet || !closes && !counts_as_failed {
            return ReferenceRun::NotNeeded;
        }
        if cx.grants.fleet.has_passed_elsewhere(name, since, cx.now) {
            return ReferenceRun::Passed;
        }
        if !cx.grants.can_make_reference(name) {
            // Nothing else follows if a node that is not closed by this counts as failed: it is not deleted.
            return if closes { ReferenceRun::Missing } else { ReferenceRun::NotNeeded };
        }
        let worker = &cx.policy.worker;
        let end = later(since, worker.pending_timeout() + worker.runs_within());
        if cx.now < end { ReferenceRun::AwaitedUntil(end) } else { ReferenceRun::Missing }
    }
}

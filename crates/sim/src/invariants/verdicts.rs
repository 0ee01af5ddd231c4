//! Verdicts against nodes: whether they were justified, and what follows from them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::action::{Action, Closing, Recorded, worker_name};
use knr_core::fault::Blame;
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{NodeView, Stage, WorkerView};

use super::runs::Run;
use super::{Monitor, Rule, Write, state_of};

/// A decision is based on a read that was answered within this time.
const LAST_LOOK: SignedDuration = SignedDuration::from_secs(1);
/// The cause in the reports of this simulation that cannot be the fault of the cluster.
const OWN_FAULT: &str = "DnsNoNameserver";
/// The number by which a pod on its own node is known as a writer. It knows of no other node.
const ON_ITS_NODE: usize = usize::MAX;

impl Monitor {
    /// Checks that a recorded verdict against a node was justified, and takes note of it.
    pub(super) fn recorded(&mut self, write: &Write<'_>, before: &NodeView, after: &NodeView) {
        let is_verdict = |state: &NodeState| state.phase == StatePhase::Failed || state.is_failing();
        let Some(state) = state_of(after).filter(is_verdict) else { return };
        if state_of(before).as_ref() == Some(&state) {
            return;
        }
        // A run without a verdict does not make an earlier failure a new one.
        let before_this = match state.failed_at {
            None => self.failed.insert(after.id.uid.clone(), write.now),
            Some(_) => self.failed.get(&after.id.uid).copied(),
        };
        if state.phase != StatePhase::Failed {
            return;
        }
        // Earlier passes no longer count as evidence.
        self.void_proof(&after.id.uid);
        let is_failure = matches!(
            write.action(),
            Action::Record { what: Recorded::Failure, .. }
                | Action::CloseGate { because: Closing::FailedAgain, .. }
        );
        let worker = write.api.worker(&worker_name(&after.id.uid));
        let is_about = |worker: &&Arc<WorkerView>| {
            (worker.stamp.serial, &worker.stamp.boot) == (state.serial, &after.boot)
        };
        if let Some(worker) = worker.filter(is_about).filter(|_| is_failure) {
            self.failed_worker(write, after, worker, before_this);
            let is_closed = matches!(write.action(), Action::CloseGate { .. });
            if is_closed && write.request.replica != ON_ITS_NODE {
                self.recorded_reference_is_right(write, after, &state, worker);
            }
        }
        if is_failure {
            self.failure_recorded(write, after, (state.serial, state.at));
        }
    }

    /// Checks that the worker of a recorded failure really failed, or would never have passed.
    fn failed_worker(
        &mut self,
        write: &Write<'_>,
        node: &NodeView,
        worker: &WorkerView,
        last_failure: Option<Timestamp>,
    ) {
        let name = node.id.name.as_str();
        let machine = write.machines.get(name).filter(|machine| machine.uid == node.id.uid);
        let is_down = machine.is_none_or(|machine| !machine.up);
        let has_ended = matches!(worker.stage, Stage::Ended(_));
        // A result counts although its kubelet could not report it yet, unless it never will.
        let counts = |at: Timestamp| {
            (has_ended || !is_down) && !worker.leaving && at + LAST_LOOK < write.request.decided
        };
        if self.runs.passed_at(&worker.id.uid).is_some_and(counts) {
            self.violate(name, Rule::Verdict, "a failure was recorded of a worker that had passed");
        }
        if let Some((blame @ (Blame::Cluster | Blame::Installation), at)) =
            self.runs.failed_at(&worker.id.uid)
            && (has_ended || counts(at))
        {
            let how = format!("a failed attempt was recorded, and the report blames the {blame:?}");
            self.violate(name, Rule::Blame, how);
        }
        if has_ended {
            return;
        }
        let never_ends = is_down || self.runs.is_hanging(&worker.id.uid);
        if never_ends && worker.leaving {
            // Each record is a new finding that the kubelet still has not ended the worker.
            self.runs.not_ended(&worker.id.uid, (&node.id.uid, &node.boot), last_failure, write.now);
        } else if never_ends {
            self.runs.timed_out(&worker.id.uid, (&node.id.uid, &node.boot), write.now);
        } else if let (Stage::Pending(_), Some(made)) = (&worker.stage, self.runs.made_at(&worker.id.uid))
            && write.outages.stopped_pulls(made, write.now)
        {
            self.violate(name, Rule::Blame, "a failure was recorded because the registry did not answer");
        } else if self.runs.began_at(&worker.id.uid).is_none() {
            // Its machine is back, too late for this worker.
            self.runs.timed_out(&worker.id.uid, (&node.id.uid, &node.boot), write.now);
        }
    }

    /// Checks that an open node is closed for a fault that may be the cluster's only after the same checks have passed
    /// elsewhere, in a run that began after the failure.
    fn recorded_reference_is_right(
        &mut self,
        write: &Write<'_>,
        node: &NodeView,
        state: &NodeState,
        worker: &WorkerView,
    ) {
        if state.cause.as_deref() == Some(OWN_FAULT) {
            return;
        }
        let (uid, settings) = (&worker.id.uid, &write.config().worker);
        let (limit, from) = match &worker.stage {
            Stage::Ended(_) => (SignedDuration::ZERO, self.runs.failed_at(uid).map(|(_, at)| at)),
            Stage::Running => (settings.timeout(), self.runs.began_at(uid)),
            Stage::Pending(_) => (settings.pending_timeout(), self.runs.made_at(uid)),
        };
        let Some(failed) = from.map(|from| from + limit) else { return };
        let is_later = |run: &Run| run.began > failed && run.ended <= write.request.decided;
        let has_passed_elsewhere = self.runs.passes_elsewhere(&node.id.uid).any(is_later);
        if !has_passed_elsewhere {
            let how = "an open node was closed although the checks have not passed elsewhere since it failed";
            self.violate(node.id.name.as_str(), Rule::Blame, how);
        }
    }
}

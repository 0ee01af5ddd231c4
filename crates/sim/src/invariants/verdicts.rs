//! Verdicts against nodes: whether they were true, and what follows from them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::action::{Action, Closing, Recorded, worker_name};
use knr_core::state::StatePhase;
use knr_core::view::{NodeView, Stage, WorkerView};

use super::{Monitor, Rule, Write, state_of};

/// A decision rests on a read that was answered within this time.
const LAST_LOOK: SignedDuration = SignedDuration::from_secs(1);

impl Monitor {
    /// What follows from a verdict against a node, and whether it was one.
    pub(super) fn recorded(&mut self, write: &Write<'_>, before: &NodeView, after: &NodeView) {
        let Some(state) = state_of(after).filter(|state| state.phase == StatePhase::Failed) else { return };
        if state_of(before).as_ref() == Some(&state) {
            return;
        }
        let before_this = self.failed.insert(after.id.uid.clone(), write.now);
        // What passed before is no evidence any more.
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
        }
    }

    /// The worker of which a failure was recorded: it failed, or would never have passed.
    fn failed_worker(
        &mut self,
        write: &Write<'_>,
        node: &NodeView,
        worker: &WorkerView,
        last_failure: Option<Timestamp>,
    ) {
        let name = node.id.name.as_str();
        let passed = self.runs.passed_at(&worker.id.uid).filter(|_| !worker.leaving);
        if passed.is_some_and(|at| at + LAST_LOOK < write.request.decided) {
            self.violate(name, Rule::Verdict, "a failure was recorded of a worker that had passed");
        }
        if matches!(worker.stage, Stage::Ended(_)) {
            return;
        }
        let machine = write.machines.get(name).filter(|machine| machine.uid == node.id.uid);
        let never_ends = machine.is_none_or(|machine| !machine.up) || self.runs.is_hanging(&worker.id.uid);
        if never_ends && worker.leaving {
            // That its kubelet still has not ended it is found out again each time.
            self.runs.not_ended(&worker.id.uid, &node.id.uid, &node.boot, last_failure, write.now);
        } else if never_ends {
            self.runs.timed_out(&worker.id.uid, &node.id.uid, &node.boot, write.now);
        } else if let (Stage::Pending(_), Some(made)) = (&worker.stage, self.runs.made_at(&worker.id.uid))
            && write.outages.stopped_pulls(made, write.now)
        {
            self.violate(name, Rule::Blame, "a failure was recorded because the registry did not answer");
        }
    }
}

//! A node that has to prove itself: closed until it does, or open on probation until it fails.

mod progress;
mod record;
mod reference;

use jiff::{SignedDuration, Timestamp};

use super::deletion::Step;
use super::subject::{Subject, phase_of};
use super::{Decision, Want, deletion, tidy};
use crate::action::Removal;
use crate::explain::{Note, ProbationReason, Wait, Why, WithoutReport, later};
use crate::fault::WorkerFailure;
use crate::state::{NodeState, StatePhase};
use crate::verdict::{Fault, Verdict};
use crate::view::Purpose;
use crate::world::{SeenWorker, VanishedWorker};
pub(super) use progress::{Progress, progress};

#[derive(Clone, Copy)]
pub(super) struct Attempts<'a> {
    pub(super) subject: &'a Subject<'a>,
    /// Set if the node is open and has to prove itself again.
    pub(super) probation: Option<Probation>,
}

/// The probation of an open node.
#[derive(Clone, Copy)]
pub(super) struct Probation {
    pub(super) why: ProbationReason,
    pub(super) if_it_fails: IfItFails,
}

/// What happens to an open node that fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfItFails {
    Close,
    StayOpen,
}

impl<'a> Attempts<'a> {
    pub(super) fn consider(self) -> Decision {
        let subject = self.subject;
        match subject.worker() {
            Some(worker) if worker.view.leaving => self.wait_for_the_end(worker),
            Some(worker) if subject.is_current(&worker.view.stamp, Purpose::Verify) => {
                self.follow(worker).keeps_worker()
            }
            Some(worker) => {
                self.waiting(Wait::OutdatedWorker).acts(tidy::remove(&worker.view, Removal::Outdated))
            }
            None => match self.vanished_worker() {
                Some(worker) => {
                    self.record_no_verdict(&WithoutReport::Vanished.to_string(), worker.asked_for)
                }
                None => self.try_next(),
            },
        }
    }

    fn waiting(self, why: impl Into<Why>) -> Decision {
        let phase = phase_of(self.so_far());
        let probation = self.probation.map(|probation| probation.why);
        Decision::new(self.subject.explain(phase, why).on_probation(probation))
    }

    fn vanished_worker(self) -> Option<&'a VanishedWorker> {
        let vanished = self.subject.entry.vanished.as_ref()?;
        self.subject.is_current(&vanished.stamp, Purpose::Verify).then_some(vanished)
    }

    /// The state that this trial has recorded so far. For a closed node, a restart begins a new trial.
    fn so_far(self) -> Option<&'a NodeState> {
        match self.probation {
            Some(_) => self.subject.state,
            None => self.subject.state_of_this_boot().filter(|state| state.phase != StatePhase::Verified),
        }
    }

    /// The number of runs in this boot that cost no attempt.
    fn runs_so_far(self) -> u32 {
        let in_this_boot =
            |state: &&NodeState| state.run_boot.as_ref().is_none_or(|boot| *boot == self.subject.view.boot);
        self.so_far().filter(in_this_boot).map_or(0, |state| state.inconclusive)
    }

    /// The number of the next attempt. On probation it is 1, because the first failure closes the node. After trouble
    /// in the cluster every node starts again with all its attempts.
    fn attempt(self) -> u32 {
        if self.probation.is_some() && !self.has_failed_open() {
            return 1;
        }
        self.so_far().map_or(0, |state| self.subject.attempts_that_count(state)).saturating_add(1)
    }

    /// The node failed while it was open and stayed open, so its count of attempts continues.
    fn has_failed_open(self) -> bool {
        self.probation.is_some() && self.so_far().is_some_and(|state| state.phase == StatePhase::Failed)
    }

    fn try_next(self) -> Decision {
        let subject = self.subject;
        let mut due = subject.view.created;
        let is_under_way = self.probation.is_none() || self.runs_so_far() > 0 || self.has_failed_open();
        if let Some(state) = self.so_far().filter(|_| is_under_way) {
            due = self.due(state);
            if subject.cx.now < due {
                match self.pausing(state, due) {
                    Some(decision) => return decision,
                    None => due = subject.cx.now,
                }
            } else if self.probation.is_none()
                && let Some(decision) =
                    deletion::complete(subject, state, due, Decision::new(subject.account(state)))
            {
                return decision;
            }
        }
        let stamp = subject.next_stamp(Purpose::Verify, self.attempt());
        let is_first = self.so_far().is_none();
        let decision = self.waiting(subject.wait_for_worker()).wants(Want::Worker { stamp, is_first, due });
        Decision { is_final_attempt: self.may_be_final(), ..decision }
    }

    /// When the next attempt is due. If the process that wrote the state had a clock ahead of this one, the planned
    /// delay still holds, counted from when the state was first seen. It was planned under the policy of that time: a
    /// shorter longest delay holds at once, and results of other checks are not waited for.
    fn due(self, state: &NodeState) -> Timestamp {
        let seen = self.subject.entry.state_seen;
        let is_required = self.subject.is_required(state.policy.as_ref(), state.requires.as_ref());
        let longest = self.subject.cx.policy.retry.longest_delay();
        let planned = state.next_try.filter(|_| is_required).map_or(seen, |next_try| {
            let span = next_try.duration_since(state.at).clamp(SignedDuration::ZERO, longest);
            next_try.min(later(seen, span))
        });
        // A run that ended while its node was not Ready says nothing about the node, so it is not waited for.
        let has_verdict = state.inconclusive == 0 || state.blame.is_some();
        let ready = self.subject.entry.ready_since.filter(|ready| !has_verdict && *ready > seen);
        let requested = self.subject.retry_requested();
        ready.into_iter().chain(requested).fold(planned, Timestamp::min)
    }

    /// Waits until the next attempt. Returns `None` if the attempt is to be made now because a deletion depends on it.
    fn pausing(self, state: &NodeState, due: Timestamp) -> Option<Decision> {
        let explanation = if self.probation.is_none() || self.has_failed_open() {
            self.subject.account(state)
        } else {
            self.waiting(self.subject.last_result(state)).explanation
        };
        let decision = Decision::new(explanation.tried_again_at(due)).wakes(due);
        if self.probation.is_some() {
            return Some(decision);
        }
        match deletion::consider(self.subject, state) {
            Step::None => Some(decision),
            Step::Hold(why) => Some(deletion::hold(self.subject, decision, Note::NotDeleted(why))),
            Step::Want(want, note) => Some(deletion::hold(self.subject, decision, note).wants(want)),
            Step::FinalAttempt => None,
        }
    }

    /// If this attempt fails, the node may be deleted for it.
    fn may_be_final(self) -> bool {
        let is_candidate = |state: &NodeState| deletion::is_candidate(self.subject, state);
        self.probation.is_none() && self.subject.view.ready && self.so_far().is_some_and(is_candidate)
    }

    fn follow(self, worker: &'a SeenWorker) -> Decision {
        let subject = self.subject;
        let decision = match progress(subject, worker) {
            // The gate is met, and opens instead.
            Progress::Over { verdict: Verdict::Pass, .. } => self.waiting(Wait::Opening),
            Progress::Waiting { stage, until } => {
                let phase = stage.phase();
                let attempt = subject.attempt_of(worker.view.stamp.attempt);
                let mut decision = self.waiting(Wait::Worker { attempt, stage });
                decision.explanation.phase = phase;
                until.into_iter().fold(decision, Decision::wakes)
            }
            Progress::Unsure => self.waiting(Wait::LastLook).wants(Want::Reread(subject.view.id.clone())),
            Progress::Over { verdict: Verdict::Fail(fault), since } => {
                // The attempts may have started again since the worker was ordered.
                let attempt = worker.view.stamp.attempt.min(self.attempt());
                self.fail(attempt, since, worker.asked_for, &fault)
            }
            Progress::Over { verdict: Verdict::Inconclusive(why), .. } => {
                self.record_no_verdict(&why, worker.asked_for)
            }
        };
        Decision { is_final_attempt: self.may_be_final(), ..decision }
    }

    /// A worker that is being deleted may have ended because it received a signal to stop, so its exit proves nothing. If the
    /// pod never goes away, its kubelet is not working.
    fn wait_for_the_end(self, worker: &SeenWorker) -> Decision {
        let subject = self.subject;
        if let Some(state) = self.so_far().filter(|state| subject.cx.now < self.due(state))
            && let Some(decision) = self.pausing(state, self.due(state))
        {
            return decision;
        }
        let limit = subject.cx.policy.worker.pending_timeout();
        let waiting = self.waiting(Wait::WorkerEnd);
        // Nothing ends on a node that is not Ready. This is not held against the node.
        let Some(ready) = subject.entry.ready_since else { return waiting };
        let until = later(worker.since.max(subject.entry.state_seen).max(ready), limit);
        if subject.cx.now < until {
            return waiting.wakes(until);
        }
        // An open node is not closed for this: nothing was checked.
        if self.probation.is_some() {
            return waiting;
        }
        if subject.entry.reread.is_none_or(|at| at < until) {
            return waiting.wants(Want::Reread(subject.view.id.clone()));
        }
        let reason = WithoutReport::NotEnded { after: limit }.to_string();
        self.fail(self.attempt(), until, None, &Fault::of(WorkerFailure::NotEnded, reason))
    }
}

//! Records the result of a run, and opens or closes the node accordingly.

use jiff::Timestamp;

use super::reference::ReferenceRun;
use super::{Attempts, IfItFails, Probation};
use crate::action::{Action, Closing, EventReason, EventText, Recorded};
use crate::decide::gate::{self, Evidence};
use crate::decide::scope::MayClose;
use crate::decide::{Decision, Mode, Want, scope, tidy, verification};
use crate::explain::{Access, GateWait, Phase, Remark, Wait, Why};
use crate::fault::Blame;
use crate::patch::PatchBuilder;
use crate::state::{NodeState, StatePhase};
use crate::verdict::Fault;

/// The result of a run that costs no attempt.
struct FreeResult<'r> {
    /// Whose fault it is, if it failed.
    blame: Option<Blame>,
    cause: &'r str,
    why: &'r str,
    /// When the checks last failed, if that was before this run.
    failed_at: Option<Timestamp>,
    /// When its worker was ordered.
    asked_for: Option<Timestamp>,
}

impl<'a> Attempts<'a> {
    /// The checks have passed: opens the gate, or records the pass on a node that is open.
    pub(in crate::decide) fn open(self, evidence: Evidence<'a>) -> Decision {
        let subject = self.subject;
        let Some(gate) = subject.cx.policy.checks_gate() else { return self.waiting(Wait::Opening) };
        let obstacle = gate::obstacle(subject, gate);
        let wait = match &obstacle {
            None => Wait::Opening,
            Some(GateWait::Gate(gate)) => Wait::Gate(gate.clone()),
            Some(_) => Wait::Registration,
        };
        let decision = match evidence {
            Evidence::Recorded if obstacle.is_none() => {
                Decision::new(subject.explain(Phase::Verified, Why::TaintCameBack))
            }
            Evidence::Recorded => Decision::new(subject.explain(Phase::Verified, wait)),
            Evidence::Run(_) | Evidence::Pods(_) => self.waiting(wait).keeps_worker(),
        };
        if obstacle.is_some() {
            return decision;
        }
        let shown = match (subject.cx.mode, evidence) {
            // Once the label is set, the DaemonSet removes its pod from the node, and nothing could write the condition
            // later.
            (Mode::DaemonSet, Evidence::Run(worker)) => {
                tidy::verdict(subject, &gate::verified_by(subject, worker))
            }
            _ => None,
        };
        decision.acts(shown.unwrap_or_else(|| gate::open(subject, gate, evidence)))
    }

    /// The checks failed, which is known since `since`. This costs an attempt only if it is or may be the node's own
    /// fault and the cluster is not in trouble.
    pub(super) fn fail(
        self,
        attempt: u32,
        since: Timestamp,
        asked_for: Option<Timestamp>,
        fault: &Fault,
    ) -> Decision {
        match (fault.blame, self.subject.trouble()) {
            (Blame::Node, None) => self.fail_by_its_own_fault(attempt, asked_for, fault),
            (Blame::Unclear, None) => match self.reference(attempt, since) {
                ReferenceRun::NotNeeded | ReferenceRun::Passed => {
                    self.fail_by_its_own_fault(attempt, asked_for, fault)
                }
                ReferenceRun::AwaitedUntil(end) => {
                    self.waiting(Wait::Reference).wants(Want::Reference).wakes(end).keeps_worker()
                }
                ReferenceRun::Missing => {
                    let reason = Remark::NoReference.on(&fault.reason);
                    self.fail_by_fault_of(Blame::Cluster, &fault.cause, &reason, asked_for)
                }
            },
            (Blame::Node | Blame::Unclear | Blame::Cluster, Some(trouble)) => {
                let reason = Remark::Trouble(&trouble).on(&fault.reason);
                self.fail_by_fault_of(Blame::Cluster, &fault.cause, &reason, asked_for)
            }
            (blame, _) => self.fail_by_fault_of(blame, &fault.cause, &fault.reason, asked_for),
        }
    }

    fn fail_by_its_own_fault(self, attempt: u32, asked_for: Option<Timestamp>, fault: &Fault) -> Decision {
        let subject = self.subject;
        let stays_open = match (self.probation, scope::may_close(subject, subject.taints())) {
            (None, _) | (Some(Probation { if_it_fails: IfItFails::Close, .. }), MayClose::Yes) => None,
            (Some(_), MayClose::No(why)) => Some(why.to_string()),
            (Some(Probation { why, if_it_fails: IfItFails::StayOpen }), _) => Some(why.to_string()),
            // A result recorded now would not be revised once the pool is known.
            (Some(Probation { if_it_fails: IfItFails::Close, .. }), MayClose::NotYetKnown(_)) => {
                return self.waiting(Wait::Pool);
            }
        };
        let closes = self.probation.is_some() && stays_open.is_none();
        if closes && let Some(why) = verification::kept_open(subject) {
            let reason = Remark::MayNotClose(&why).on(&fault.reason);
            return self.fail_by_fault_of(Blame::Cluster, &fault.cause, &reason, asked_for);
        }
        let reason = match &stays_open {
            Some(why) => Remark::StaysOpen(why).on(&fault.reason),
            None => fault.reason.clone(),
        };
        let passed_elsewhere = asked_for.and_then(|asked| {
            subject.cx.grants.fleet.pass_elsewhere(&subject.view.id.name, asked, subject.cx.now)
        });
        let state = NodeState {
            phase: StatePhase::Failed,
            attempt,
            next_try: Some(subject.cx.now + subject.cx.policy.retry.delay_after_attempt(attempt)),
            stays_open: stays_open.is_some(),
            passed_elsewhere,
            ..subject.next_state()
        }
        .because(&fault.cause, &reason);
        let mut explanation = subject.account(&state);
        if closes {
            explanation.access = Access::Closed;
        }
        let event = EventText {
            reason: EventReason::VerificationFailed,
            message: explanation.to_string(),
            warning: true,
        };
        let action = if closes {
            verification::close(subject, &state, Closing::FailedAgain, event)
        } else {
            let event = self.is_worth_an_event(&state).then_some(event);
            self.record(&state, Recorded::Failure, asked_for, event)
        };
        Decision::new(explanation).acts(action)
    }

    /// A node that has used up its attempts keeps failing, and gets an event only when the cause changes.
    fn is_worth_an_event(self, state: &NodeState) -> bool {
        let before = self.so_far().and_then(|state| state.cause.as_ref());
        state.attempt <= self.subject.cx.policy.retry.max_attempts || before != state.cause.as_ref()
    }

    /// There was no verdict: the worker was evicted, deleted or lost. Too many such runs in a row are reported, but
    /// never count against the node. If the cluster was at fault in the last run that failed, it still is, so the node
    /// keeps counting as failing.
    pub(super) fn record_no_verdict(self, why: &str, asked_for: Option<Timestamp>) -> Decision {
        let blame = self.so_far().and_then(|state| state.blame);
        let run = FreeResult {
            blame: blame.filter(|blame| *blame == Blame::Cluster),
            cause: "NoVerdict",
            why,
            failed_at: self.last_failure(),
            asked_for,
        };
        self.record_without_cost(&run)
    }

    /// The checks failed, or could not be run, by no fault of the node.
    fn fail_by_fault_of(
        self,
        blame: Blame,
        cause: &str,
        why: &str,
        asked_for: Option<Timestamp>,
    ) -> Decision {
        let failed_at = match blame {
            Blame::Installation => self.last_failure(),
            Blame::Node | Blame::Unclear | Blame::Cluster => None,
        };
        self.record_without_cost(&FreeResult { blame: Some(blame), cause, why, failed_at, asked_for })
    }

    fn last_failure(self) -> Option<Timestamp> {
        self.subject.state.and_then(NodeState::last_failure)
    }

    /// Records a run that costs no attempt. The node is tried again, with a delay that grows each time.
    fn record_without_cost(self, run: &FreeResult<'_>) -> Decision {
        let subject = self.subject;
        let &FreeResult { blame, cause, why, failed_at, asked_for } = run;
        let settings = &subject.cx.policy.retry;
        let so_far = self.so_far();
        let inconclusive = self.runs_so_far().saturating_add(1);
        // No worker starts on a node that is not Ready, so that is not held against the node.
        let is_too_much =
            blame.is_none() && inconclusive >= settings.max_inconclusive_runs && subject.view.ready;
        let (before, attempts) = self.result_so_far();
        let (phase, attempt) = match (self.probation, blame) {
            // Earlier failures may have been the cluster's fault, too.
            (None, Some(Blame::Cluster)) => (StatePhase::Unverified, 0),
            (None, None) if is_too_much => (StatePhase::Failed, attempts),
            _ => (before, attempts),
        };
        let state = NodeState {
            phase,
            boot: so_far.map_or_else(|| subject.view.boot.clone(), |state| state.boot.clone()),
            attempt,
            inconclusive,
            blame,
            stays_open: so_far.is_some_and(|state| state.stays_open),
            run_boot: Some(subject.view.boot.clone()),
            failed_at,
            next_try: Some(subject.cx.now + settings.delay_after(inconclusive)),
            ..subject.next_state()
        }
        .because(cause, why);
        let explanation = subject.account(&state);
        let is_new = so_far.is_none_or(|state| state.cause.as_deref() != Some(cause));
        let was_out_of_runs = so_far.is_some_and(|state| {
            state.phase == StatePhase::Failed && state.inconclusive >= settings.max_inconclusive_runs
        });
        let reason = match blame {
            None if is_too_much && !was_out_of_runs => Some(EventReason::NoVerdict),
            Some(Blame::Cluster) if is_new => Some(EventReason::ClusterSuspected),
            Some(Blame::Installation) if is_new => Some(EventReason::VerificationBlocked),
            _ => None,
        };
        let event =
            reason.map(|reason| EventText { reason, message: explanation.to_string(), warning: true });
        Decision::new(explanation).acts(self.record(&state, Recorded::NoVerdict, asked_for, event))
    }

    /// The phase and the attempts that a run without cost leaves as they are. Failures that no longer count must not be
    /// recorded again, as if they were recent.
    fn result_so_far(self) -> (StatePhase, u32) {
        let Some(state) = self.so_far() else { return (StatePhase::Unverified, 0) };
        if state.phase != StatePhase::Failed || state.attempt == 0 {
            return (state.phase, state.attempt);
        }
        match self.subject.attempts_that_count(state) {
            0 => (StatePhase::Unverified, 0),
            attempts => (StatePhase::Failed, attempts),
        }
    }

    fn record(
        self,
        state: &NodeState,
        what: Recorded,
        asked_for: Option<Timestamp>,
        event: Option<EventText>,
    ) -> Action {
        let subject = self.subject;
        let label = &subject.cx.policy.verified_label;
        let patch = PatchBuilder::new(subject.view).state(state);
        // If no state was seen, the node may have been opened since, and somebody may have removed the state that was
        // recorded then.
        let patch = if subject.state.is_none() { patch.same_label(label) } else { patch };
        let patch = match state.phase {
            StatePhase::Failed => patch.unlabel(label),
            StatePhase::Verified | StatePhase::Unverified => patch,
        };
        let patch = subject.without_retry(patch, asked_for).build();
        Action::Record { node: subject.view.id.clone(), what, patch, event }
    }
}

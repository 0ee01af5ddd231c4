//! What is recorded of a run, and what follows from it.

use jiff::Timestamp;

use super::{IfItFails, Probation, Trial};
use crate::action::{Action, Closing, EventReason, EventText, Recorded};
use crate::decide::gate::{self, Evidence};
use crate::decide::scope::MayClose;
use crate::decide::{Decision, Mode, scope, tidy, verification};
use crate::explain::{Access, GateWait, Phase, Wait, Why};
use crate::fault::Blame;
use crate::patch::PatchBuilder;
use crate::state::{NodeState, StatePhase};
use crate::verdict::Fault;

impl<'a> Trial<'a> {
    /// The checks have passed: opens the gate, or records the pass on a node that is open.
    pub(in crate::decide) fn open(self, evidence: Evidence<'a>) -> Decision {
        let subject = self.subject;
        let Some(gate) = subject.cx.policy.checks_gate() else { return self.waiting(Wait::Opening) };
        let obstacle = gate::obstacle(subject, gate);
        let decision = match (evidence, &obstacle) {
            (Evidence::Recorded, _) => Decision::new(subject.explain(Phase::Verified, Why::TaintCameBack)),
            (_, None) => self.waiting(Wait::Opening).keeps_worker(),
            (_, Some(GateWait::Gate(gate))) => self.waiting(Wait::Gate(gate.clone())).keeps_worker(),
            (_, Some(_)) => self.waiting(Wait::Registration).keeps_worker(),
        };
        if obstacle.is_some() {
            return decision;
        }
        let shown = match (subject.cx.mode, evidence) {
            // With the label the pod leaves its node, and nobody is there to show the verdict later.
            (Mode::DaemonSet, Evidence::Run(worker)) => {
                tidy::verdict(subject, &gate::verified_by(subject, worker))
            }
            _ => None,
        };
        decision.acts(shown.unwrap_or_else(|| gate::open(subject, gate, evidence)))
    }

    /// The checks failed. Only what is the node's own fault, in a cluster that is well, costs an attempt.
    pub(super) fn fail(self, attempt: u32, asked_for: Option<Timestamp>, fault: &Fault) -> Decision {
        match (fault.blame, self.subject.trouble()) {
            (Blame::Node, None) => self.fail_by_its_own_fault(attempt, asked_for, fault),
            (Blame::Node | Blame::Cluster, Some(trouble)) => {
                let reason = format!("{}; {trouble}", fault.reason);
                self.record_without_cost(Some(Blame::Cluster), &fault.cause, &reason, asked_for)
            }
            (blame, _) => self.record_without_cost(Some(blame), &fault.cause, &fault.reason, asked_for),
        }
    }

    fn fail_by_its_own_fault(self, attempt: u32, asked_for: Option<Timestamp>, fault: &Fault) -> Decision {
        let subject = self.subject;
        let stays_open = match (self.probation, scope::may_close(subject, subject.taints())) {
            (None, _) | (Some(Probation { if_it_fails: IfItFails::Close, .. }), MayClose::Yes) => None,
            (Some(_), MayClose::No(why)) => Some(why.to_string()),
            (Some(Probation { why, if_it_fails: IfItFails::StayOpen }), _) => Some(why.to_string()),
            // What is recorded now would stand when it is known.
            (Some(Probation { if_it_fails: IfItFails::Close, .. }), MayClose::NotYetKnown(_)) => {
                return self.waiting(Wait::Pool);
            }
        };
        let closes = self.probation.is_some() && stays_open.is_none();
        let reason = match &stays_open {
            Some(why) => format!("{}; it stays open: {why}", fault.reason),
            None => fault.reason.clone(),
        };
        let compared = asked_for.and_then(|asked| {
            subject.cx.grants.fleet.pass_elsewhere(&subject.view.id.name, asked, subject.cx.now)
        });
        let state = NodeState {
            phase: StatePhase::Failed,
            attempt,
            next_try: Some(subject.cx.now + subject.cx.policy.retry.delay_after_attempt(attempt)),
            stays_open: stays_open.is_some(),
            compared,
            ..subject.next_state()
        }
        .because(&fault.cause, &reason);
        let mut told = subject.account(&state);
        if closes {
            told.access = Access::Closed;
        }
        let event =
            EventText { reason: EventReason::VerificationFailed, message: told.to_string(), warning: true };
        let action = if closes {
            verification::close(subject, &state, Closing::FailedAgain, event)
        } else {
            let event = self.is_worth_an_event(&state).then_some(event);
            self.record(&state, Recorded::Failure, asked_for, event)
        };
        Decision::new(told).acts(action)
    }

    /// A node that has failed for long keeps failing, and gets one event for each cause.
    fn is_worth_an_event(self, state: &NodeState) -> bool {
        let before = self.so_far().and_then(|state| state.cause.as_ref());
        state.attempt <= self.subject.cx.policy.retry.max_attempts || before != state.cause.as_ref()
    }

    /// There was no verdict at all: evicted, deleted, lost. Too many of these are reported, and count against no node.
    /// Where the cluster was at fault in the last run with a verdict, it still is: the node counts as failing.
    pub(super) fn record_no_verdict(self, why: &str) -> Decision {
        let blame = self.so_far().and_then(|state| state.blame);
        self.record_without_cost(blame.filter(|blame| *blame == Blame::Cluster), "NoVerdict", why, None)
    }

    /// A run that costs no attempt. The node is tried again, each time a little later.
    fn record_without_cost(
        self,
        blame: Option<Blame>,
        cause: &str,
        why: &str,
        asked_for: Option<Timestamp>,
    ) -> Decision {
        let subject = self.subject;
        let settings = &subject.cx.policy.retry;
        let so_far = self.so_far();
        let inconclusive = self.runs_so_far().saturating_add(1);
        let is_too_much = blame.is_none() && inconclusive >= settings.max_inconclusive_runs;
        let before = so_far.map_or(StatePhase::Unverified, |state| state.phase);
        let (phase, attempt) = match (self.probation, blame) {
            // What it failed before may have been the cluster's fault, too.
            (None, Some(Blame::Cluster)) => (StatePhase::Unverified, 0),
            (None, None) if is_too_much => (StatePhase::Failed, so_far.map_or(0, |state| state.attempt)),
            _ => (before, so_far.map_or(0, |state| state.attempt)),
        };
        let state = NodeState {
            phase,
            boot: so_far.map_or_else(|| subject.view.boot.clone(), |state| state.boot.clone()),
            attempt,
            inconclusive,
            blame,
            stays_open: so_far.is_some_and(|state| state.stays_open),
            run_boot: Some(subject.view.boot.clone()),
            next_try: Some(subject.cx.now + settings.delay_after(inconclusive)),
            ..subject.next_state()
        }
        .because(cause, why);
        let told = subject.account(&state);
        let is_new = so_far.is_none_or(|state| state.cause.as_deref() != Some(cause));
        let reason = match blame {
            None if inconclusive == settings.max_inconclusive_runs => Some(EventReason::NoVerdict),
            Some(Blame::Cluster) if is_new => Some(EventReason::ClusterSuspected),
            Some(Blame::Installation) if is_new => Some(EventReason::VerificationBlocked),
            _ => None,
        };
        let event = reason.map(|reason| EventText { reason, message: told.to_string(), warning: true });
        Decision::new(told).acts(self.record(&state, Recorded::NoVerdict, asked_for, event))
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
        // Where no state was seen, the node may have been opened since, and a person may have removed the state of that.
        let patch = if subject.state.is_none() { patch.same_label(label) } else { patch };
        let patch = match state.phase {
            StatePhase::Failed => patch.unlabel(label),
            StatePhase::Verified | StatePhase::Unverified => patch,
        };
        let patch = subject.without_retry(patch, asked_for).build();
        Action::Record { node: subject.view.id.clone(), what, patch, event }
    }
}

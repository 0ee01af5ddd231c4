//! The node that is being decided about.

use jiff::Timestamp;

use super::{Context, Seat};
use crate::config::Taint;
use crate::explain::{Door, Explanation, Phase};
use crate::names;
use crate::state::{NodeState, StatePhase};
use crate::view::{NodeView, Purpose, Stamp};
use crate::world::{NodeEntry, SeenWorker};

/// Everything about one node, in one place.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) cx: Context<'a>,
    pub(super) entry: &'a NodeEntry,
    pub(super) view: &'a NodeView,
    /// What the node carries, if it is about this node. Not always about this boot.
    pub(super) state: Option<&'a NodeState>,
}

impl<'a> Subject<'a> {
    /// The taints of the verification gate.
    pub(super) fn taints(&self) -> &'a [Taint] {
        &self.cx.config.node_management.taints
    }

    /// The node carries a taint of the verification gate.
    pub(super) fn is_tainted(&self) -> bool {
        self.taints().iter().any(|taint| self.view.position(taint).is_some())
    }

    /// The node carries the verified label.
    pub(super) fn is_labelled(&self) -> bool {
        let label = &self.cx.config.node_management.verified_label;
        self.view.labels.get(&label.key) == Some(label.value.as_str())
    }

    /// What the state says of the node as it runs now.
    pub(super) fn state_of_this_boot(&self) -> Option<&'a NodeState> {
        self.state.filter(|state| state.boot == self.view.boot)
    }

    /// One of our gates is closed.
    pub(super) fn door(&self) -> Door {
        let startup = &self.cx.config.gates;
        let closed =
            self.is_tainted() || startup.iter().any(|gate| self.view.position(&gate.taint).is_some());
        if closed { Door::Closed } else { Door::Open }
    }

    pub(super) fn explain(&self, phase: Phase, why: impl Into<String>) -> Explanation {
        Explanation::new(phase, self.door(), why)
    }

    /// The phase which the node's own state tells, whatever a worker may be doing.
    pub(super) fn phase(&self) -> Phase {
        phase_of(self.state)
    }

    /// What the verdict that the node carries says, without regard to the time and to other gates.
    pub(super) fn account(&self, state: &NodeState) -> Explanation {
        let settings = &self.cx.config.reconciliation;
        let reason = state.why();
        let door = if self.is_tainted() { Door::Closed } else { Door::Open };
        match state.phase {
            StatePhase::Verified => Explanation::new(
                Phase::Verified,
                Door::Open,
                format!("verified on attempt {}", state.attempt),
            ),
            StatePhase::Unverified if state.inconclusive == 0 => {
                Explanation::new(Phase::Unverified, door, reason)
            }
            StatePhase::Unverified => {
                let why = format!("run {} gave no verdict: {reason}", state.inconclusive);
                let told = Explanation::new(Phase::Unverified, door, why);
                state.next_try.into_iter().fold(told, |told, at| told.then("next try", at))
            }
            StatePhase::Failed => {
                let attempt = self.attempt_of(state.attempt);
                let why = match state.inconclusive {
                    0 => format!("{attempt} failed: {reason}"),
                    runs if runs >= settings.max_inconclusive_runs => {
                        format!("no verdict in {runs} runs: {reason}")
                    }
                    runs => format!("{attempt} failed, then run {runs} gave no verdict: {reason}"),
                };
                let goes_on = !self.is_exhausted(state) && (self.is_tainted() || state.next_try.is_some());
                match state.next_try.filter(|_| goes_on) {
                    None if goes_on => Explanation::new(Phase::Failed, door, why),
                    Some(at) => Explanation::new(Phase::Failed, door, why).then("next try", at),
                    None => Explanation::new(Phase::Failed, door, format!("{why}; {}", self.remedy())),
                }
            }
        }
    }

    /// An attempt in words. Who never gives up goes beyond the number that was set.
    pub(super) fn attempt_of(&self, attempt: u32) -> String {
        match self.cx.config.reconciliation.max_retries {
            of if attempt > of => format!("attempt {attempt}"),
            of => format!("attempt {attempt} of {of}"),
        }
    }

    fn remedy(&self) -> String {
        let (name, annotation) = (&self.view.id.name, names::STATE_ANNOTATION);
        format!("no further try; mend the node, then: kubectl annotate node {name} {annotation}-")
    }

    /// No further try follows by itself. After a failure that was hardly the node's own, one does.
    pub(super) fn is_exhausted(&self, state: &NodeState) -> bool {
        match self.cx.seat {
            Seat::Controller => self.is_spent(state),
            Seat::Node => false,
        }
    }

    fn is_spent(&self, state: &NodeState) -> bool {
        let settings = &self.cx.config.reconciliation;
        let is_failed = state.phase == StatePhase::Failed && state.next_try.is_none();
        is_failed && state.attempt >= settings.max_retries
            || state.inconclusive >= settings.max_inconclusive_runs
    }

    /// The stamp of the next worker: whatever does not carry exactly this one is not about the node as it is now.
    pub(super) fn next_stamp(&self, purpose: Purpose, attempt: u32) -> Stamp {
        let serial = self.state.map_or(0, |state| state.serial).saturating_add(1);
        Stamp { node: self.view.id.clone(), boot: self.view.boot.clone(), serial, attempt, purpose }
    }

    /// Whether something stamped so speaks about the node as it is now, for this purpose, and has not been heard yet.
    pub(super) fn is_current(&self, stamp: &Stamp, purpose: Purpose) -> bool {
        *stamp == self.next_stamp(purpose, stamp.attempt)
    }

    /// The worker of this node, whatever its stamp.
    pub(super) fn worker(&self) -> Option<&'a SeenWorker> {
        let mut workers = self.entry.workers.values().map(Box::as_ref);
        workers.find(|worker| worker.view.stamp.node == self.view.id)
    }

    /// When the evidence of a worker was made, at the earliest. If we have not asked for it, all we know is that its
    /// node was there.
    pub(super) fn made_at(&self, worker: &SeenWorker) -> Timestamp {
        worker.asked_for.unwrap_or(self.view.created)
    }

    /// The state to record next, with the result of one more worker in it.
    pub(super) fn next_state(&self) -> NodeState {
        let now = self.cx.now;
        let fresh = NodeState::new(self.view.id.uid.clone(), self.view.boot.clone(), now);
        NodeState { serial: self.state.map_or(0, |state| state.serial).saturating_add(1), ..fresh }
    }

    /// Gates that stay closed although nobody looks after them, for the explanation.
    pub(super) fn orphaned_gates(&self) -> String {
        match self.door() {
            Door::Open => String::new(),
            Door::Closed => "; it still carries a gate taint, which is yours to remove".to_owned(),
        }
    }
}

/// The phase which a state tells, if there is one.
pub(super) fn phase_of(state: Option<&NodeState>) -> Phase {
    match state.map(|state| state.phase) {
        Some(StatePhase::Verified) => Phase::Verified,
        Some(StatePhase::Failed) => Phase::Failed,
        Some(StatePhase::Unverified) | None => Phase::Unverified,
    }
}

//! The node that is being decided about.

use jiff::Timestamp;

use super::Context;
use crate::config::Taint;
use crate::explain::{Door, Explanation, Phase};
use crate::fault::Blame;
use crate::ids::Requires;
use crate::names;
use crate::patch::PatchBuilder;
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
        let door = if self.is_tainted() { Door::Closed } else { Door::Open };
        let explain = |phase, why: String| {
            let cause = state.cause.clone().unwrap_or_else(|| "Unverified".to_owned());
            let told = Explanation::new(phase, door, why).because(cause);
            state.next_try.into_iter().fold(told, |told, at| told.then("next try", at))
        };
        match state.phase {
            StatePhase::Verified if state.inconclusive == 0 => {
                let why = format!("verified on attempt {}", state.attempt);
                Explanation::new(Phase::Verified, Door::Open, why)
            }
            StatePhase::Verified => explain(Phase::Verified, self.run_of(state)),
            StatePhase::Unverified if state.inconclusive == 0 => {
                explain(Phase::Unverified, state.why().to_owned())
            }
            StatePhase::Unverified => explain(Phase::Unverified, self.run_of(state)),
            StatePhase::Failed => {
                let attempt = self.attempt_of(state.attempt);
                let why = match state.inconclusive {
                    0 => format!("{attempt} failed: {}", state.why()),
                    _ if state.attempt == 0 => self.run_of(state),
                    _ => format!("{attempt} failed, then {}", self.run_of(state)),
                };
                let why = if self.has_used_up_attempts(state) {
                    let (name, annotation) = (&self.view.id.name, names::RETRY_ANNOTATION);
                    format!("{why}; to try again at once: kubectl annotate node {name} {annotation}=now")
                } else {
                    why
                };
                explain(Phase::Failed, why)
            }
        }
    }

    /// The last run that cost no attempt, in words.
    pub(super) fn run_of(&self, state: &NodeState) -> String {
        let (runs, reason) = (state.inconclusive, state.why());
        match state.blame {
            Some(Blame::Cluster) => format!("run {runs} failed by no fault of the node: {reason}"),
            Some(Blame::Installation) => format!("verification is blocked: {reason}"),
            Some(Blame::Node) | None if runs >= self.cx.config.reconciliation.max_inconclusive_runs => {
                format!("no verdict in {runs} runs: {reason}")
            }
            Some(Blame::Node) | None => format!("run {runs} gave no verdict: {reason}"),
        }
    }

    /// An attempt in words. A node that has used up its attempts goes on beyond their number.
    pub(super) fn attempt_of(&self, attempt: u32) -> String {
        match self.cx.config.reconciliation.max_retries {
            of if attempt > of => format!("attempt {attempt}"),
            of => format!("attempt {attempt} of {of}"),
        }
    }

    /// The node counts as failed. It is still tried again.
    pub(super) fn has_used_up_attempts(&self, state: &NodeState) -> bool {
        let settings = &self.cx.config.reconciliation;
        let is_out_of_runs = state.blame.is_none() && state.inconclusive >= settings.max_inconclusive_runs;
        state.phase == StatePhase::Failed && (state.attempt >= settings.max_retries || is_out_of_runs)
    }

    /// Failed attempts since the cluster was last in trouble. What failed before may not have been the node's fault.
    pub(super) fn attempts_that_count(&self, state: &NodeState) -> u32 {
        let is_required = state.requires.as_ref().is_none_or(|requires| self.is_required(requires));
        if is_required && self.cx.fleet.is_after_trouble(self.entry.state_seen) { state.attempt } else { 0 }
    }

    /// Why the cluster rather than this node is to blame, if it is.
    pub(super) fn trouble(&self) -> Option<String> {
        self.cx.fleet.trouble(&self.cx.config.limits.deletion, self.cx.now)
    }

    /// When an operator was seen to ask for an attempt at once.
    pub(super) fn retry_requested(&self) -> Option<Timestamp> {
        self.entry.retry_requested
    }

    /// Removes the request for an attempt, if this is the attempt: its worker was asked for after the request.
    pub(super) fn without_retry<'p>(
        &self,
        patch: PatchBuilder<'p>,
        asked_for: Option<Timestamp>,
    ) -> PatchBuilder<'p> {
        let is_served = |requested: Timestamp| asked_for.is_some_and(|asked| asked >= requested);
        if self.retry_requested().is_some_and(is_served) {
            patch.remove_annotation(names::RETRY_ANNOTATION)
        } else {
            patch
        }
    }

    /// The stamp of the next worker: whatever does not carry exactly this one is not about the node as it is now.
    pub(super) fn next_stamp(&self, purpose: Purpose, attempt: u32) -> Stamp {
        let serial = self.state.map_or(0, |state| state.serial).saturating_add(1);
        let (node, boot, requires) = (self.view.id.clone(), self.view.boot.clone(), self.cx.requires.clone());
        Stamp { node, boot, serial, attempt, purpose, requires }
    }

    /// Whether something stamped so speaks about the node as it is now, for this purpose, and has not been heard yet.
    pub(super) fn is_current(&self, stamp: &Stamp, purpose: Purpose) -> bool {
        let next = Stamp { requires: stamp.requires.clone(), ..self.next_stamp(purpose, stamp.attempt) };
        *stamp == next && self.is_required(&stamp.requires)
    }

    /// Whether a run with these requirements checked what is required now. A worker of an earlier release does not say.
    fn is_required(&self, requires: &Requires) -> bool {
        requires.as_str().is_empty() || requires == self.cx.requires
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
        NodeState {
            serial: self.state.map_or(0, |state| state.serial).saturating_add(1),
            requires: Some(self.cx.requires.clone()),
            ..fresh
        }
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

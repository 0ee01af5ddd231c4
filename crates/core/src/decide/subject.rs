//! The node that a decision is about.

use jiff::Timestamp;

use super::Context;
use crate::action::worker_name;
use crate::config::Taint;
use crate::explain::{Access, Attempt, Explanation, FreeRun, LastResult, Phase, RunKind, Trouble, Wait, Why};
use crate::fault::Blame;
use crate::grants::fleet::Seen;
use crate::ids::{PolicyName, Requires};
use crate::names;
use crate::patch::PatchBuilder;
use crate::policy::{Gate, Policy};
use crate::setback::Complaint;
use crate::state::{NodeState, StatePhase};
use crate::view::{NodeView, Purpose, Stamp};
use crate::world::{NodeEntry, SeenWorker};

/// Everything about one node that a decision needs.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) cx: Context<'a>,
    pub(super) entry: &'a NodeEntry,
    pub(super) view: &'a NodeView,
    /// The state recorded on the node, if it is about this node. It may be about an earlier boot.
    pub(super) state: Option<&'a NodeState>,
}

impl<'a> Subject<'a> {
    /// The taints of the verification gate.
    pub(super) fn taints(&self) -> &'a [Taint] {
        self.cx.policy.checks_gate().map_or(&[], |gate| &gate.taints)
    }

    /// The node carries a taint of the gate.
    pub(super) fn is_closed(&self, gate: &Gate) -> bool {
        gate.taints.iter().any(|taint| self.view.position(taint).is_some())
    }

    /// The verification gate is closed.
    pub(super) fn is_tainted(&self) -> bool {
        self.cx.policy.checks_gate().is_some_and(|gate| self.is_closed(gate))
    }

    /// The node carries the verified label.
    pub(super) fn is_labelled(&self) -> bool {
        let label = &self.cx.policy.verified_label;
        self.view.labels.get(&label.key) == Some(label.value.as_str())
    }

    /// The state, if it is about the current boot of the node.
    pub(super) fn state_of_this_boot(&self) -> Option<&'a NodeState> {
        self.state.filter(|state| state.boot == self.view.boot)
    }

    /// When this process learned of the state.
    pub(super) fn learned_of_state(&self) -> Seen {
        Seen { at: self.entry.state_seen, fact: self.entry.state_fact }
    }

    pub(super) fn access(&self) -> Access {
        let is_closed = self.cx.policy.gates.iter().any(|gate| self.is_closed(gate));
        if is_closed { Access::Closed } else { Access::Open }
    }

    pub(super) fn explain(&self, phase: Phase, why: impl Into<Why>) -> Explanation {
        Explanation::new(phase, self.access(), why)
    }

    /// The phase by the node's recorded state, regardless of its worker.
    pub(super) fn phase(&self) -> Phase {
        phase_of(self.state)
    }

    /// Explains the verdict in a state, regardless of the time and of other gates.
    pub(super) fn account(&self, state: &NodeState) -> Explanation {
        if state.phase == StatePhase::Verified && state.inconclusive == 0 {
            let why = Why::Verified { attempt: Some(state.attempt) };
            return Explanation::new(Phase::Verified, Access::Open, why);
        }
        let access = if self.is_tainted() { Access::Closed } else { Access::Open };
        let explanation = Explanation::new(phase_of(Some(state)), access, self.last_result(state));
        state.next_try.into_iter().fold(explanation, Explanation::tried_again_at)
    }

    pub(super) fn last_result(&self, state: &NodeState) -> LastResult {
        let has_failed = state.phase == StatePhase::Failed && (state.inconclusive == 0 || state.attempt > 0);
        LastResult {
            cause: state.cause.clone().unwrap_or_else(|| "Unverified".to_owned()),
            reason: state.why().to_owned(),
            failed: has_failed.then(|| self.attempt_of(state.attempt)),
            run: (state.inconclusive > 0).then(|| self.run_of(state)),
            retry: self.has_used_up_attempts(state).then(|| self.view.id.name.clone()),
        }
    }

    /// The last run that cost no attempt.
    fn run_of(&self, state: &NodeState) -> FreeRun {
        let number = state.inconclusive;
        let kind = match state.blame {
            Some(Blame::Cluster) => RunKind::Cluster,
            Some(Blame::Installation) => RunKind::Blocked,
            Some(Blame::Node | Blame::Unclear) | None
                if number >= self.cx.policy.retry.max_inconclusive_runs =>
            {
                RunKind::OutOfRuns
            }
            Some(Blame::Node | Blame::Unclear) | None => RunKind::NoVerdict,
        };
        FreeRun { number, kind }
    }

    pub(super) fn attempt_of(&self, number: u32) -> Attempt {
        Attempt { number, of: self.cx.policy.retry.max_attempts }
    }

    /// The node counts as failed. It is still tried again.
    pub(super) fn has_used_up_attempts(&self, state: &NodeState) -> bool {
        let retry = &self.cx.policy.retry;
        let is_out_of_runs = state.blame.is_none() && state.inconclusive >= retry.max_inconclusive_runs;
        state.phase == StatePhase::Failed && (state.attempt >= retry.max_attempts || is_out_of_runs)
    }

    /// The number of failed attempts since the cluster was last in trouble. Earlier failures may not have been the
    /// node's fault.
    pub(super) fn attempts_that_count(&self, state: &NodeState) -> u32 {
        let is_required = self.is_required(state.policy.as_ref(), state.requires.as_ref());
        let (fleet, entry) = (&self.cx.grants.fleet, self.entry);
        // When a state was recorded says something only about the time before this process saw the node: clocks differ.
        let was_found = entry.state_seen == entry.seen;
        let is_after_trouble = fleet.is_after_trouble(entry.state_seen)
            && (!was_found || fleet.is_recorded_after_trouble(state.at));
        if is_required && is_after_trouble { state.attempt } else { 0 }
    }

    /// Returns why the cluster rather than this node is suspected, if it is.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.cx.grants.trouble(self.cx.policy, self.cx.now)
    }

    /// When the request for an immediate attempt was first seen.
    pub(super) fn retry_requested(&self) -> Option<Timestamp> {
        self.entry.retry_requested
    }

    /// Removes the request for an attempt, if the attempt that ends now served it: its worker was ordered after the
    /// request.
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

    /// The stamp of the next worker. A worker with any other stamp says nothing about the node as it is now.
    pub(super) fn next_stamp(&self, purpose: Purpose, attempt: u32) -> Stamp {
        let Policy { name, requires, .. } = self.cx.policy;
        Stamp {
            node: self.view.id.clone(),
            boot: self.view.boot.clone(),
            serial: self.state.map_or(0, |state| state.serial).saturating_add(1),
            attempt,
            purpose,
            policy: name.clone(),
            requires: requires.clone(),
        }
    }

    /// Returns whether a worker with this stamp is about the node as it is now, serves this purpose, and has a result
    /// that is not recorded yet.
    pub(super) fn is_current(&self, stamp: &Stamp, purpose: Purpose) -> bool {
        let Stamp { policy, requires, .. } = stamp.clone();
        let next = Stamp { policy, requires, ..self.next_stamp(purpose, stamp.attempt) };
        *stamp == next && self.is_required(Some(&stamp.policy), Some(&stamp.requires))
    }

    /// Returns whether a run checked what is required of the node now. Runs of earlier releases do not record what they
    /// checked, and count.
    pub(super) fn is_required(&self, policy: Option<&PolicyName>, requires: Option<&Requires>) -> bool {
        let now = self.cx.policy;
        policy.is_none_or(|policy| policy.as_str().is_empty() || *policy == now.name)
            && requires.is_none_or(|requires| requires.as_str().is_empty() || *requires == now.requires)
    }

    /// What a node waits for whose next worker is due.
    pub(super) fn wait_for_worker(&self) -> Wait {
        match self.cx.history.setbacks.about_worker(&self.view.id) {
            Some(Complaint::Refused(why)) => Wait::RefusedWorker(why.clone()),
            Some(Complaint::Contradicted) => Wait::NameTaken(worker_name(&self.view.id.uid)),
            _ if !self.view.ready => Wait::Ready,
            Some(Complaint::Unavailable) => Wait::ApiServer,
            None => Wait::Slot,
        }
    }

    /// The worker of this node, whatever its stamp.
    pub(super) fn worker(&self) -> Option<&'a SeenWorker> {
        let mut workers = self.entry.workers.values().map(Box::as_ref);
        workers.find(|worker| worker.view.stamp.node == self.view.id)
    }

    /// The earliest time at which the evidence of a worker can have been made. For a worker that this process did not
    /// order, it is only known that its node existed.
    pub(super) fn made_at(&self, worker: &SeenWorker) -> Timestamp {
        worker.asked_for.unwrap_or(self.view.created)
    }

    /// The state to record next, which accounts for one more worker.
    pub(super) fn next_state(&self) -> NodeState {
        let now = self.cx.now;
        let fresh = NodeState::new(self.view.id.uid.clone(), self.view.boot.clone(), now);
        NodeState {
            serial: self.state.map_or(0, |state| state.serial).saturating_add(1),
            policy: Some(self.cx.policy.name.clone()),
            requires: Some(self.cx.policy.requires.clone()),
            trouble: self.cx.grants.fleet.trouble_to_record(),
            ..fresh
        }
    }
}

/// The phase that corresponds to a recorded state.
pub(super) fn phase_of(state: Option<&NodeState>) -> Phase {
    match state.map(|state| state.phase) {
        Some(StatePhase::Verified) => Phase::Verified,
        Some(StatePhase::Failed) => Phase::Failed,
        Some(StatePhase::Unverified) | None => Phase::Unverified,
    }
}

//! Evaluates the requirements of gates, and opens and closes them.

mod pods;

use jiff::Timestamp;

use super::scope::{self, MayClose};
use super::subject::Subject;
use super::{Decision, Want, verification};
use crate::action::{Action, Closing, EventReason, EventText};
use crate::explain::{ClosedGate, GateWait, Message};
use crate::names;
use crate::patch::PatchBuilder;
use crate::policy::{Gate, PodRequirement, Requirement};
use crate::state::{NodeState, StatePhase};
use crate::world::SeenWorker;

/// Whether the requirement of a closed gate is met.
pub(super) enum Evaluation<'a> {
    Met(Evidence<'a>),
    Unmet(GateWait),
    NotBefore(Timestamp, GateWait),
}

/// The evidence that a requirement is met.
#[derive(Clone, Copy)]
pub(super) enum Evidence<'a> {
    /// The checks passed in this worker.
    Run(&'a SeenWorker),
    /// The checks passed earlier in this boot of the node.
    Recorded,
    Pods(&'a PodRequirement),
}

pub(super) fn evaluate<'a>(subject: &Subject<'a>, gate: &'a Gate) -> Evaluation<'a> {
    match &gate.requirement {
        Requirement::Checks => verification::evaluate(subject),
        Requirement::Pods(pods) => pods::evaluate(subject, pods),
    }
}

/// Returns what keeps a gate closed although its requirement is met.
pub(super) fn obstacle(subject: &Subject<'_>, gate: &Gate) -> Option<GateWait> {
    let policy = subject.cx.policy;
    let is_closed = |name: &&String| policy.gate(name).is_some_and(|gate| subject.is_closed(gate));
    if let Some(earlier) = gate.after.iter().find(is_closed) {
        return Some(GateWait::Gate(earlier.clone()));
    }
    scope::awaits_karpenter(subject).then_some(GateWait::Registration)
}

/// Decides about a gate that needs no worker, and adds to the explanation what it waits for.
pub(super) fn consider<'a>(subject: &Subject<'a>, gate: &'a Gate, decision: &mut Decision) -> Option<Want> {
    if !subject.is_closed(gate) {
        return close_if_idle(subject, gate).map(Want::Act);
    }
    let (wait, opens) = match evaluate(subject, gate) {
        Evaluation::Unmet(wait) => (wait, None),
        Evaluation::NotBefore(at, wait) => {
            decision.wake_by(at);
            (wait, None)
        }
        Evaluation::Met(evidence) => match obstacle(subject, gate) {
            Some(wait) => (wait, None),
            None => opening(subject, open(subject, gate, evidence)),
        },
    };
    decision.explanation.gates.push(ClosedGate { gate: gate.name.clone(), wait });
    opens
}

/// A gate opens, unless the API server refuses that.
fn opening(subject: &Subject<'_>, action: Action) -> (GateWait, Option<Want>) {
    let refusal = subject.cx.history.setbacks.refusal_of(&action);
    let wait = refusal.map_or(GateWait::Opening, |why| GateWait::Refused(why.to_owned()));
    (wait, Some(Want::Act(action)))
}

/// Opens a gate, and records the evidence on the node.
pub(super) fn open<'a>(subject: &Subject<'a>, gate: &'a Gate, evidence: Evidence<'a>) -> Action {
    let patch = PatchBuilder::new(subject.view).take_off(&gate.taints);
    let label = &subject.cx.policy.verified_label;
    let (patch, reason, message) = match evidence {
        Evidence::Run(worker) => {
            let state = verified_by(subject, worker);
            let patch = subject.without_retry(patch.label(label).state(&state), worker.asked_for);
            (patch, EventReason::Verified, subject.account(&state).to_string())
        }
        Evidence::Recorded => {
            let message = Message::TaintRemovedAgain.to_string();
            let patch = patch.same_label(label).unchanged(names::STATE_ANNOTATION);
            (patch, EventReason::TaintRemovedAgain, message)
        }
        Evidence::Pods(pods) => {
            let completed = subject.cx.now.as_second().to_string();
            let message = Message::StartupCompleted { gate: &gate.name }.to_string();
            let patch = patch.annotate(&pods.completed_annotation, completed);
            (patch, EventReason::StartupCompleted, message)
        }
    };
    let event = EventText { reason, message, warning: false };
    Action::OpenGate { node: subject.view.id.clone(), gate: gate.name.clone(), patch: patch.build(), event }
}

/// The state of a node whose worker passed.
pub(super) fn verified_by(subject: &Subject<'_>, worker: &SeenWorker) -> NodeState {
    NodeState {
        phase: StatePhase::Verified,
        attempt: worker.view.stamp.attempt,
        // The gate may have had to wait before it opened. The time that counts is that of the evidence, not that of its
        // use.
        at: subject.made_at(worker),
        ..subject.next_state()
    }
}

/// Closes a gate that a node never had, if backfill is enabled and the node is idle.
fn close_if_idle(subject: &Subject<'_>, gate: &Gate) -> Option<Action> {
    let has_opened =
        |pods: &PodRequirement| subject.view.annotations.contains_key(&pods.completed_annotation);
    let had_it = matches!(&gate.requirement, Requirement::Pods(pods) if has_opened(pods));
    let is_verified = subject.state.is_some() || subject.is_labelled();
    let is_wanted = subject.cx.policy.backfill && !had_it && !is_verified && verification::is_idle(subject);
    let may_close = || {
        matches!(scope::may_close(subject, &gate.taints), MayClose::Yes)
            && verification::kept_open(subject).is_none()
    };
    (is_wanted && may_close()).then(|| close_idle(subject, gate))
}

/// Closes a gate on an idle node that never had it.
pub(super) fn close_idle(subject: &Subject<'_>, gate: &Gate) -> Action {
    let patch = PatchBuilder::new(subject.view)
        .put_on(&gate.taints)
        .unchanged(names::STATE_ANNOTATION)
        .same_label(&subject.cx.policy.verified_label);
    let patch = match &gate.requirement {
        Requirement::Checks => patch,
        Requirement::Pods(pods) => patch.unchanged(&pods.completed_annotation),
    };
    let message = Message::Backfilled { gate: &gate.name }.to_string();
    Action::CloseGate {
        node: subject.view.id.clone(),
        gate: gate.name.clone(),
        because: Closing::Backfill,
        patch: patch.build(),
        event: EventText { reason: EventReason::Backfilled, message, warning: false },
    }
}

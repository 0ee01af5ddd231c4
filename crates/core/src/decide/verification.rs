//! The verification gate, which opens when the checks pass in a worker on the node.

use jiff::Timestamp;

use super::attempts::{Attempts, IfItFails, Probation, Progress, progress};
use super::gate::{self, Evaluation, Evidence};
use super::scope::{self, MayClose};
use super::subject::Subject;
use super::{Context, Decision, Mode, Want, deletion};
use crate::action::{Action, Closing, EventReason, EventText};
use crate::config::OnReboot;
use crate::explain::{GateWait, KeptOpen, LeftAlone, Message, NeverGated, Phase, ProbationReason, Why};
use crate::names;
use crate::patch::PatchBuilder;
use crate::state::{NodeState, StatePhase};
use crate::verdict::Verdict;
use crate::view::{Occupancy, Purpose};
use crate::world::SeenWorker;

/// The status of a node with regard to the verification gate.
pub(super) enum Status {
    /// Left alone: it was verified before the controller saw it, or someone else removed the taint.
    Untouched(LeftAlone),
    /// Never had the gate, and was never verified.
    Ungated,
    /// Open, and rightly so.
    Verified,
    /// Verified, but somebody put the taint back.
    TaintCameBack,
    /// Open, but has to prove itself again.
    OnProbation(Probation),
    /// Open, but to be closed at once.
    ToBeClosed,
    Closed,
}

pub(super) fn status(subject: &Subject<'_>) -> Status {
    let verified = subject.state.filter(|state| state.phase == StatePhase::Verified);
    let same_boot = verified.is_some_and(|state| state.boot == subject.view.boot);
    match (subject.is_tainted(), subject.state.map(|state| state.phase)) {
        (true, Some(StatePhase::Verified)) if same_boot && subject.is_labelled() => Status::TaintCameBack,
        (true, _) => Status::Closed,
        (false, Some(StatePhase::Verified)) => match subject.cx.policy.on_reboot {
            OnReboot::Close if !same_boot && is_closed_first(subject) => Status::ToBeClosed,
            OnReboot::Verify | OnReboot::Close if !same_boot => on_probation(ProbationReason::Rebooted),
            _ if !subject.is_labelled() => on_probation(ProbationReason::LabelRemoved),
            _ if subject.entry.unsound => on_probation(ProbationReason::ChecksFailed),
            _ if verified.is_some_and(|state| state.inconclusive > 0) => {
                on_probation(ProbationReason::NoVerdict)
            }
            _ => Status::Verified,
        },
        (false, Some(StatePhase::Failed | StatePhase::Unverified)) => match subject.cx.mode {
            Mode::Controller if subject.state.is_some_and(|state| state.stays_open) => {
                on_probation(ProbationReason::FailedOpen)
            }
            Mode::Controller => Status::Untouched(LeftAlone::TaintRemoved),
            Mode::DaemonSet => never_closed(ProbationReason::NoTaint),
        },
        (false, None) => match (subject.cx.mode, subject.is_labelled()) {
            (Mode::Controller, true) => Status::Untouched(LeftAlone::VerifiedBefore),
            (Mode::Controller, false) => Status::Ungated,
            (Mode::DaemonSet, true) if subject.entry.unsound => on_probation(ProbationReason::ChecksFailed),
            (Mode::DaemonSet, true) => Status::Verified,
            (Mode::DaemonSet, false) => never_closed(ProbationReason::NeverGated),
        },
    }
}

fn on_probation(why: ProbationReason) -> Status {
    Status::OnProbation(Probation { why, if_it_fails: IfItFails::Close })
}

/// A node that failed is not closed here: somebody removed its taint for a reason, or it never had one and may be in
/// use.
fn never_closed(why: ProbationReason) -> Status {
    Status::OnProbation(Probation { why, if_it_fails: IfItFails::StayOpen })
}

/// A rebooted node is closed before it is verified, unless it may not be closed or is being verified already.
fn is_closed_first(subject: &Subject<'_>) -> bool {
    may_be_closed(subject) && subject.worker().is_none() && kept_open(subject).is_none()
}

/// Why the node may not be closed now, for the sake of the whole cluster.
pub(super) fn kept_open(subject: &Subject<'_>) -> Option<KeptOpen> {
    let Context { grants, policy, now, .. } = subject.cx;
    grants.closing(&subject.view.id.name, policy, now)
}

pub(super) fn may_be_closed(subject: &Subject<'_>) -> bool {
    matches!(scope::may_close(subject, subject.taints()), MayClose::Yes)
}

/// Evaluates whether the checks have passed on a node that is closed or on probation.
pub(super) fn evaluate<'a>(subject: &Subject<'a>) -> Evaluation<'a> {
    let is_current = |worker: &&SeenWorker| {
        !worker.view.leaving && subject.is_current(&worker.view.stamp, Purpose::Verify)
    };
    match status(subject) {
        Status::TaintCameBack => Evaluation::Met(Evidence::Recorded),
        Status::Closed | Status::OnProbation(_) => match subject.worker().filter(is_current) {
            Some(worker)
                if matches!(progress(subject, worker), Progress::Over { verdict: Verdict::Pass, .. }) =>
            {
                Evaluation::Met(Evidence::Run(worker))
            }
            _ => Evaluation::Unmet(GateWait::Checks),
        },
        _ => Evaluation::Unmet(GateWait::Checks),
    }
}

pub(super) fn consider(subject: &Subject<'_>) -> Decision {
    match status(subject) {
        Status::Untouched(why) => untouched(subject, why),
        Status::Ungated => ungated(subject),
        Status::Verified => verified(subject),
        Status::ToBeClosed => close_rebooted(subject),
        Status::OnProbation(probation) => tried(Attempts { subject, probation: Some(probation) }),
        Status::TaintCameBack | Status::Closed => tried(Attempts { subject, probation: None }),
    }
}

/// A node that has to prove itself.
fn tried(attempts: Attempts<'_>) -> Decision {
    let subject = attempts.subject;
    match subject.cx.policy.checks_gate().map(|gate| gate::evaluate(subject, gate)) {
        Some(Evaluation::Met(evidence)) => attempts.open(evidence),
        Some(Evaluation::Unmet(_) | Evaluation::NotBefore(..)) | None => attempts.consider(),
    }
}

fn untouched(subject: &Subject<'_>, left: LeftAlone) -> Decision {
    let failed = subject.state.filter(|state| state.phase == StatePhase::Failed);
    let why = match failed {
        None => Why::LeftAlone(left),
        Some(state) => Why::FailedOpen {
            reason: state.why().to_owned(),
            because: may_be_closed(subject).then_some(left),
        },
    };
    Decision::new(subject.explain(Phase::OutOfScope, why))
}

/// A node that never had the gate is closed only if backfill is enabled and nothing runs there that would suffer.
fn ungated(subject: &Subject<'_>) -> Decision {
    let leave = |what| Decision::new(subject.explain(Phase::OutOfScope, Why::NeverGated(what)));
    let Some(gate) = subject.cx.policy.checks_gate().filter(|_| subject.cx.policy.backfill) else {
        return leave(NeverGated::Left);
    };
    if let MayClose::No(why) | MayClose::NotYetKnown(why) = scope::may_close(subject, &gate.taints) {
        return leave(NeverGated::Kept(why));
    }
    let again = subject.cx.now + subject.cx.interval;
    match (fresh_occupancy(subject), kept_open(subject)) {
        (Some((Occupancy::Busy(pod), until)), _) => leave(NeverGated::Busy { pod: pod.clone() }).wakes(until),
        // To find out what runs there would be in vain now, and costs a request.
        (_, Some(why)) => leave(NeverGated::Kept(why)).wakes(again),
        (Some((Occupancy::Idle, _)), None) => {
            leave(NeverGated::Closing).acts(gate::close_idle(subject, gate))
        }
        (None, None) => leave(NeverGated::Left).wants(Want::Occupancy(subject.view.id.clone())).wakes(again),
    }
}

/// The last known occupancy of the node and when it expires, unless it has expired.
fn fresh_occupancy<'a>(subject: &Subject<'a>) -> Option<(&'a Occupancy, Timestamp)> {
    let seen = subject.entry.occupancy.as_ref()?;
    let until = seen.expires(subject.cx.interval);
    (subject.cx.now < until).then_some((&seen.occupancy, until))
}

pub(super) fn is_idle(subject: &Subject<'_>) -> bool {
    matches!(fresh_occupancy(subject), Some((Occupancy::Idle, _)))
}

/// A verified node needs nothing, but it may serve for a reference run.
fn verified(subject: &Subject<'_>) -> Decision {
    let decision = Decision::new(match subject.state {
        Some(state) => subject.account(state),
        None => subject.explain(Phase::Verified, Why::Verified { attempt: None }),
    });
    let reference = |worker: &&SeenWorker| subject.is_current(&worker.view.stamp, Purpose::Reference);
    let Some(worker) = subject.worker().filter(reference) else {
        return Decision { can_run_reference: true, ..decision };
    };
    // It may have ended because it received a signal to stop.
    if worker.view.leaving {
        return decision;
    }
    match progress(subject, worker) {
        Progress::Waiting { until: Some(until), .. } => decision.wakes(until).keeps_worker(),
        // The node is not Ready. Another one can make the reference run.
        Progress::Waiting { until: None, .. } => decision,
        Progress::Unsure => decision.wants(Want::Reread(subject.view.id.clone())).keeps_worker(),
        Progress::Over { verdict, .. } => {
            decision.acts(deletion::record_reference(subject, worker, &verdict))
        }
    }
}

fn close_rebooted(subject: &Subject<'_>) -> Decision {
    let why = Why::Rebooted;
    // The serial is incremented although no worker reported: any worker in flight is about the previous boot.
    let state = subject.next_state().because("Rebooted", &why.to_string());
    let message = Message::Closed(&why).to_string();
    let action = close(
        subject,
        &state,
        Closing::Rebooted,
        EventText { reason: EventReason::Closed, message, warning: true },
    );
    Decision::new(subject.explain(Phase::Unverified, why)).acts(action)
}

pub(super) fn close(subject: &Subject<'_>, state: &NodeState, because: Closing, event: EventText) -> Action {
    let label = &subject.cx.policy.verified_label;
    let patch = PatchBuilder::new(subject.view).put_on(subject.taints()).unlabel(label).state(state).build();
    let (node, gate) = (subject.view.id.clone(), names::VERIFICATION_GATE.to_owned());
    Action::CloseGate { node, gate, because, patch, event }
}

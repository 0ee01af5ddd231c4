//! The verification gate: opened by checks which a worker runs on the node.

use jiff::Timestamp;

use super::scope::MayClose;
use super::subject::Subject;
use super::trial::{IfItFails, Probation, Progress, Trial, progress};
use super::{Decision, Seat, Want, deletion, scope, startup};
use crate::action::{Action, Closing, Headline, News};
use crate::config::OnReboot;
use crate::explain::Phase;
use crate::names;
use crate::patch::PatchBuilder;
use crate::state::{NodeState, StatePhase};
use crate::view::{Occupancy, Purpose};
use crate::world::SeenWorker;

const UNSOUND: &str = "the checks failed again and again";

/// Where a node stands with regard to this gate.
pub(super) enum Standing {
    /// Not ours: it never had the gate, or others opened it.
    Untouched(&'static str),
    /// Never had the gate, and nobody has verified it.
    Ungated,
    /// Open, and rightly so.
    Verified,
    /// Open, but somebody put the taint back.
    TaintCameBack,
    /// Open, but to be proven again.
    OnProbation(Probation),
    /// Open, but to be closed at once.
    ToBeClosed,
    /// Closed.
    Closed,
}

pub(super) fn standing(subject: &Subject<'_>) -> Standing {
    let verified = subject.state.filter(|state| state.phase == StatePhase::Verified);
    let same_boot = verified.is_some_and(|state| state.boot == subject.view.boot);
    let on_reboot = subject.cx.config.node_management.on_reboot;
    match (subject.is_tainted(), subject.state.map(|state| state.phase)) {
        (true, Some(StatePhase::Verified)) if same_boot && subject.is_labelled() => Standing::TaintCameBack,
        (true, _) => Standing::Closed,
        (false, Some(StatePhase::Verified)) => match on_reboot {
            OnReboot::Close if !same_boot && may_be_closed(subject) => Standing::ToBeClosed,
            OnReboot::Verify | OnReboot::Close if !same_boot => on_probation("the node was restarted"),
            _ if !subject.is_labelled() => on_probation("the verified label was removed"),
            _ if subject.entry.unsound => on_probation(UNSOUND),
            _ => Standing::Verified,
        },
        (false, Some(StatePhase::Failed | StatePhase::Unverified)) => match subject.cx.seat {
            Seat::Controller if subject.state.is_some_and(|state| state.stays_open) => {
                on_probation("it failed and was not closed")
            }
            Seat::Controller => Standing::Untouched("the taint was taken off by somebody else"),
            Seat::Node => never_closed("it carries no gate taint"),
        },
        (false, None) => match (subject.cx.seat, subject.is_labelled()) {
            (Seat::Controller, true) => Standing::Untouched("it was verified before we came"),
            (Seat::Controller, false) => Standing::Ungated,
            (Seat::Node, true) if subject.entry.unsound => on_probation(UNSOUND),
            (Seat::Node, true) => Standing::Verified,
            (Seat::Node, false) => never_closed("it never had the gate"),
        },
    }
}

fn on_probation(why: &'static str) -> Standing {
    Standing::OnProbation(Probation { why, if_it_fails: IfItFails::Close })
}

/// Whoever takes a taint off has a reason, and what never had one may be in use.
fn never_closed(why: &'static str) -> Standing {
    Standing::OnProbation(Probation { why, if_it_fails: IfItFails::StayOpen })
}

pub(super) fn may_be_closed(subject: &Subject<'_>) -> bool {
    matches!(scope::may_close(subject, subject.taints().iter()), MayClose::Yes)
}

pub(super) fn consider(subject: &Subject<'_>) -> Decision {
    match standing(subject) {
        Standing::Untouched(why) => untouched(subject, why),
        Standing::Ungated => ungated(subject),
        Standing::Verified => verified(subject),
        Standing::TaintCameBack => open_again(subject),
        Standing::ToBeClosed => close_rebooted(subject),
        Standing::OnProbation(probation) => Trial { subject, probation: Some(probation) }.consider(),
        Standing::Closed => Trial { subject, probation: None }.consider(),
    }
}

fn untouched(subject: &Subject<'_>, why: &str) -> Decision {
    let failed = subject.state.filter(|state| state.phase == StatePhase::Failed);
    let why = match failed {
        None => format!("left alone: {why}"),
        Some(state) => {
            let reason = state.why();
            let why = if may_be_closed(subject) { format!("; {why}") } else { String::new() };
            format!("left alone although it failed: {reason}{why}")
        }
    };
    Decision::new(subject.explain(Phase::OutOfScope, why))
}

/// A node that never had the gate is closed only if that was asked for and nothing runs there that would suffer.
fn ungated(subject: &Subject<'_>) -> Decision {
    let leave = |why: String| {
        Decision::new(subject.explain(Phase::OutOfScope, format!("left alone: it never had the gate{why}")))
    };
    if !subject.cx.config.node_management.backfill {
        return leave(String::new());
    }
    if let MayClose::No(why) | MayClose::NotYetKnown(why) = scope::may_close(subject, subject.taints().iter())
    {
        return leave(format!(", and {why}"));
    }
    let again = subject.cx.now + subject.cx.config.reconciliation.interval();
    match fresh_occupancy(subject) {
        None => leave(String::new()).wants(Want::Occupancy(subject.view.id.clone())).wakes(again),
        Some((Occupancy::Busy(pod), until)) => leave(format!(", and {pod} runs there")).wakes(until),
        Some((Occupancy::Idle, _)) => {
            let message = "closed: the node never had the gate and is idle".to_owned();
            let patch = PatchBuilder::new(subject.view)
                .put_on(subject.taints())
                .unchanged(names::STATE_ANNOTATION)
                .same_label(&subject.cx.config.node_management.verified_label)
                .build();
            leave(", and is closed now".to_owned()).acts(Action::CloseGate {
                node: subject.view.id.clone(),
                gate: names::VERIFICATION_GATE.to_owned(),
                because: Closing::Backfill,
                patch,
                news: News { headline: Headline::Backfilled, message, warning: false },
            })
        }
    }
}

/// What runs on the node, and until when that counts.
fn fresh_occupancy<'a>(subject: &Subject<'a>) -> Option<(&'a Occupancy, Timestamp)> {
    let seen = subject.entry.occupancy.as_ref()?;
    let until = seen.expires(subject.cx.config.reconciliation.interval());
    (subject.cx.now < until).then_some((&seen.occupancy, until))
}

pub(super) fn is_idle(subject: &Subject<'_>) -> bool {
    matches!(fresh_occupancy(subject), Some((Occupancy::Idle, _)))
}

/// A verified node needs nothing, but the checks may run there for comparison.
fn verified(subject: &Subject<'_>) -> Decision {
    let decision = Decision::new(match subject.state {
        Some(state) => subject.account(state),
        None => subject.explain(Phase::Verified, "verified"),
    });
    let reference = |worker: &&SeenWorker| subject.is_current(&worker.view.stamp, Purpose::Reference);
    let Some(worker) = subject.worker().filter(reference) else {
        return Decision { can_run_reference: true, ..decision };
    };
    match progress(subject, worker) {
        Progress::Waiting { until: Some(until), .. } => decision.wakes(until).keeps_worker(),
        // The node is not Ready, and another one can run the checks.
        Progress::Waiting { until: None, .. } => decision,
        Progress::Unsure => decision.wants(Want::Reread(subject.view.id.clone())).keeps_worker(),
        Progress::Over(verdict) => decision.acts(deletion::record_reference(subject, worker, &verdict)),
    }
}

/// Autoscalers put startup taints back. What the node has proven in this boot still holds.
fn open_again(subject: &Subject<'_>) -> Decision {
    let decision = Decision::new(
        subject.explain(Phase::Verified, "verified, but somebody put the taint back; it is taken off again"),
    );
    let settings = &subject.cx.config.node_management;
    let is_early = startup::first_closed(subject, settings.after.iter().map(String::as_str)).is_some();
    if is_early || scope::awaits_karpenter(subject) {
        return decision;
    }
    let label = &settings.verified_label;
    let patch = PatchBuilder::new(subject.view)
        .take_off(subject.taints())
        .same_label(label)
        .unchanged(names::STATE_ANNOTATION)
        .build();
    decision.acts(Action::OpenGate {
        node: subject.view.id.clone(),
        gate: names::VERIFICATION_GATE.to_owned(),
        patch,
        news: News {
            headline: Headline::TaintRemovedAgain,
            message: "open: the node is verified and somebody had put the taint back".to_owned(),
            warning: false,
        },
    })
}

fn close_rebooted(subject: &Subject<'_>) -> Decision {
    let why = "the node was restarted and has to be verified anew";
    // The next number, although no worker was heard: whatever is under way is about the time before.
    let state = subject.next_state().because("Rebooted", why);
    let message = format!("closed: {why}");
    let action = close(
        subject,
        &state,
        Closing::Rebooted,
        News { headline: Headline::Closed, message, warning: true },
    );
    Decision::new(subject.explain(Phase::Unverified, why)).acts(action)
}

pub(super) fn close(subject: &Subject<'_>, state: &NodeState, because: Closing, news: News) -> Action {
    let label = &subject.cx.config.node_management.verified_label;
    let patch = PatchBuilder::new(subject.view).put_on(subject.taints()).unlabel(label).state(state).build();
    let (node, gate) = (subject.view.id.clone(), names::VERIFICATION_GATE.to_owned());
    Action::CloseGate { node, gate, because, patch, news }
}

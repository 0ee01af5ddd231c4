//! Nodes that used up their attempts: held, or deleted if the operator wants that and a fair trial speaks for it.
//!
//! The trial: the node fails, the same checks pass on a verified node, the node fails again, and the checks still pass
//! elsewhere; all in one boot, all since the cluster was last in trouble, and all within minutes.

use jiff::SignedDuration;

use super::subject::Subject;
use super::{Decision, Want, scope};
use crate::action::{Action, EventReason, EventText, Recorded};
use crate::explain::{NotDeleted, Note};
use crate::fault::Blame;
use crate::grants::Deletion;
use crate::grants::fleet::{Fleet, Seen};
use crate::patch::PatchBuilder;
use crate::state::{NodeState, Reference};
use crate::verdict::Verdict;
use crate::world::SeenWorker;

/// A node is deleted within this long of the failure that decided it, or tried again before.
const DECIDED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// What is to be done about a node that failed, while it waits for its next attempt.
pub(super) enum Step {
    /// Nothing: it is not to be deleted.
    None,
    Hold(NotDeleted),
    /// This comes next.
    Want(Want, Note),
    /// The checks passed elsewhere, so it is tried again at once: if it fails now, it is its own fault.
    FinalAttempt,
}

/// Each condition that is not met holds the node, and is reported.
pub(super) fn consider(subject: &Subject<'_>, state: &NodeState) -> Step {
    let cx = subject.cx;
    if !is_candidate(subject, state) {
        return Step::None;
    }
    if scope::is_control_plane(subject) {
        return Step::Hold(NotDeleted::ControlPlane);
    }
    if !state.is_own_failure() || state.attempt < cx.policy.retry.max_attempts {
        return Step::Hold(NotDeleted::NoVerdict);
    }
    if let Some(trouble) = subject.trouble() {
        return Step::Hold(NotDeleted::Trouble(trouble));
    }
    if subject.attempts_that_count(state) == 0 {
        return Step::Hold(NotDeleted::TriedFirst);
    }
    let grant = cx.grants.deletion(&subject.view.id, cx.policy, cx.world, cx.now);
    if let Deletion::Denied(why) = grant {
        return Step::Hold(why);
    }
    let name = &subject.view.id.name;
    let reference = |why| Step::Want(Want::Reference, Note::NotDeleted(why));
    if is_decided(subject, state) {
        return if still_pass_elsewhere(subject) {
            delete(subject, state, grant)
        } else {
            reference(NotDeleted::ReferenceAgain)
        };
    }
    if cx.grants.fleet.pass_elsewhere(name, cx.now, cx.now).is_none() {
        return reference(NotDeleted::ReferenceFirst);
    }
    match cx.grants.final_attempt(name, cx.policy, cx.world, cx.now) {
        Some(denied) => Step::Hold(denied),
        None => Step::FinalAttempt,
    }
}

/// The node counts as failed, and is to be deleted for that.
pub(super) fn is_candidate(subject: &Subject<'_>, state: &NodeState) -> bool {
    subject.cx.policy.delete_failed_nodes && subject.has_used_up_attempts(state)
}

/// What completes the trial of a node whose next attempt is due: another attempt now would begin it again.
pub(super) fn complete(subject: &Subject<'_>, state: &NodeState, decision: Decision) -> Option<Decision> {
    match consider(subject, state) {
        Step::Want(Want::Reference, note)
            if is_decided(subject, state) && subject.cx.grants.fleet.runs_reference() =>
        {
            Some(hold(subject, decision, note))
        }
        Step::Want(want @ Want::Act(_), note) => Some(hold(subject, decision, note).wants(want)),
        Step::Want(..) | Step::None | Step::Hold(_) | Step::FinalAttempt => None,
    }
}

/// Adds why a node is not deleted yet to what is said about it, and looks at it again later.
pub(super) fn hold(subject: &Subject<'_>, decision: Decision, note: Note) -> Decision {
    decision.notes(note).wakes(subject.cx.now + subject.cx.interval)
}

/// The last failure completes a fair trial, and is recent by this clock and by that of who recorded it.
fn is_decided(subject: &Subject<'_>, state: &NodeState) -> bool {
    let now = subject.cx.now;
    let is_recent = |at| now.duration_since(at).abs() < DECIDED_FOR;
    let fair = |comparison| Fleet::is_recent(comparison, now);
    state.compared.as_ref().is_some_and(fair) && is_recent(state.at) && is_recent(subject.entry.state_seen)
}

/// An outage may have begun just before the last failure.
fn still_pass_elsewhere(subject: &Subject<'_>) -> bool {
    let entry = subject.entry;
    let failed = Seen { at: entry.state_seen, fact: entry.state_fact };
    subject.cx.grants.fleet.has_passed_since(failed, subject.cx.now)
}

fn delete(subject: &Subject<'_>, state: &NodeState, grant: Deletion) -> Step {
    match grant {
        Deletion::Denied(why) => Step::Hold(why),
        Deletion::Free(reserve) => Step::Want(Want::Act(reserve), Note::DeletionReserved),
        Deletion::Reserved => {
            let delete = Action::DeleteNode {
                node: subject.view.id.clone(),
                version: subject.view.version,
                claim: subject.view.claim.clone(),
                event: event(subject, state),
            };
            Step::Want(Want::Act(delete), Note::Deleting)
        }
    }
}

fn event(subject: &Subject<'_>, state: &NodeState) -> EventText {
    let attempt = subject.attempt_of(state.attempt);
    let passed =
        state.compared.as_ref().map(|compared| format!("; the same checks passed on {}", compared.node));
    let message = format!("deleted: {attempt} failed: {}{}", state.why(), passed.unwrap_or_default());
    EventText { reason: EventReason::NodeDeleted, message, warning: true }
}

/// Keeps the result of the checks on a verified node. Whatever it is, the node stays open: this was not about it.
pub(super) fn record_reference(subject: &Subject<'_>, worker: &SeenWorker, verdict: &Verdict) -> Action {
    let pass = match verdict {
        Verdict::Pass => Some(true),
        Verdict::Fail(fault) if fault.blame != Blame::Installation => Some(false),
        Verdict::Fail(_) | Verdict::Inconclusive(_) => None,
    };
    let at = subject.made_at(worker);
    let before = subject.state.cloned().unwrap_or_else(|| subject.next_state());
    let state = NodeState {
        serial: before.serial.saturating_add(1),
        reference: pass.map(|pass| Reference { pass, at }).or(before.reference.clone()),
        ..before
    };
    let patch = PatchBuilder::new(subject.view).state(&state).build();
    Action::Record { node: subject.view.id.clone(), what: Recorded::Comparison, patch, event: None }
}

//! Nodes that used up their attempts: held, or deleted if the operator enabled that and a fair trial supports it.
//!
//! The trial: the node fails, the same checks pass on a verified node, the node fails again, and the checks still pass
//! elsewhere; all in one boot, all since the cluster was last in trouble, and all within minutes.

use jiff::{SignedDuration, Timestamp};

use super::subject::Subject;
use super::{Decision, Want, scope};
use crate::action::{Action, EventReason, EventText, Recorded};
use crate::explain::{Message, NotDeleted, Note, later};
use crate::fault::Blame;
use crate::grants::Deletion;
use crate::grants::fleet::Fleet;
use crate::patch::PatchBuilder;
use crate::state::{NodeState, Reference};
use crate::verdict::Verdict;
use crate::world::SeenWorker;

/// A node is deleted within this long after the failure that completed its trial. After that it is tried again first.
const DECIDED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// The next step toward the deletion of a failed node, while it waits for its next attempt.
pub(super) enum Step {
    /// The node is not to be deleted.
    None,
    Hold(NotDeleted),
    Want(Want, Note),
    /// The checks passed elsewhere, so the node is tried again at once. If it fails now, that is its own fault.
    FinalAttempt,
}

/// Decides on the next step. Any condition that is not met holds the node, and is reported.
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

/// The node counts as failed, and the policy deletes failed nodes.
pub(super) fn is_candidate(subject: &Subject<'_>, state: &NodeState) -> bool {
    subject.cx.policy.delete_failed_nodes && subject.has_used_up_attempts(state)
}

/// Continues the trial of a node whose next attempt is due, if possible: another attempt now would restart the trial.
/// Its next step may only wait for a reference run that is under way, and no longer than that may take, because a node
/// is not to be kept from recovering.
pub(super) fn complete(
    subject: &Subject<'_>,
    state: &NodeState,
    due: Timestamp,
    decision: Decision,
) -> Option<Decision> {
    let worker = &subject.cx.policy.worker;
    let until = later(due, worker.pending_timeout() + worker.runs_within());
    let is_awaited = subject.cx.grants.runs_reference() && subject.cx.now < until;
    match consider(subject, state) {
        Step::Want(Want::Reference, _) if !is_awaited => None,
        Step::Want(want, note) => Some(hold(subject, decision, note).wants(want)),
        Step::None | Step::Hold(_) | Step::FinalAttempt => None,
    }
}

/// Adds to the explanation why a node is not deleted yet, and reconsiders the node after an interval.
pub(super) fn hold(subject: &Subject<'_>, decision: Decision, note: Note) -> Decision {
    decision.notes(note).wakes(subject.cx.now + subject.cx.interval)
}

/// The last failure completes a fair trial, and is recent both by this clock and by the clock of the process that
/// recorded it.
fn is_decided(subject: &Subject<'_>, state: &NodeState) -> bool {
    let now = subject.cx.now;
    let is_recent = |at| now.duration_since(at).abs() < DECIDED_FOR;
    let passed_elsewhere = state.passed_elsewhere.as_ref().is_some_and(|pass| Fleet::is_recent(pass, now));
    passed_elsewhere && is_recent(state.at) && is_recent(subject.entry.state_seen)
}

/// An outage may have begun just before the last failure.
fn still_pass_elsewhere(subject: &Subject<'_>) -> bool {
    let (fleet, name) = (&subject.cx.grants.fleet, &subject.view.id.name);
    fleet.has_passed_elsewhere_after(name, subject.learned_of_state(), subject.cx.now)
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
    let passed_on = state.passed_elsewhere.as_ref().map(|pass| &pass.node);
    let message = Message::Deleted { attempt, reason: state.why(), passed_on }.to_string();
    EventText { reason: EventReason::NodeDeleted, message, warning: true }
}

/// Records the result of a reference run. The node stays open either way, because the run was not about this node.
pub(super) fn record_reference(subject: &Subject<'_>, worker: &SeenWorker, verdict: &Verdict) -> Action {
    let pass = match verdict {
        Verdict::Pass => Some(true),
        Verdict::Fail(fault) if fault.blame != Blame::Installation => Some(false),
        Verdict::Fail(_) | Verdict::Inconclusive(_) => None,
    };
    let (at, requires) = (subject.made_at(worker), Some(worker.view.stamp.requires.clone()));
    let before = subject.state.cloned().unwrap_or_else(|| subject.next_state());
    let state = NodeState {
        serial: before.serial.saturating_add(1),
        reference: pass.map(|pass| Reference { pass, at, requires }).or(before.reference.clone()),
        // A failed reference run is trouble that no record shows yet, and another leader has to learn of it.
        trouble: match pass {
            Some(false) => Some(subject.cx.now),
            Some(true) | None => subject.cx.grants.fleet.trouble_to_record(),
        },
        ..before
    };
    let patch = PatchBuilder::new(subject.view).state(&state).build();
    Action::Record { node: subject.view.id.clone(), what: Recorded::Reference, patch, event: None }
}

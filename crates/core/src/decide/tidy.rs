//! What is left to do once the gates are as they should be.

use jiff::{SignedDuration, Timestamp};

use super::subject::Subject;
use super::{Context, Decision};
use crate::action::{Action, Removal};
use crate::explain::{Access, Explanation, Note, Phase, Reason, Why, later};
use crate::fault::{Blame, WorkerFailure};
use crate::state::{NodeState, StatePhase};
use crate::view::{Condition, ConditionStatus, WorkerView};
use crate::world::NodeEntry;

/// A node that is open within this long of being ready needs no condition that says why it is not.
const SOON: SignedDuration = SignedDuration::from_secs(10);
/// The same for a node that is not ready, from when it was first seen.
const NOT_READY: SignedDuration = SignedDuration::from_secs(30);

/// Shows the verdict, or why there is none. It says `True` only of a node that is open.
pub(super) fn condition(subject: &Subject<'_>, decision: &mut Decision) -> Option<Action> {
    let judged = subject.state.filter(|_| has_verdict(subject));
    match judged {
        Some(state) if state.phase == StatePhase::Failed => verdict(subject, state),
        _ if is_closed_by_another_gate(subject, decision) => waiting(subject, decision),
        Some(state) => verdict(subject, state),
        None => no_verdict(subject, decision),
    }
}

/// The gate with the checks is open, and another one keeps the node closed.
fn is_closed_by_another_gate(subject: &Subject<'_>, decision: &Decision) -> bool {
    !subject.is_tainted() && decision.explanation.access == Access::Closed
}

pub(super) fn remove(worker: &WorkerView, why: Removal) -> Action {
    Action::RemoveWorker { node: worker.stamp.node.clone(), worker: worker.id.clone(), why }
}

/// The node carries a verdict about how it is now.
fn has_verdict(subject: &Subject<'_>) -> bool {
    let is_of_this_boot = subject.state_of_this_boot().is_some();
    subject.state.is_some_and(|state| match state.phase {
        StatePhase::Verified => {
            let still_holds = is_of_this_boot && subject.is_labelled();
            state.inconclusive == 0 && (still_holds || !subject.is_tainted())
        }
        StatePhase::Failed => {
            is_of_this_boot && (state.inconclusive == 0 || subject.has_used_up_attempts(state))
        }
        StatePhase::Unverified => false,
    })
}

/// The condition follows from the state alone, so it is written once for each verdict.
pub(super) fn verdict(subject: &Subject<'_>, state: &NodeState) -> Option<Action> {
    let (status, reason) = match state.phase {
        StatePhase::Verified => (ConditionStatus::True, "Verified"),
        StatePhase::Failed => (ConditionStatus::False, state.cause.as_deref().unwrap_or("Failed")),
        StatePhase::Unverified => return None,
    };
    let message = subject.account(state).to_string();
    let condition = Condition { status, reason: reason.to_owned(), message };
    (subject.view.condition.as_ref() != Some(&condition)).then(|| set(subject, condition))
}

/// A node that is closed, or open on probation, and has no verdict for how it is now. It says what came of the last run, or
/// else what it waits for.
fn no_verdict(subject: &Subject<'_>, decision: &mut Decision) -> Option<Action> {
    if decision.explanation.phase == Phase::OutOfScope {
        return left_alone(subject, decision);
    }
    if let Some(state) = subject.state.filter(|state| state.says_why()) {
        let condition = unknown(&subject.account(state));
        return (subject.view.condition.as_ref() != Some(&condition)).then(|| set(subject, condition));
    }
    if subject.is_tainted() { waiting(subject, decision) } else { None }
}

/// What a closed node waits for, unless it opens so soon that nobody would read it.
fn waiting(subject: &Subject<'_>, decision: &mut Decision) -> Option<Action> {
    let condition = unknown(&decision.explanation);
    if is_shown(subject, &condition) {
        return None;
    }
    let at = worth_saying_at(subject);
    if subject.view.condition.is_none() && subject.cx.now < at && !is_installation(&condition.reason) {
        decision.wake_by(at);
        return None;
    }
    Some(set(subject, condition))
}

/// A node that was closed, is open now, and carries no verdict: what it waited for is no longer true.
fn left_alone(subject: &Subject<'_>, decision: &Decision) -> Option<Action> {
    let condition = unknown(&decision.explanation);
    let is_outdated =
        |known: &Condition| known.status == ConditionStatus::Unknown && !is_shown(subject, &condition);
    subject.view.condition.as_ref().is_some_and(is_outdated).then(|| set(subject, condition))
}

/// A node that cannot be changed, because the API server refuses that.
pub(super) fn refused_write(subject: &Subject<'_>, decision: &Decision, why: &str) -> Option<Action> {
    let mut told = decision.explanation.clone();
    told.notes.push(Note::Refused { order: "change the node".to_owned(), why: why.to_owned() });
    let condition = Condition { reason: Reason::WriteRefused.word().to_owned(), ..unknown(&told) };
    (!is_shown(subject, &condition)).then(|| set(subject, condition))
}

/// The node shows this reason already. The message may have changed since, which is not worth a write.
fn is_shown(subject: &Subject<'_>, condition: &Condition) -> bool {
    let is_same = |known: &Condition| (known.status, &known.reason) == (condition.status, &condition.reason);
    subject.view.condition.as_ref().is_some_and(is_same)
}

/// Nothing will change until somebody acts.
fn is_installation(reason: &str) -> bool {
    WorkerFailure::ALL
        .iter()
        .any(|failure| failure.blame() == Blame::Installation && failure.word() == reason)
}

fn unknown(told: &Explanation) -> Condition {
    let (reason, message) = (told.word().into_owned(), told.to_string());
    Condition { status: ConditionStatus::Unknown, reason, message }
}

fn worth_saying_at(subject: &Subject<'_>) -> Timestamp {
    match subject.entry.ready_since {
        Some(ready) => later(ready.max(subject.entry.seen), SOON),
        None => later(subject.entry.seen, NOT_READY),
    }
}

fn set(subject: &Subject<'_>, condition: Condition) -> Action {
    let before = subject.view.condition.as_ref().map(|known| known.status);
    Action::SetCondition { node: subject.view.id.clone(), condition, before }
}

pub(super) fn spent_worker(subject: &Subject<'_>, is_wanted: bool) -> Option<Action> {
    let is_needed = |worker: &WorkerView| is_wanted && worker.stamp.node == subject.view.id;
    let why = match subject.state.map(|state| state.phase) {
        Some(StatePhase::Verified) => Removal::Spent,
        Some(StatePhase::Failed | StatePhase::Unverified) | None => Removal::Heard,
    };
    let mut spent = subject.entry.workers.values().map(|worker| &worker.view);
    spent.find(|worker| !worker.leaving && !is_needed(worker)).map(|worker| remove(worker, why))
}

/// A worker of an earlier node of this name.
pub(super) fn foreign_worker(subject: &Subject<'_>) -> Option<Action> {
    let mut workers = subject.entry.workers.values().map(|worker| &worker.view);
    workers
        .find(|worker| worker.stamp.node != subject.view.id && !worker.leaving)
        .map(|worker| remove(worker, Removal::NodeGone))
}

/// Workers whose node is gone. The garbage collector removes them too, some time.
pub(super) fn orphans(cx: Context<'_>, entry: &NodeEntry) -> Decision {
    let decision = Decision::new(Explanation::new(Phase::OutOfScope, Access::Open, Why::Gone));
    let interval = cx.interval;
    // The node may only be late: its own watch can be behind that of the workers.
    match entry.workers.values().find(|worker| !worker.view.leaving) {
        Some(worker) if cx.now < worker.since + interval => decision.wakes(worker.since + interval),
        Some(worker) => decision.acts(remove(&worker.view, Removal::NodeGone)),
        None => decision,
    }
}

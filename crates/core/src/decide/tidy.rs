//! Cleanup once the gates are as they should be: the condition, and workers that are no longer needed.

use jiff::{SignedDuration, Timestamp};

use super::subject::Subject;
use super::{Context, Decision};
use crate::action::{Action, Removal};
use crate::explain::{Access, Explanation, Note, Phase, Reason, Why, later};
use crate::fault::Blame;
use crate::state::{NodeState, StatePhase};
use crate::view::{Condition, ConditionStatus, WorkerView};
use crate::world::NodeEntry;

/// A node that opens within this long of being Ready needs no condition that says why it is closed. Once it has one, a
/// new reason has to last for this long.
const SOON: SignedDuration = SignedDuration::from_secs(10);
/// The same for a node that is not Ready, counted from when it was first seen.
const NOT_READY: SignedDuration = SignedDuration::from_secs(30);

/// Shows the verdict as the condition, or why there is none. The condition is `True` only on an open node. A fault of
/// the installation comes before the verdict, which is not updated until that is fixed.
pub(super) fn condition(subject: &Subject<'_>, decision: &mut Decision) -> Option<Action> {
    if decision.explanation.is_blocked() {
        return waiting(subject, decision);
    }
    let judged = subject.state.filter(|_| has_verdict(subject));
    let is_closed = decision.explanation.access == Access::Closed;
    match judged {
        Some(state) if state.phase == StatePhase::Failed || !is_closed => verdict(subject, state),
        None if subject.is_tainted() || !is_closed => no_verdict(subject, decision),
        Some(_) | None => waiting(subject, decision),
    }
}

pub(super) fn remove(worker: &WorkerView, why: Removal) -> Action {
    Action::RemoveWorker { node: worker.stamp.node.clone(), worker: worker.id.clone(), why }
}

/// The node carries a verdict that applies to it as it is now.
fn has_verdict(subject: &Subject<'_>) -> bool {
    let is_of_this_boot = subject.state_of_this_boot().is_some();
    subject.state.is_some_and(|state| match state.phase {
        StatePhase::Verified => {
            let still_holds = is_of_this_boot && subject.is_labelled();
            state.inconclusive == 0 && (still_holds || !subject.is_tainted())
        }
        StatePhase::Failed => {
            let is_blocked = state.blame == Some(Blame::Installation);
            let is_last_word = subject.has_used_up_attempts(state) && !is_blocked;
            is_of_this_boot && (state.inconclusive == 0 || is_last_word)
        }
        StatePhase::Unverified => false,
    })
}

/// The condition is derived from the state alone, so it is written once for each verdict.
pub(super) fn verdict(subject: &Subject<'_>, state: &NodeState) -> Option<Action> {
    let (status, reason) = match state.phase {
        StatePhase::Verified => (ConditionStatus::True, "Verified"),
        StatePhase::Failed => (ConditionStatus::False, state.cause.as_deref().unwrap_or("Failed")),
        StatePhase::Unverified => return None,
    };
    let message = subject.account(state).to_string();
    let condition = Condition { status, reason: reason.to_owned(), message };
    (subject.view.condition.as_ref() != Some(&condition)).then(|| set(subject, condition, false))
}

/// The condition of a node that has no current verdict and is closed, or open on probation. It reports the result of
/// the last run or, failing that, what the node waits for.
fn no_verdict(subject: &Subject<'_>, decision: &mut Decision) -> Option<Action> {
    if decision.explanation.phase == Phase::OutOfScope {
        return left_alone(subject, decision);
    }
    if let Some(state) = subject.state.filter(|state| state.says_why()) {
        let condition = unknown(&subject.account(state));
        return (subject.view.condition.as_ref() != Some(&condition)).then(|| set(subject, condition, false));
    }
    if subject.is_tainted() { waiting(subject, decision) } else { None }
}

/// The condition of a node that an operator has paused. While it is open it needs none, but an earlier one may no longer
/// be true.
pub(super) fn paused(subject: &Subject<'_>, decision: &mut Decision) -> Option<Action> {
    match decision.explanation.access {
        Access::Closed => waiting(subject, decision),
        Access::Open => left_alone(subject, decision),
    }
}

/// Reports what a node waits for, unless that may be over so soon that nobody would read it.
fn waiting(subject: &Subject<'_>, decision: &mut Decision) -> Option<Action> {
    let condition = unknown(&decision.explanation);
    let at = due(subject, &decision.explanation, &condition)?;
    let only_waits = !decision.explanation.is_urgent();
    set_at(at, subject, decision, condition, only_waits)
}

/// Updates the condition of a node that was closed, is open now and carries no verdict: it no longer waits for what the
/// condition says.
fn left_alone(subject: &Subject<'_>, decision: &mut Decision) -> Option<Action> {
    let is_unknown = |known: &Condition| known.status == ConditionStatus::Unknown;
    if subject.view.condition.as_ref().is_some_and(is_unknown) { waiting(subject, decision) } else { None }
}

/// Reports that the API server refuses writes to the node.
pub(super) fn refused_write(subject: &Subject<'_>, decision: &mut Decision, why: &str) -> Option<Action> {
    let mut explanation = decision.explanation.clone();
    explanation.notes.push(Note::Refused { order: "change the node".to_owned(), why: why.to_owned() });
    let condition = Condition { reason: Reason::WriteRefused.word().to_owned(), ..unknown(&explanation) };
    let at = due(subject, &explanation, &condition)?;
    set_at(at, subject, decision, condition, false)
}

/// When to write a condition without a verdict; `None` if the node already shows it. Only what an operator has to know
/// is written at once. Anything else has to last first, because most nodes open soon, and every condition that is
/// written meanwhile is a write in vain.
fn due(subject: &Subject<'_>, explanation: &Explanation, condition: &Condition) -> Option<Timestamp> {
    let now = subject.cx.now;
    let Some(known) = &subject.view.condition else {
        return Some(if explanation.is_urgent() { now } else { opens_until(subject) });
    };
    let is_unknown = known.status == ConditionStatus::Unknown;
    if is_unknown && known.reason == condition.reason {
        let again = later(subject.entry.condition_seen, subject.cx.interval);
        return (!explanation.is_said_by(&known.message)).then_some(again);
    }
    if is_unknown && explanation.access == Access::Closed && !explanation.is_urgent() {
        let last = subject.cx.history.last.filter(|(last, _)| last.word() == condition.reason);
        return Some(later(last.map_or(now, |(_, since)| since), SOON));
    }
    Some(now)
}

fn set_at(
    at: Timestamp,
    subject: &Subject<'_>,
    decision: &mut Decision,
    condition: Condition,
    only_waits: bool,
) -> Option<Action> {
    if subject.cx.now < at {
        decision.wake_by(at);
        return None;
    }
    Some(set(subject, condition, only_waits))
}

fn unknown(explanation: &Explanation) -> Condition {
    let (reason, message) = (explanation.word().into_owned(), explanation.to_string());
    Condition { status: ConditionStatus::Unknown, reason, message }
}

/// Until when a node without a condition may open so soon that it needs none.
fn opens_until(subject: &Subject<'_>) -> Timestamp {
    match subject.entry.ready_since {
        Some(ready) => later(ready.max(subject.entry.seen), SOON),
        None => later(subject.entry.seen, NOT_READY),
    }
}

fn set(subject: &Subject<'_>, condition: Condition, only_waits: bool) -> Action {
    let before = subject.view.condition.as_ref().map(|known| known.status);
    Action::SetCondition { node: subject.view.id.clone(), condition, before, only_waits }
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

/// Removes workers whose node is gone. The garbage collector would remove them too, eventually.
pub(super) fn orphans(cx: Context<'_>, entry: &NodeEntry) -> Decision {
    let decision = Decision::new(Explanation::new(Phase::OutOfScope, Access::Open, Why::Gone));
    let interval = cx.interval;
    // The node may not be gone but just not seen yet: its watch can lag behind that of the workers.
    match entry.workers.values().find(|worker| !worker.view.leaving) {
        Some(worker) if cx.now < worker.since + interval => decision.wakes(worker.since + interval),
        Some(worker) => decision.acts(remove(&worker.view, Removal::NodeGone)),
        None => decision,
    }
}

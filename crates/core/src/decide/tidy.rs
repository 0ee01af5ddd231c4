//! What is left to do once the gates are as they should be.

use super::subject::Subject;
use super::{Context, Decision};
use crate::action::{Action, Removal};
use crate::explain::{Door, Explanation, Phase};
use crate::state::{NodeState, StatePhase};
use crate::view::{Condition, ConditionStatus, WorkerView};
use crate::world::NodeEntry;

/// Shows the verdict, then removes workers that have told what they had to tell.
pub(super) fn consider(subject: &Subject<'_>, worker_is_wanted: bool) -> Option<Action> {
    let shown = subject.state.and_then(|state| condition(subject, state));
    shown.or_else(|| spent_worker(subject, worker_is_wanted))
}

pub(super) fn remove(worker: &WorkerView, why: Removal) -> Action {
    Action::RemoveWorker { node: worker.stamp.node.clone(), worker: worker.id.clone(), why }
}

/// The condition follows from the state alone, so it is written once for each verdict.
pub(super) fn condition(subject: &Subject<'_>, state: &NodeState) -> Option<Action> {
    let (status, reason) = match state.phase {
        StatePhase::Verified => (ConditionStatus::True, "Verified"),
        StatePhase::Failed => (ConditionStatus::False, state.cause.as_deref().unwrap_or("Failed")),
        // A node that was never verified has no condition to correct.
        StatePhase::Unverified if subject.view.condition.is_none() => return None,
        StatePhase::Unverified => (ConditionStatus::Unknown, state.cause.as_deref().unwrap_or("Unverified")),
    };
    let condition =
        Condition { status, reason: reason.to_owned(), message: subject.account(state).to_string() };
    let known = subject.view.condition.as_ref();
    let before = known.map(|known| known.status);
    (known != Some(&condition)).then(|| Action::SetCondition {
        node: subject.view.id.clone(),
        condition,
        before,
    })
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
    let told = Explanation::new(Phase::OutOfScope, Door::Open, "the node is not there");
    let decision = Decision::new(told);
    let interval = cx.config.reconciliation.interval();
    // The node may only be late: its own watch can be behind that of the workers.
    match entry.workers.values().find(|worker| !worker.view.leaving) {
        Some(worker) if cx.now < worker.since + interval => decision.wakes(worker.since + interval),
        Some(worker) => decision.acts(remove(&worker.view, Removal::NodeGone)),
        None => decision,
    }
}

//! One node's contribution to the health of the fleet.

use jiff::{SignedDuration, Timestamp};

use super::Context;
use super::attempts::{Progress, progress};
use super::scope::{self, Scope};
use super::subject::Subject;
use super::verification::{Status, status};
use crate::explain::{Access, later};
use crate::fault::Blame;
use crate::grants::fleet::{Closure, Member, Membership, Run, Seen};
use crate::state::{NodeState, StatePhase};
use crate::verdict::Verdict;
use crate::view::{Purpose, WorkerView};
use crate::world::NodeEntry;

/// Slack on top of the time within which a failing node must report again.
const LATE: SignedDuration = SignedDuration::from_mins(5);

/// Returns what a node contributes to the health of the fleet. Nodes that the controller does not manage contribute
/// nothing, whatever their state.
pub(crate) fn survey(cx: Context<'_>, entry: &NodeEntry, fact: u64) -> Member {
    let Some(view) = &entry.view else { return Member::default() };
    let subject = Subject { cx, entry, view, state: entry.state.as_ref() };
    if !matches!(scope::of(&subject), Scope::Managed) {
        return Member::default();
    }
    let has_failed = has_failed_just_now(&subject);
    let status = status(&subject);
    let is_tried = matches!(status, Status::Closed | Status::OnProbation(_));
    // Failures of other checks say nothing about the cluster as it is now, nor about the node.
    let is_required =
        |state: &&NodeState| subject.is_required(state.policy.as_ref(), state.requires.as_ref());
    let tried = subject.state.filter(|_| is_tried).filter(is_required);
    let last_failure =
        if has_failed { Some(cx.now) } else { tried.and_then(|state| last_failure(entry, state)) };
    let membership =
        if has_failed || subject.state.is_some() { Membership::Managed } else { Membership::InScope };
    let closure = match status {
        Status::Closed if subject.state.is_some() => Closure::Unproven,
        _ if subject.access() == Access::Closed => Closure::Closed,
        _ => Closure::Open,
    };
    let is_own_failure = |state: &&NodeState| state.is_own_failure() && state.boot == view.boot;
    Member {
        membership,
        closure,
        failing_until: last_failure.map(|at| at + counts_for(&subject)),
        trouble: subject.state.and_then(|state| state.trouble),
        own_failure: tried.filter(is_own_failure).map(|_| subject.learned_of_state()),
        runs: subject.state.map(|state| runs(&subject, state, fact)).unwrap_or_default(),
        is_reference: matches!(status, Status::Verified) && view.ready,
        runs_reference: entry.workers.values().any(|worker| is_reference_run(&subject, &worker.view)),
    }
}

/// The worker makes a reference run, or has ended and its result is not recorded yet. One that is being deleted may
/// remain for as long as its kubelet is gone. It must not block other reference runs.
fn is_reference_run(subject: &Subject<'_>, worker: &WorkerView) -> bool {
    !worker.leaving && subject.is_current(&worker.stamp, Purpose::Reference)
}

/// The checks have failed, and the failure is not recorded yet.
fn has_failed_just_now(subject: &Subject<'_>) -> bool {
    let is_current = |worker: &&crate::world::SeenWorker| {
        !worker.view.leaving && subject.is_current(&worker.view.stamp, Purpose::Verify)
    };
    let Some(worker) = subject.worker().filter(is_current) else { return false };
    match progress(subject, worker) {
        Progress::Over { verdict: Verdict::Fail(fault), .. } => fault.blame != Blame::Installation,
        Progress::Over { .. } | Progress::Waiting { .. } | Progress::Unsure => false,
    }
}

/// When the checks last failed on a node, by this process's clock. Runs without a verdict and restarts of the node since
/// then change nothing about it.
fn last_failure(entry: &NodeEntry, state: &NodeState) -> Option<Timestamp> {
    let before = state.at.duration_since(state.last_failure()?).max(SignedDuration::ZERO);
    entry.state_seen.checked_sub(before).ok()
}

/// How long a failure counts: a node that keeps failing reports at least this often.
fn counts_for(subject: &Subject<'_>) -> SignedDuration {
    let (retry, worker) = (&subject.cx.policy.retry, &subject.cx.policy.worker);
    retry.longest_delay() + worker.pending_timeout() + worker.timeout() + LATE
}

/// The results of the checks on a verified node.
fn runs(subject: &Subject<'_>, state: &NodeState, fact: u64) -> Vec<Run> {
    if state.phase != StatePhase::Verified {
        return Vec::new();
    }
    let seen = Seen { at: subject.cx.now, fact };
    let (entry, worker) = (subject.entry, &subject.cx.policy.worker);
    let longest = worker.pending_timeout() + worker.runs_within();
    // What this process did not see happen is dated by its start alone.
    let was_found = entry.state_seen == entry.seen;
    // Evidence of unknown age is dated with the creation of its node, by the clock of the API server.
    let run = |started: Timestamp, passed: bool| Run {
        started,
        ended_by: if was_found { later(started, longest) } else { entry.state_seen },
        passed,
        seen: (started != subject.view.created).then_some(seen),
    };
    // After a run that cost no attempt, the time in the state is that of the run and not that of the verdict.
    let is_dated = state.boot == subject.view.boot && state.inconclusive == 0;
    // Other checks say nothing about the nodes that fail these.
    let is_same = subject.is_required(state.policy.as_ref(), state.requires.as_ref());
    let verdict = (is_dated && is_same).then(|| run(state.at, true));
    let reference = state.reference.as_ref();
    let reference = reference.filter(|reference| subject.is_required(None, reference.requires.as_ref()));
    let reference = reference.map(|reference| run(reference.at, reference.pass));
    verdict.into_iter().chain(reference).collect()
}

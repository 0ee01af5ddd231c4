//! What one node says about how the cluster is doing.

use jiff::{SignedDuration, Timestamp};

use super::Context;
use super::scope::{self, Scope};
use super::subject::Subject;
use super::trial::{Progress, progress};
use super::verification::{Standing, standing};
use crate::fault::Blame;
use crate::grants::fleet::{Member, OwnFailure, Run, Seen};
use crate::state::{NodeState, StatePhase};
use crate::verdict::Verdict;
use crate::view::{Purpose, WorkerView};
use crate::world::NodeEntry;

/// Added to the time within which a node that fails must be heard of again.
const LATE: SignedDuration = SignedDuration::from_mins(5);

/// What a node contributes to how the cluster is doing. Nodes that the controller does not manage contribute nothing,
/// however they are.
pub(crate) fn survey(cx: Context<'_>, entry: &NodeEntry, fact: u64) -> Member {
    let Some(view) = &entry.view else { return Member::default() };
    let subject = Subject { cx, entry, view, state: entry.state.as_ref() };
    if !matches!(scope::of(&subject), Scope::Managed) {
        return Member::default();
    }
    let has_failed = has_failed_just_now(&subject);
    let standing = standing(&subject);
    let is_tried = matches!(standing, Standing::Closed | Standing::OnProbation(_));
    let recorded = subject.state.filter(|state| is_tried && is_failing_in_this_boot(&subject, state));
    let since = if has_failed { Some(cx.now) } else { recorded.map(|_| entry.state_seen) };
    Member {
        managed: has_failed || subject.state.is_some(),
        failing_until: since.map(|since| since + counts_for(&subject)),
        own_failure: recorded.filter(|state| state.is_own_failure()).map(|_| OwnFailure {
            uid: view.id.uid.clone(),
            boot: view.boot.clone(),
            seen: Seen { at: entry.state_seen, fact: entry.state_fact },
        }),
        runs: subject.state.map(|state| runs(&subject, state, fact)).unwrap_or_default(),
        is_reference: matches!(standing, Standing::Verified) && entry.workers.is_empty() && view.ready,
        runs_reference: entry.workers.values().any(|worker| is_reference_run(&worker.view)),
    }
}

/// One that is being deleted may stay for as long as its kubelet is gone, and must not hold up the others.
fn is_reference_run(worker: &WorkerView) -> bool {
    worker.stamp.purpose == Purpose::Reference && !worker.leaving
}

/// The checks have failed, and that is not recorded yet.
fn has_failed_just_now(subject: &Subject<'_>) -> bool {
    let is_current = |worker: &&crate::world::SeenWorker| {
        !worker.view.leaving && subject.is_current(&worker.view.stamp, Purpose::Verify)
    };
    let Some(worker) = subject.worker().filter(is_current) else { return false };
    match progress(subject, worker) {
        Progress::Over(Verdict::Fail(fault)) => fault.blame != Blame::Installation,
        Progress::Over(Verdict::Pass | Verdict::Inconclusive(_))
        | Progress::Waiting { .. }
        | Progress::Unsure => false,
    }
}

fn is_failing_in_this_boot(subject: &Subject<'_>, state: &NodeState) -> bool {
    state.is_failing() && *state.run_boot.as_ref().unwrap_or(&state.boot) == subject.view.boot
}

/// A node that is tried again and again is heard of at least this often.
fn counts_for(subject: &Subject<'_>) -> SignedDuration {
    let (retry, worker) = (&subject.cx.policy.retry, &subject.cx.policy.worker);
    retry.longest_delay() + worker.pending_timeout() + worker.timeout() + LATE
}

/// Results of the checks on a verified node.
fn runs(subject: &Subject<'_>, state: &NodeState, fact: u64) -> Vec<Run> {
    if state.phase != StatePhase::Verified {
        return Vec::new();
    }
    let seen = Seen { at: subject.cx.now, fact };
    // Evidence that is only known to be younger than its node is dated so, and by yet another clock.
    let run = |started: Timestamp, passed: bool| Run {
        started,
        passed,
        seen: (started != subject.view.created).then_some(seen),
    };
    // A state with runs that cost no attempt was written after the verdict, so its time proves nothing.
    let is_dated = state.boot == subject.view.boot && state.inconclusive == 0;
    let verdict = is_dated.then(|| run(state.at, true));
    let reference = state.reference.as_ref().map(|reference| run(reference.at, reference.pass));
    verdict.into_iter().chain(reference).collect()
}

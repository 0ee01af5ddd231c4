//! Nodes that used up their attempts: held, or deleted if the operator wants that and a fair trial speaks for it.
//!
//! The trial: the node fails, the same checks pass on a verified node, the node fails again, and the checks still pass
//! elsewhere; all in one boot, all since the cluster was last in trouble, and all within minutes.

use jiff::SignedDuration;

use super::subject::Subject;
use super::{Decision, Want, scope};
use crate::action::{Action, Headline, News, Recorded};
use crate::fault::Blame;
use crate::fleet::{Fleet, Seen};
use crate::patch::PatchBuilder;
use crate::state::{NodeState, Reference};
use crate::verdict::Verdict;
use crate::view::LedgerEntry;
use crate::world::SeenWorker;

/// A node is deleted within this long of the failure that decided it, or tried again before.
const DECIDED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// What is to be done about a node that failed, while it waits for its next attempt.
pub(super) enum Step {
    /// Nothing: it is not to be deleted.
    None,
    /// It is not deleted now.
    Hold(String),
    /// This comes next.
    Want(Want, String),
    /// The checks passed elsewhere, so it is tried again at once: if it fails now, it is its own fault.
    FinalAttempt,
}

/// Each condition that is not met holds the node, and is reported.
pub(super) fn consider(subject: &Subject<'_>, state: &NodeState) -> Step {
    let cx = subject.cx;
    let is_wanted = cx.config.node_management.delete_failed_nodes;
    if !is_wanted || !subject.has_used_up_attempts(state) {
        return Step::None;
    }
    if scope::is_control_plane(subject) {
        return Step::Hold("not deleted: it is a control plane node".to_owned());
    }
    if !state.is_own_failure() || state.attempt < cx.config.reconciliation.max_retries {
        return Step::Hold("not deleted: there was no verdict, so it may not be its own fault".to_owned());
    }
    if let Some(trouble) = subject.trouble() {
        return Step::Hold(format!("not deleted: {trouble}"));
    }
    if subject.attempts_that_count(state) == 0 {
        return Step::Hold(
            "not deleted: it is tried again first, since the cluster was in trouble".to_owned(),
        );
    }
    match budget(subject) {
        Budget::None(why) => Step::Hold(format!("not deleted: {why}")),
        _ if is_decided(subject, state) && !still_pass_elsewhere(subject) => Step::Want(
            Want::Reference,
            "not deleted: first the checks are run on a verified node once more".to_owned(),
        ),
        budget if is_decided(subject, state) => delete(subject, state, budget),
        _ if cx.fleet.pass_elsewhere(&subject.view.id.name, cx.now, cx.now).is_some() => Step::FinalAttempt,
        _ => {
            Step::Want(Want::Reference, "not deleted: first the checks are run on a verified node".to_owned())
        }
    }
}

/// Adds why a node is not deleted to what is said about it, and looks at it again later.
pub(super) fn hold(subject: &Subject<'_>, mut decision: Decision, why: &str) -> Decision {
    decision.explanation.why = format!("{}; {why}", decision.explanation.why);
    decision.wakes(subject.cx.now + subject.cx.config.reconciliation.interval())
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
    subject.cx.fleet.has_passed_since(failed, subject.cx.now)
}

enum Budget {
    None(String),
    Reserved,
    Free(Action),
}

fn budget(subject: &Subject<'_>) -> Budget {
    let cx = subject.cx;
    let (node, limits) = (&subject.view.id, &cx.config.limits.deletion);
    let Some(ledger) = cx.world.ledger() else {
        return Budget::None("the ledger of deletions could not be read yet".to_owned());
    };
    let mut entries: Vec<LedgerEntry> = cx.world.recent_deletions(cx.now).cloned().collect();
    if entries.iter().any(|entry| entry.node == *node) {
        return Budget::Reserved;
    }
    let allowed = limits.per_hour(cx.fleet.managed());
    if entries.len() >= allowed {
        return Budget::None(format!("{} of {allowed} deletions in an hour are used up", entries.len()));
    }
    entries.push(LedgerEntry { node: node.clone(), at: cx.now });
    Budget::Free(Action::ReserveDeletion { node: node.clone(), version: ledger.version, entries })
}

fn delete(subject: &Subject<'_>, state: &NodeState, budget: Budget) -> Step {
    match budget {
        Budget::None(why) => Step::Hold(format!("not deleted: {why}")),
        Budget::Free(reserve) => Step::Want(Want::Act(reserve), "its deletion is being reserved".to_owned()),
        Budget::Reserved => {
            let delete = Action::DeleteNode {
                node: subject.view.id.clone(),
                version: subject.view.version,
                claim: subject.view.claim.clone(),
                news: news(subject, state),
            };
            Step::Want(Want::Act(delete), "its deletion is under way".to_owned())
        }
    }
}

fn news(subject: &Subject<'_>, state: &NodeState) -> News {
    let attempt = subject.attempt_of(state.attempt);
    let passed =
        state.compared.as_ref().map(|compared| format!("; the same checks passed on {}", compared.node));
    let message = format!("deleted: {attempt} failed: {}{}", state.why(), passed.unwrap_or_default());
    News { headline: Headline::NodeDeleted, message, warning: true }
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
    Action::Record { node: subject.view.id.clone(), what: Recorded::Comparison, patch, news: None }
}

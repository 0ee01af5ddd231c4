//! Nodes that never get fit: held, or deleted if that was asked for and everything speaks for it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::subject::Subject;
use super::{Decision, Want, scope};
use crate::action::{Action, Recorded};
use crate::config::DeletionLimits;
use crate::explain::later;
use crate::ids::NodeName;
use crate::patch::PatchBuilder;
use crate::state::{NodeState, Reference, StatePhase};
use crate::verdict::Verdict;
use crate::view::LedgerEntry;
use crate::world::{NodeEntry, SeenWorker};

/// The budget is for this long.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// If the checks fail on a verified node too, that is looked at again after this long.
const SICK_FOR: SignedDuration = SignedDuration::from_mins(5);

/// The number of no fact: of when the evidence was made, nothing is known.
const UNDATED: u64 = 0;

/// How the nodes are doing, all in all. Kept up to date node by node.
#[derive(Debug, Default)]
pub struct Census {
    standings: BTreeMap<NodeName, Standing>,
    managed: usize,
    failing: usize,
    /// When it was made, what, where, and which fact told us.
    proofs: BTreeSet<(Timestamp, Proof, NodeName, u64)>,
    /// When each of them was last looked at.
    lenders: BTreeSet<(Timestamp, NodeName)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Standing {
    managed: bool,
    failing: bool,
    /// When it was made, which fact told us, and what.
    proofs: Vec<(Timestamp, u64, Proof)>,
}

impl Standing {
    fn last_looked_at(&self) -> Option<Timestamp> {
        self.proofs.iter().map(|(at, ..)| *at).max()
    }
}

/// What the checks said on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Proof {
    Passed,
    // The greater one, so that it wins where both were recorded at the same time.
    Failed,
}

impl Census {
    /// Takes note of how a node stands now.
    pub fn note(&mut self, name: &NodeName, entry: Option<&NodeEntry>, fact: u64) {
        let before = self.standings.get(name).cloned().unwrap_or_default();
        let mut standing = entry.map(|entry| standing_of(entry, fact)).unwrap_or_default();
        for (recorded, seen, _) in &mut standing.proofs {
            let known = before.proofs.iter().find(|(known, _, _)| known == recorded);
            *seen = known.map_or(*seen, |(_, seen, _)| *seen);
        }
        if standing == before {
            return;
        }
        self.managed = self.managed - usize::from(before.managed) + usize::from(standing.managed);
        self.failing = self.failing - usize::from(before.failing) + usize::from(standing.failing);
        if let Some(at) = before.last_looked_at() {
            self.lenders.remove(&(at, name.clone()));
        }
        self.lenders.extend(standing.last_looked_at().map(|at| (at, name.clone())));
        for (recorded, seen, proof) in before.proofs {
            self.proofs.remove(&(recorded, proof, name.clone(), seen));
        }
        for (recorded, seen, proof) in &standing.proofs {
            self.proofs.insert((*recorded, *proof, name.clone(), *seen));
        }
        if standing == Standing::default() {
            self.standings.remove(name);
        } else {
            self.standings.insert(name.clone(), standing);
        }
    }

    /// Many nodes fail at once: that is hardly the fault of each of them.
    pub(super) fn suspicion(&self, limits: &DeletionLimits) -> Option<String> {
        let (failing, managed) = (self.failing, self.managed);
        limits
            .too_many_failing(failing, managed)
            .then(|| format!("{failing} of {managed} nodes fail at once, the cluster itself is suspected"))
    }

    /// Verified nodes, on which checks can be run for comparison: those that were looked at longest ago come first.
    pub fn lenders(&self) -> impl Iterator<Item = &NodeName> {
        self.lenders.iter().map(|(_, name)| name)
    }

    /// What the checks said last on any verified node after a node failed. The failure may have been recorded by a clock
    /// that was behind, so what counts is when we saw it, and we must also have been told of the two in this order: what
    /// was all there before us proves nothing.
    fn latest_proof(&self, failed: &NodeEntry, now: Timestamp) -> Option<(Timestamp, Proof)> {
        let mut dated = self.proofs.iter().rev().filter(|(_, _, _, fact)| *fact != UNDATED);
        let (at, proof, _, fact) = dated.find(|(at, ..)| *at <= now)?;
        (*at >= failed.state_seen && *fact > failed.state_fact).then_some((*at, *proof))
    }
}

fn standing_of(entry: &NodeEntry, fact: u64) -> Standing {
    let (Some(view), Some(state)) = (&entry.view, &entry.state) else {
        return Standing::default();
    };
    // A state with runs that came to nothing was written after the verdict, so its time proves nothing.
    let lends = state.phase == StatePhase::Verified
        && state.boot == view.boot
        && state.inconclusive == 0
        && !view.leaving;
    // Evidence that is only known to be younger than its node is dated so, and by yet another clock.
    let told = |at: Timestamp| if at == view.created { UNDATED } else { fact };
    let reference = state.reference.as_ref().map(|reference| {
        (reference.at, told(reference.at), if reference.pass { Proof::Passed } else { Proof::Failed })
    });
    let passed = (state.at, told(state.at), Proof::Passed);
    let proofs = lends.then(|| std::iter::once(passed).chain(reference).collect());
    Standing {
        managed: !view.leaving,
        failing: state.phase == StatePhase::Failed && !view.leaving,
        proofs: proofs.unwrap_or_default(),
    }
}

/// A node that has used up its attempts. Each condition that is not met holds it, and is told.
pub(super) fn consider(subject: &Subject<'_>, state: &NodeState) -> Decision {
    let cx = subject.cx;
    let limits = &cx.config.limits.deletion;
    let told = subject.account(state);
    let again = cx.now + cx.config.reconciliation.interval();
    let tell = |what: String| {
        let mut decision = Decision::new(told.clone()).wakes(again);
        decision.explanation.why = format!("{}; {what}", decision.explanation.why);
        decision
    };
    let hold = |why: String| tell(format!("not deleted: {why}"));
    if !cx.config.node_management.delete_failed_nodes {
        return Decision::new(told);
    }
    if scope::is_control_plane(subject) {
        return hold("it is a control plane node".to_owned());
    }
    if state.attempt < cx.config.reconciliation.max_retries {
        return hold("there was no verdict, so it may not be its own fault".to_owned());
    }
    if let Some(suspicion) = cx.census.suspicion(limits) {
        return hold(suspicion);
    }
    match cx.census.latest_proof(subject.entry, cx.now) {
        None => return hold("first the checks are run on a verified node".to_owned()).wants(Want::Reference),
        Some((at, Proof::Failed)) if cx.now < later(at, SICK_FOR) => {
            return hold(
                "the checks fail on a verified node too, the cluster itself is suspected".to_owned(),
            );
        }
        Some((_, Proof::Failed)) => {
            return hold("the checks failed on a verified node too".to_owned()).wants(Want::Reference);
        }
        Some((_, Proof::Passed)) => {}
    }
    reserve_or_delete(subject, tell)
}

fn reserve_or_delete(subject: &Subject<'_>, tell: impl Fn(String) -> Decision) -> Decision {
    let cx = subject.cx;
    let Some(ledger) = cx.world.ledger() else {
        return tell("not deleted: the ledger of deletions could not be read yet".to_owned());
    };
    let (node, limits) = (&subject.view.id, &cx.config.limits.deletion);
    let recent = |entry: &&LedgerEntry| cx.now.duration_since(entry.at) < WINDOW;
    let mut entries: Vec<LedgerEntry> = ledger.entries.iter().filter(recent).cloned().collect();
    if entries.iter().any(|entry| entry.node == *node) {
        return tell("its deletion is under way".to_owned()).acts(Action::DeleteNode {
            node: node.clone(),
            version: subject.view.version,
            claim: subject.view.claim.clone(),
        });
    }
    let allowed = limits.per_hour(cx.census.managed);
    if entries.len() >= allowed {
        return tell(format!("not deleted: {} of {allowed} deletions in an hour are used up", entries.len()));
    }
    entries.push(LedgerEntry { node: node.clone(), at: cx.now });
    let reserve = Action::ReserveDeletion { node: node.clone(), version: ledger.version, entries };
    tell("its deletion is being reserved".to_owned()).acts(reserve)
}

/// Keeps what the checks said on a verified node. Whatever it is, the node stays open: this was not about it.
pub(super) fn record_reference(subject: &Subject<'_>, worker: &SeenWorker, verdict: &Verdict) -> Action {
    let pass = match verdict {
        Verdict::Pass => Some(true),
        Verdict::Fail(_) => Some(false),
        Verdict::Inconclusive(_) => None,
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

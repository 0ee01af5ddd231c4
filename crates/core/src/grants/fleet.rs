//! The health of all nodes together: how many fail, where the checks passed recently, and whether the cluster itself is
//! in trouble.
//!
//! The engine notes a node here as soon as it learns something about it. A result counts from when it is known, not
//! from when it is recorded on the node. So nodes that fail at the same moment are all counted before anything is
//! decided about one of them.

mod closings;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::config::DeletionLimits;
use crate::explain::Trouble;
use crate::ids::NodeName;
use crate::schedule::Schedule;
use crate::state::PassElsewhere;
use closings::Closings;
pub(crate) use closings::{Closure, Counted};

/// A failed reference run counts as cluster trouble for this long, unless the checks pass somewhere in the meantime.
const FAILED_REFERENCE_COUNTS: SignedDuration = SignedDuration::from_mins(5);
/// Runs further apart than this say nothing about each other.
const SAME_TIME: SignedDuration = SignedDuration::from_mins(15);

/// The health of all nodes together.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    members: BTreeMap<NodeName, Member>,
    managed: usize,
    /// The number of nodes in scope, gated or not.
    in_scope: usize,
    closings: Closings,
    /// Nodes whose last checks failed, each with the time until which the failure counts.
    failing: Schedule<Timestamp, NodeName>,
    /// Runs on verified nodes, by start time.
    runs: BTreeSet<(Timestamp, NodeName, Run)>,
    /// Verified nodes that could make a reference run, the one with the oldest run first.
    references: Schedule<Timestamp, NodeName>,
    /// When each node was last asked for a reference run, whatever the outcome.
    asked: BTreeMap<NodeName, Timestamp>,
    /// The number of nodes with a reference run under way.
    running_references: usize,
    /// When the last failed reference run was seen, if no run has passed since.
    failed_reference: Option<Timestamp>,
    last_trouble: Timestamp,
    /// The last trouble that any leader recorded, by that leader's clock.
    recorded_trouble: Timestamp,
}

/// The contribution of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) membership: Membership,
    pub(crate) closure: Closure,
    /// Set if its checks failed: the time until which the failure counts.
    pub(crate) failing_until: Option<Timestamp>,
    /// Set if it failed by its own fault: when the last record of it was seen.
    pub(crate) own_failure: Option<Seen>,
    /// The last trouble in the cluster that is recorded on it.
    pub(crate) trouble: Option<Timestamp>,
    /// Runs of the checks while it was verified.
    pub(crate) runs: Vec<Run>,
    /// It could make a reference run, once it has no worker.
    pub(crate) is_reference: bool,
    /// A reference run is under way, or has ended and is not recorded yet.
    pub(crate) runs_reference: bool,
}

/// How far a node belongs to the fleet. Each variant includes the ones before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Membership {
    #[default]
    OutOfScope,
    /// The policy applies to it, but it never had the gate.
    InScope,
    /// The controller manages it.
    Managed,
}

/// A run of the checks on a verified node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) started: Timestamp,
    /// When it had ended at the latest.
    pub(crate) ended_by: Timestamp,
    pub(crate) passed: bool,
    /// `None` if its age is unknown.
    pub(crate) seen: Option<Seen>,
}

/// What a note about a node added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    NoRun,
    /// A run of the checks on a verified node, which others may wait for.
    NewRun,
}

/// When this process learned something: the time by its own clock, and the number of the fact. Things learned by the
/// same fact have no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) at: Timestamp,
    pub(crate) fact: u64,
}

impl Fleet {
    /// Updates the contribution of a node.
    pub(crate) fn note(&mut self, name: &NodeName, mut member: Member, now: Timestamp) -> Noted {
        let before = self.members.remove(name).unwrap_or_default();
        let mut noted = Noted::NoRun;
        for run in &mut member.runs {
            let is_same = |known: &&Run| (known.started, known.passed) == (run.started, run.passed);
            if let Some(known) = before.runs.iter().find(is_same) {
                *run = *known;
            } else {
                self.learn_of_run(*run, now);
                noted = Noted::NewRun;
            }
        }
        // A record by another leader, whose clock is behind, must not make an earlier failure count for a shorter time.
        member.failing_until =
            member.failing_until.map(|until| before.failing_until.map_or(until, |known| known.max(until)));
        // A time in the future comes from a clock that is wrong.
        if let Some(trouble) = member.trouble.filter(|trouble| *trouble <= now) {
            self.recorded_trouble = self.recorded_trouble.max(trouble);
        }
        let is = |member: &Member, least| usize::from(member.membership >= least);
        self.managed = self.managed - is(&before, Membership::Managed) + is(&member, Membership::Managed);
        self.in_scope = self.in_scope - is(&before, Membership::InScope) + is(&member, Membership::InScope);
        self.closings.note(name, &member);
        self.running_references =
            self.running_references - usize::from(before.runs_reference) + usize::from(member.runs_reference);
        self.failing.set(name, member.failing_until);
        let asked = self.asked.get(name).copied();
        let last_run = member.runs.iter().map(|run| run.started).chain(asked).max().unwrap_or(Timestamp::MIN);
        self.references.set(name, member.is_reference.then_some(last_run));
        for run in before.runs {
            self.runs.remove(&(run.started, name.clone(), run));
        }
        self.runs.extend(member.runs.iter().map(|run| (run.started, name.clone(), *run)));
        if member == Member::default() {
            self.asked.remove(name);
        } else {
            self.members.insert(name.clone(), member);
        }
        noted
    }

    /// Records that a node was asked for a reference run. If that fails, all others are asked before this one is asked
    /// again.
    pub(crate) fn asked_for_reference(&mut self, name: &NodeName, now: Timestamp) {
        self.asked.insert(name.clone(), now);
        if self.references.rank(name).is_some() {
            self.references.set(name, Some(now));
        }
    }

    fn learn_of_run(&mut self, run: Run, now: Timestamp) {
        if run.seen.is_none() {
            return;
        }
        if run.passed {
            self.failed_reference.take_if(|failed| is_between(run.started, *failed, now));
        } else if now.duration_since(run.ended_by) < FAILED_REFERENCE_COUNTS {
            self.failed_reference = self.failed_reference.max(Some(run.ended_by.min(now)));
        }
    }

    /// Lets time pass: failures that are too old stop counting, and current trouble is remembered.
    pub(crate) fn observe(&mut self, limits: &DeletionLimits, now: Timestamp) {
        while self.failing.pop_until(&now).is_some() {}
        if self.trouble(limits, now).is_some() {
            self.last_trouble = now;
        }
    }

    /// From now on, earlier results no longer count for or against a node, and earlier trouble has ended.
    pub(crate) fn start_over(&mut self, now: Timestamp) {
        self.last_trouble = now;
        self.failed_reference = None;
    }

    /// The number of nodes that the controller manages.
    pub(crate) fn managed(&self) -> usize {
        self.managed
    }

    /// The number of nodes in scope.
    pub(super) fn in_scope(&self) -> usize {
        self.in_scope
    }

    /// The number of closed nodes in scope besides this one.
    pub(super) fn closed_besides(&self, name: &NodeName, counted: Counted) -> usize {
        self.closings.besides(name, counted)
    }

    /// Records whether a node counts as closed until it is seen to be open.
    pub(super) fn expect_closed(&mut self, name: &NodeName, is_expected: bool) {
        let gone = Member::default();
        self.closings.expect(name, self.members.get(name).unwrap_or(&gone), is_expected);
    }

    /// From now on, nodes count as closed only if they are.
    pub(super) fn expect_nothing(&mut self) {
        for name in self.closings.expected().clone() {
            self.expect_closed(&name, false);
        }
    }

    /// Returns why the cluster rather than a node is suspected, if it is.
    pub(super) fn trouble(&self, limits: &DeletionLimits, now: Timestamp) -> Option<Trouble> {
        let (failing, managed) = (self.failing.len(), self.managed);
        if limits.too_many_failing(failing, managed) {
            return Some(Trouble::ManyFail { failing, managed });
        }
        let failed = self.failed_reference?;
        (now.duration_since(failed) < FAILED_REFERENCE_COUNTS).then_some(Trouble::ReferenceFailed)
    }

    /// Returns whether a time is after all trouble, so that a result of then says something about a node.
    pub(crate) fn is_after_trouble(&self, at: Timestamp) -> bool {
        at > self.last_trouble
    }

    /// Returns whether a state that this process found was recorded after all trouble that earlier leaders recorded.
    pub(crate) fn is_recorded_after_trouble(&self, at: Timestamp) -> bool {
        at > self.recorded_trouble
    }

    /// The last trouble, to be recorded on nodes; `None` if there was none.
    pub(crate) fn trouble_to_record(&self) -> Option<Timestamp> {
        let last = self.last_trouble.max(self.recorded_trouble);
        (last > Timestamp::UNIX_EPOCH).then_some(last)
    }

    /// Returns a run on another node that shows this node's failure to be its own. The run was started after the node
    /// last failed, and was known to have passed by the time `by`. Results that predate this process prove nothing,
    /// because their order is not known.
    pub(crate) fn pass_elsewhere(
        &self,
        node: &NodeName,
        by: Timestamp,
        now: Timestamp,
    ) -> Option<PassElsewhere> {
        let failed = self.members.get(node)?.own_failure.filter(|seen| self.is_after_trouble(seen.at))?;
        let mut passes = self.recent_passes_elsewhere(node, failed.at, now);
        passes
            .find(|(_, seen)| seen.fact > failed.fact && seen.at <= by)
            .map(|((started, name, _), _)| PassElsewhere { node: name.clone(), at: *started })
    }

    /// Returns whether the checks passed on another node in a recent run that was started after `since`. It must be
    /// known since then, too: another clock that is ahead may have recorded an earlier run.
    pub(crate) fn has_passed_elsewhere(&self, node: &NodeName, since: Timestamp, now: Timestamp) -> bool {
        self.recent_passes_elsewhere(node, since, now).any(|(_, seen)| seen.at > since)
    }

    /// Recent runs on other nodes that were started after `since` and passed, and when this process learned of them.
    /// Those of unknown age are left out.
    fn recent_passes_elsewhere(
        &self,
        node: &NodeName,
        since: Timestamp,
        now: Timestamp,
    ) -> impl Iterator<Item = (&(Timestamp, NodeName, Run), Seen)> {
        let later = self.runs.iter().rev().take_while(move |(started, ..)| since <= *started);
        let recent = later.filter(move |(started, ..)| {
            is_between(*started, since, now) && now.duration_since(*started) < SAME_TIME
        });
        let passed = recent.filter(move |(_, name, run)| name != node && run.passed);
        passed.filter_map(|run| Some((run, run.2.seen?)))
    }

    /// Returns whether the checks passed on another node in a recent run that was started after something was seen, and
    /// is known from a later fact.
    pub(crate) fn has_passed_elsewhere_after(&self, node: &NodeName, seen: Seen, now: Timestamp) -> bool {
        self.recent_passes_elsewhere(node, seen.at, now).any(|(_, known)| known.fact > seen.fact)
    }

    /// Returns whether a pass is recent enough to act on. It must not be far in the future either, because
    /// another clock recorded it.
    pub(crate) fn is_recent(pass: &PassElsewhere, now: Timestamp) -> bool {
        now.duration_since(pass.at).abs() < SAME_TIME
    }

    /// The result of a reference run on this node cannot be recorded. Others need not wait for it.
    pub(crate) fn give_up_reference(&mut self, node: &NodeName) {
        let is_counted = |member: &mut Member| std::mem::take(&mut member.runs_reference);
        self.running_references -= usize::from(self.members.get_mut(node).is_some_and(is_counted));
    }

    /// Returns whether a reference run is under way anywhere.
    pub(crate) fn runs_reference(&self) -> bool {
        self.running_references > 0
    }

    /// Verified nodes that could make a reference run, in the order in which to ask them.
    pub(crate) fn references(&self) -> impl Iterator<Item = &NodeName> {
        self.references.iter().map(|(_, name)| name)
    }
}

/// A start time in the future comes from a clock that is wrong.
fn is_between(started: Timestamp, from: Timestamp, now: Timestamp) -> bool {
    (from..=now).contains(&started)
}

#[cfg(test)]
mod tests;

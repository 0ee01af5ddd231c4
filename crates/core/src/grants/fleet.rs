//! How all nodes are doing together: how many fail, where the checks passed lately, and whether the cluster itself is in
//! trouble.
//!
//! The engine notes a node here as soon as it learns something about it, and a result counts from when it is known, not
//! from when it is recorded on the node. So nodes that fail at the same moment are all counted before anything is
//! decided about one of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::config::DeletionLimits;
use crate::explain::Trouble;
use crate::ids::{BootId, NodeName, Uid};
use crate::schedule::Schedule;
use crate::state::Comparison;

/// A reference run that failed counts as cluster trouble for this long, unless the checks pass somewhere before.
const FAILED_REFERENCE_COUNTS: SignedDuration = SignedDuration::from_mins(5);
/// Runs further apart than this say nothing about each other.
const SAME_TIME: SignedDuration = SignedDuration::from_mins(15);

/// How all nodes are doing together.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    members: BTreeMap<NodeName, Member>,
    managed: usize,
    /// Nodes whose checks failed last, each until that no longer counts.
    failing: Schedule<Timestamp, NodeName>,
    /// Runs on verified nodes, by when they were started.
    runs: BTreeSet<(Timestamp, NodeName, Run)>,
    /// Verified nodes that could run the checks for comparison, the one that did so longest ago first.
    references: Schedule<Timestamp, NodeName>,
    /// When a node was last asked to run the checks for comparison, whatever came of it.
    asked: BTreeMap<NodeName, Timestamp>,
    /// Nodes on which the checks are run for comparison now.
    running_references: usize,
    /// When a reference run was seen to fail, if nothing has passed since.
    failed_reference: Option<Timestamp>,
    last_trouble: Timestamp,
}

/// What one node contributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// The controller manages it.
    pub(crate) managed: bool,
    /// Its checks failed, and that counts until then.
    pub(crate) failing_until: Option<Timestamp>,
    /// It failed by its own fault.
    pub(crate) own_failure: Option<OwnFailure>,
    /// Runs of the checks while it was verified.
    pub(crate) runs: Vec<Run>,
    /// The checks could be run there for comparison.
    pub(crate) is_reference: bool,
    /// They are, or have just been and that is not recorded yet.
    pub(crate) runs_reference: bool,
}

/// The first failure of a node in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnFailure {
    pub(crate) uid: Uid,
    pub(crate) boot: BootId,
    pub(crate) seen: Seen,
}

/// A run of the checks on a verified node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) started: Timestamp,
    pub(crate) passed: bool,
    /// None: it is not known when it was made.
    pub(crate) seen: Option<Seen>,
}

/// When this process learned something: by its own clock, and by which of all facts. What came by one fact has no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) at: Timestamp,
    pub(crate) fact: u64,
}

impl Fleet {
    /// Takes note of how a node is doing now.
    pub(crate) fn note(&mut self, name: &NodeName, mut member: Member, now: Timestamp) {
        let before = self.members.remove(name).unwrap_or_default();
        for run in &mut member.runs {
            let is_same = |known: &&Run| (known.started, known.passed) == (run.started, run.passed);
            match before.runs.iter().find(is_same) {
                Some(known) => *run = *known,
                None => self.learn_of_run(*run, now),
            }
        }
        if let (Some(first), Some(latest)) = (&before.own_failure, &member.own_failure)
            && (&first.uid, &first.boot) == (&latest.uid, &latest.boot)
            && self.counts(first.seen)
        {
            member.own_failure.clone_from(&before.own_failure);
        }
        self.managed = self.managed - usize::from(before.managed) + usize::from(member.managed);
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
    }

    /// A node is asked to run the checks for comparison. If nothing comes of it, others are asked before it is again.
    pub(crate) fn asked_for_reference(&mut self, name: &NodeName, now: Timestamp) {
        self.asked.insert(name.clone(), now);
        if self.references.rank(name).is_some() {
            self.references.set(name, Some(now));
        }
    }

    fn learn_of_run(&mut self, run: Run, now: Timestamp) {
        let Some(seen) = run.seen else { return };
        if run.passed {
            self.failed_reference.take_if(|failed| *failed <= run.started);
        } else if now.duration_since(run.started) < FAILED_REFERENCE_COUNTS {
            self.failed_reference = Some(seen.at);
        }
    }

    /// Lets time pass: what failed too long ago no longer counts, and trouble that is there now is remembered.
    pub(crate) fn observe(&mut self, limits: &DeletionLimits, now: Timestamp) {
        while self.failing.pop_until(&now).is_some() {}
        if self.trouble(limits, now).is_some() {
            self.last_trouble = now;
        }
    }

    /// What was before no longer counts, for or against a node.
    pub(crate) fn start_over(&mut self, now: Timestamp) {
        self.last_trouble = now;
    }

    /// The number of nodes that the controller looks after.
    pub(crate) fn managed(&self) -> usize {
        self.managed
    }

    /// Why the cluster rather than a node is to blame, if it is.
    pub(super) fn trouble(&self, limits: &DeletionLimits, now: Timestamp) -> Option<Trouble> {
        let (failing, managed) = (self.failing.len(), self.managed);
        if limits.too_many_failing(failing, managed) {
            return Some(Trouble::ManyFail { failing, managed });
        }
        let failed = self.failed_reference?;
        (now.duration_since(failed) < FAILED_REFERENCE_COUNTS).then_some(Trouble::ReferenceFailed)
    }

    /// Whether something happened after all trouble, so that it says something about a node.
    pub(crate) fn is_after_trouble(&self, at: Timestamp) -> bool {
        at > self.last_trouble
    }

    fn counts(&self, seen: Seen) -> bool {
        self.is_after_trouble(seen.at)
    }

    /// A run elsewhere that shows the failure of this node to be its own: it was started after the node first failed, and
    /// had passed at that time. What was all there before this process proves nothing, for its order is not known.
    pub(crate) fn pass_elsewhere(
        &self,
        node: &NodeName,
        by: Timestamp,
        now: Timestamp,
    ) -> Option<Comparison> {
        let failed = self.members.get(node)?.own_failure.as_ref()?.seen;
        if !self.counts(failed) {
            return None;
        }
        let proves = |run: &Run| {
            run.passed
                && is_between(run.started, failed.at, now)
                && now.duration_since(run.started) < SAME_TIME
                && run.seen.is_some_and(|seen| seen.fact > failed.fact && seen.at <= by)
        };
        let recent = self.runs.iter().rev().take_while(|(started, ..)| failed.at <= *started);
        let mut elsewhere = recent.filter(|(_, name, run)| name != node && proves(run));
        elsewhere.next().map(|(started, name, _)| Comparison { node: name.clone(), at: *started })
    }

    /// Whether the checks passed somewhere in a run that was started after something was seen.
    pub(crate) fn has_passed_since(&self, seen: Seen, now: Timestamp) -> bool {
        let later = self.runs.iter().rev().take_while(|(started, ..)| seen.at <= *started);
        let later = later.filter(|(started, ..)| is_between(*started, seen.at, now));
        let is_later = |run: &Run| run.seen.is_some_and(|known| known.fact > seen.fact);
        later.filter(|(_, _, run)| run.passed).any(|(_, _, run)| is_later(run))
    }

    /// Whether a comparison is recent enough to act on, whatever the clock of who recorded it says.
    pub(crate) fn is_recent(comparison: &Comparison, now: Timestamp) -> bool {
        now.duration_since(comparison.at).abs() < SAME_TIME
    }

    /// Whether the checks are run for comparison somewhere.
    pub(crate) fn runs_reference(&self) -> bool {
        self.running_references > 0
    }

    /// Verified nodes that could run the checks for comparison.
    pub(crate) fn references(&self) -> impl Iterator<Item = &NodeName> {
        self.references.iter().map(|(_, name)| name)
    }
}

/// What was started in the future was started by a clock that is wrong.
fn is_between(started: Timestamp, from: Timestamp, now: Timestamp) -> bool {
    (from..=now).contains(&started)
}

#[cfg(test)]
mod tests;

//! The true history of all runs of the checks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use knr_core::fault::Blame;
use knr_core::ids::{BootId, Requires, Uid};
use knr_core::view::Stamp;

/// A process: the number of the replica and its life.
pub(super) type Process = (usize, u32);

/// A state as it was recorded on a node. Nothing else has the same serial and time.
pub(super) type StateKey = (u32, Timestamp);

/// One run of the checks.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) node: Uid,
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
    /// The fingerprint of what it checked. `None` if nobody ordered it.
    pub(super) requires: Option<Requires>,
}

/// A run that failed by the fault of its node, as far as a report can tell.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) run: Run,
    /// The machine was healthy, and only an outage made it fail.
    pub(super) in_outage: bool,
    /// Set once it is recorded on the node as a failed attempt.
    pub(super) recorded: Option<Record>,
}

/// The record of a failure.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) at: Timestamp,
    pub(super) state: StateKey,
    pub(super) by: Process,
    /// When that process last knew the cluster to be in trouble.
    pub(super) last_trouble: Timestamp,
}

/// All runs of the checks.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// When each worker was created, and what it had to check.
    made: BTreeMap<Uid, (Timestamp, Requires)>,
    /// When each worker started running.
    began: BTreeMap<Uid, Timestamp>,
    /// Workers that will never end by themselves, and whether only an outage makes them hang.
    hanging: BTreeMap<Uid, bool>,
    /// When each worker passed.
    passed: BTreeMap<Uid, Timestamp>,
    /// Workers that failed: whose fault the report shows it to be, and when.
    failed: BTreeMap<Uid, (Blame, Timestamp)>,
    /// Runs that passed.
    passes: Vec<Run>,
    /// Runs that failed by the fault of their node, by node and boot.
    failures: BTreeMap<(Uid, BootId), Vec<Failure>>,
}

impl Runs {
    pub(super) fn made(&mut self, worker: &Uid, stamp: &Stamp, now: Timestamp) {
        self.made.entry(worker.clone()).or_insert_with(|| (now, stamp.requires.clone()));
    }

    pub(super) fn made_at(&self, worker: &Uid) -> Option<Timestamp> {
        self.made.get(worker).map(|(at, _)| *at)
    }

    pub(super) fn began(&mut self, worker: &Uid, now: Timestamp) {
        self.began.insert(worker.clone(), now);
    }

    pub(super) fn began_at(&self, worker: &Uid) -> Option<Timestamp> {
        self.began.get(worker).copied()
    }

    pub(super) fn hangs(&mut self, worker: &Uid, in_outage: bool) {
        self.hanging.insert(worker.clone(), in_outage);
    }

    pub(super) fn is_hanging(&self, worker: &Uid) -> bool {
        self.hanging.contains_key(worker)
    }

    pub(super) fn passed(&mut self, worker: &Uid, node: &Uid, now: Timestamp) {
        self.passed.insert(worker.clone(), now);
        let run = self.run(worker, node, now);
        self.passes.push(run);
    }

    pub(super) fn has_passed_since(&self, since: Timestamp) -> bool {
        self.passes.iter().any(|run| run.ended >= since)
    }

    pub(super) fn passed_at(&self, worker: &Uid) -> Option<Timestamp> {
        self.passed.get(worker).copied()
    }

    /// The checks failed. Only what the report shows to be the node's own fault counts against the node.
    pub(super) fn failed(
        &mut self,
        worker: &Uid,
        (node, boot): (&Uid, &BootId),
        (blame, in_outage): (Blame, bool),
        now: Timestamp,
    ) {
        self.failed.insert(worker.clone(), (blame, now));
        if blame == Blame::Node {
            let run = self.run(worker, node, now);
            self.fail(boot, Failure { run, in_outage, recorded: None });
        }
    }

    /// Returns whose fault the failure of a worker is, if it failed.
    pub(super) fn blame(&self, worker: &Uid) -> Option<Blame> {
        self.failed_at(worker).map(|(blame, _)| blame)
    }

    /// Returns whose fault the failure of a worker is, and when it failed, if it did.
    pub(super) fn failed_at(&self, worker: &Uid) -> Option<(Blame, Timestamp)> {
        self.failed.get(worker).copied()
    }

    /// The controller gave up on a worker that could not end, or did not start in time.
    pub(super) fn timed_out(&mut self, worker: &Uid, node: (&Uid, &BootId), now: Timestamp) {
        if !self.failed.contains_key(worker) {
            let in_outage = self.hanging.get(worker).copied().unwrap_or(false);
            self.failed(worker, node, (Blame::Node, in_outage), now);
        }
    }

    /// A worker that was deleted is still there. Its failing run counts from the last recorded failure.
    pub(super) fn not_ended(
        &mut self,
        worker: &Uid,
        (node, boot): (&Uid, &BootId),
        last_failure: Option<Timestamp>,
        now: Timestamp,
    ) {
        let run = self.run(worker, node, now);
        let began = last_failure.map_or(run.began, |at| at.max(run.began));
        self.fail(boot, Failure { run: Run { began, ..run }, in_outage: false, recorded: None });
    }

    fn fail(&mut self, boot: &BootId, failure: Failure) {
        self.failures.entry((failure.run.node.clone(), boot.clone())).or_default().push(failure);
    }

    /// A failed attempt was recorded on a node. It is about the last run that failed there.
    pub(super) fn recorded(&mut self, node: &Uid, boot: &BootId, record: &Record) {
        let failures = self.failures.get_mut(&(node.clone(), boot.clone()));
        if let Some(last) = failures.and_then(|failures| failures.last_mut()) {
            last.recorded.get_or_insert_with(|| record.clone());
        }
    }

    fn run(&self, worker: &Uid, node: &Uid, ended: Timestamp) -> Run {
        let made = self.made.get(worker);
        let began = self.began.get(worker).copied().or_else(|| made.map(|(at, _)| *at));
        let requires = made.map(|(_, requires)| requires.clone());
        Run { node: node.clone(), began: began.unwrap_or(ended), ended, requires }
    }

    /// The failures of a node in a boot, the first one first.
    pub(super) fn failures(&self, node: &Uid, boot: &BootId) -> &[Failure] {
        self.failures.get(&(node.clone(), boot.clone())).map_or(&[], Vec::as_slice)
    }

    pub(super) fn has_failed_since(&self, node: &Uid, boot: &BootId, since: Timestamp) -> bool {
        self.failures(node, boot).iter().any(|failure| failure.run.ended > since)
    }

    /// The runs that passed on any other node.
    pub(super) fn passes_elsewhere(&self, node: &Uid) -> impl Iterator<Item = &Run> {
        self.passes.iter().filter(move |run| run.node != *node)
    }
}

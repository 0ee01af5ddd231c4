//! Statistics of runs.

use std::collections::{BTreeMap, BTreeSet};

/// The statistics of one or more runs.
#[derive(Debug, Default, Clone)]
pub struct Stats {
    /// Events that happened.
    pub steps: u64,
    /// Writes by the controllers or the pods of the `DaemonSet`.
    pub writes: usize,
    /// Events that watches have sent.
    pub events: usize,
    /// Deletions of workers and nodes by the controllers or the pods of the `DaemonSet`.
    pub deletions: usize,
    /// Distinct node states that occurred.
    pub states: BTreeSet<u64>,
    /// What happened, and how often. A simulation in which something never happens proves nothing about it.
    pub seen: BTreeMap<&'static str, usize>,
}

impl Stats {
    /// Counts something that happened.
    pub(crate) fn count(&mut self, what: &'static str) {
        self.count_many(what, 1);
    }

    /// Counts something that happened `times` times.
    pub(crate) fn count_many(&mut self, what: &'static str, times: usize) {
        if times > 0 {
            *self.seen.entry(what).or_default() += times;
        }
    }

    /// Adds the statistics of another run.
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.writes += other.writes;
        self.events += other.events;
        self.deletions += other.deletions;
        self.states.extend(other.states);
        for (what, times) in other.seen {
            *self.seen.entry(what).or_default() += times;
        }
    }
}

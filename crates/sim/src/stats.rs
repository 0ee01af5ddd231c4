//! What runs come to, in numbers.

use std::collections::{BTreeMap, BTreeSet};

/// What a run came to.
#[derive(Debug, Default, Clone)]
pub struct Stats {
    /// Events that happened.
    pub steps: u64,
    /// Writes of ours that reached the API server.
    pub writes: usize,
    /// Events that watches brought.
    pub events: usize,
    /// Deletions of ours.
    pub deletions: usize,
    /// Different states in which nodes were seen.
    pub states: BTreeSet<u64>,
    /// What happened, and how often: a simulation in which something never happens shows nothing about it.
    pub seen: BTreeMap<&'static str, usize>,
}

impl Stats {
    /// Counts something that happened.
    pub(crate) fn count(&mut self, what: &'static str) {
        self.count_many(what, 1);
    }

    /// Counts something that happened so many times.
    pub(crate) fn count_many(&mut self, what: &'static str, times: usize) {
        if times > 0 {
            *self.seen.entry(what).or_default() += times;
        }
    }

    /// Adds what another run came to.
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

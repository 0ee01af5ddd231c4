//! What runs come to, in numbers.

use std::collections::BTreeSet;

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
}

impl Stats {
    /// Adds what another run came to.
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.writes += other.writes;
        self.events += other.events;
        self.deletions += other.deletions;
        self.states.extend(other.states);
    }
}

//! Monitoring of a verified node: the checks run periodically, and a single failure is not yet a verdict.

use jiff::{SignedDuration, Timestamp};

use crate::rng::Rng;

/// The settings and the state of the monitoring of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Monitoring {
    /// The time between two runs of the checks.
    interval: SignedDuration,
    /// The number of failures in a row after which the node has to prove itself.
    failures: u32,
    failed: u32,
    /// The time of the next run; `None` while the checks run, or while the node is not verified.
    next: Option<Timestamp>,
    is_running: bool,
}

/// The conclusion from a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The node is healthy.
    Sound,
    /// The failure is counted.
    Warning,
    /// The node has to prove itself.
    Unsound,
}

impl Monitoring {
    /// Runs the checks at this interval, and judges by this number of failures in a row.
    #[must_use]
    pub(crate) fn new(interval: SignedDuration, failures: u32) -> Self {
        Self { interval, failures, failed: 0, next: None, is_running: false }
    }

    /// Takes note of whether the node is verified.
    pub(super) fn node_is_verified(&mut self, verified: bool, now: Timestamp, rng: &mut Rng) {
        match (verified, self.next) {
            (false, _) => (self.next, self.failed) = (None, 0),
            (true, None) if !self.is_running => {
                let tenth = self.interval / 10;
                let jitter = tenth * i32::try_from(rng.below(21)).unwrap_or(0) / 10;
                self.next = Some(now + self.interval - tenth + jitter);
            }
            (true, _) => {}
        }
    }

    /// Returns whether the checks are due, and if so, marks them as running.
    pub(super) fn begins(&mut self, now: Timestamp) -> bool {
        let is_due = !self.is_running && self.next.is_some_and(|at| at <= now);
        if is_due {
            (self.is_running, self.next) = (true, None);
        }
        is_due
    }

    /// Returns the time of the next run.
    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.is_running)
    }

    /// Takes note of the result of a run, and judges the node.
    pub(super) fn ran(&mut self, passed: bool, verified: bool) -> Judgement {
        self.is_running = false;
        if !verified || passed {
            self.failed = 0;
            return Judgement::Sound;
        }
        self.failed += 1;
        if self.failed < self.failures { Judgement::Warning } else { Judgement::Unsound }
    }

    /// The last failure could not be acted upon. The next one is judged again.
    pub(super) fn not_yet(&mut self) {
        self.failed = self.failures.saturating_sub(1);
    }
}

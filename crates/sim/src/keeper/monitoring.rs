//! A verified node that stays under watch: the checks are run again and again, and one failure is not yet a verdict.

use jiff::{SignedDuration, Timestamp};

use crate::rng::Rng;

/// How a verified node is watched, and what was seen so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Monitoring {
    /// How often the checks are run.
    interval: SignedDuration,
    /// After so many failures in a row the node has to prove itself.
    failures: u32,
    failed: u32,
    /// When the checks are run next; none while they run, or while the node is not verified.
    next: Option<Timestamp>,
    is_running: bool,
}

/// What follows from a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The node is as it should be.
    Sound,
    /// It is counted.
    Warning,
    /// The node has to prove itself.
    Unsound,
}

impl Monitoring {
    /// Runs the checks this often, and judges by so many failures in a row.
    #[must_use]
    pub(crate) fn new(interval: SignedDuration, failures: u32) -> Self {
        Self { interval, failures, failed: 0, next: None, is_running: false }
    }

    /// The node is verified, or it is not.
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

    /// Says whether the checks are to be run now; they are then taken to be running.
    pub(super) fn begins(&mut self, now: Timestamp) -> bool {
        let is_due = !self.is_running && self.next.is_some_and(|at| at <= now);
        if is_due {
            (self.is_running, self.next) = (true, None);
        }
        is_due
    }

    /// When the checks are run next.
    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.is_running)
    }

    /// The checks were run.
    pub(super) fn ran(&mut self, passed: bool, verified: bool) -> Judgement {
        self.is_running = false;
        if !verified || passed {
            self.failed = 0;
            return Judgement::Sound;
        }
        self.failed += 1;
        if self.failed < self.failures { Judgement::Warning } else { Judgement::Unsound }
    }

    /// The last failure could not be acted upon; the next one can.
    pub(super) fn not_yet(&mut self) {
        self.failed = self.failures.saturating_sub(1);
    }
}

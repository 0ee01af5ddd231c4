//! Monitoring of a verified node: the checks run periodically, and a single failure is not yet a verdict.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use knr_core::report::Report;
use tokio::time::Instant;

/// How a verified node is monitored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Monitoring {
    /// How often the checks run.
    pub(crate) interval: Duration,
    /// The number of failures in a row after which the node has to prove itself again.
    pub(crate) failures: u32,
}

/// Schedules the runs and counts the failures.
#[derive(Debug)]
pub(super) struct Monitor {
    settings: Monitoring,
    failed: u32,
    /// The time of the next run; none during a run, and while the node is not verified.
    next: Option<Instant>,
    is_running: bool,
}

/// The consequence of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// No failure counts: the checks passed, or the node is no longer verified.
    Sound,
    /// The failure is counted.
    Warning,
    /// The node has to prove itself again, and this report is the evidence.
    Unsound(Report),
}

impl Monitor {
    pub(super) fn new(settings: Monitoring) -> Self {
        Self { settings, failed: 0, next: None, is_running: false }
    }

    /// Records whether the node is verified. Failures before it lost that status have had their effect and no longer
    /// count.
    pub(super) fn node_is_verified(&mut self, verified: bool, now: Instant) {
        match (verified, self.next) {
            (false, _) => (self.next, self.failed) = (None, 0),
            (true, None) if !self.is_running => self.next = Some(now + jittered(self.settings.interval)),
            (true, _) => {}
        }
    }

    /// Returns true if the checks are due, and marks them as running.
    pub(super) fn begins(&mut self, now: Instant) -> bool {
        let is_due = !self.is_running && self.next.is_some_and(|at| at <= now);
        if is_due {
            (self.is_running, self.next) = (true, None);
        }
        is_due
    }

    /// The time of the next run.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.next.filter(|_| !self.is_running)
    }

    /// Records a run of the checks. The report is ignored if the node is no longer verified.
    pub(super) fn ran(&mut self, report: Report, verified: bool) -> Judgement {
        self.is_running = false;
        if !verified || report.failures() == 0 {
            self.failed = 0;
            return Judgement::Sound;
        }
        self.failed = self.failed.saturating_add(1);
        let (failed, of) = (self.failed, self.settings.failures);
        let why = report.first_failure().map(|(check, failure)| format!("{check}: {failure}"));
        if failed < of {
            tracing::warn!(failed, of, why, "the checks failed on a verified node");
            return Judgement::Warning;
        }
        tracing::error!(failed, of, why, "the checks failed too often in a row on a verified node");
        Judgement::Unsound(report)
    }

    /// The last failure could not be acted on, so the next one reaches the limit again.
    pub(super) fn not_yet(&mut self) {
        self.failed = self.settings.failures.saturating_sub(1);
    }
}

/// Varies an interval by up to a tenth, so that nodes that joined together do not query the same servers in step
/// indefinitely.
fn jittered(interval: Duration) -> Duration {
    let share =
        f64::from(u16::try_from(RandomState::new().hash_one(()) & 0xffff).unwrap_or(0)) / f64::from(u16::MAX);
    interval.mul_f64(0.9 + 0.2 * share)
}

#[cfg(test)]
mod tests {
    use knr_core::fault::Kind;
    use knr_core::report::{CheckOutcome, CheckResult, Failure};

    use super::*;

    const EVERY: Duration = Duration::from_mins(1);

    fn report(passes: bool) -> Report {
        let failure = Failure { kind: Kind::Timeout.into(), detail: String::new(), hint: String::new() };
        let outcome = if passes { CheckOutcome::Pass } else { CheckOutcome::Fail(failure) };
        Report {
            checks: vec![CheckResult { name: "dns".into(), outcome, millis: 1, note: String::new() }],
            ..Report::default()
        }
    }

    fn monitor() -> Monitor {
        Monitor::new(Monitoring { interval: EVERY, failures: 3 })
    }

    /// Runs the checks and returns the consequence.
    fn run(monitor: &mut Monitor, passes: bool) -> Judgement {
        let later = Instant::now() + EVERY * 2;
        monitor.node_is_verified(true, Instant::now());
        assert!(monitor.begins(later));
        monitor.ran(report(passes), true)
    }

    #[test]
    fn only_failures_in_a_row_count() {
        let mut monitor = monitor();
        for passes in [false, false, true, false, false] {
            let expected = if passes { Judgement::Sound } else { Judgement::Warning };
            assert_eq!(run(&mut monitor, passes), expected);
        }
        assert_eq!(run(&mut monitor, false), Judgement::Unsound(report(false)));
        monitor.node_is_verified(false, Instant::now());
        assert_eq!(run(&mut monitor, false), Judgement::Warning, "the count starts over once it is closed");
    }

    #[test]
    fn a_judgement_that_could_not_be_acted_upon_is_repeated_at_the_next_failure() {
        let mut monitor = monitor();
        for _ in 0..2 {
            assert_eq!(run(&mut monitor, false), Judgement::Warning);
        }
        for _ in 0..2 {
            assert_eq!(run(&mut monitor, false), Judgement::Unsound(report(false)));
            monitor.not_yet();
        }
        assert_eq!(run(&mut monitor, true), Judgement::Sound);
        assert_eq!(run(&mut monitor, false), Judgement::Warning);
    }

    #[test]
    fn a_node_that_is_not_verified_is_not_watched() {
        let mut monitor = monitor();
        let now = Instant::now();
        assert!(monitor.wake().is_none() && !monitor.begins(now + EVERY * 9));
        assert_eq!(run(&mut monitor, false), Judgement::Warning);
        monitor.node_is_verified(false, now);
        assert!(monitor.wake().is_none());
        for _ in 0..2 {
            assert_eq!(run(&mut monitor, false), Judgement::Warning, "earlier failures no longer count");
        }
        monitor.node_is_verified(true, now);
        assert!(monitor.begins(now + EVERY * 2));
        assert_eq!(monitor.ran(report(false), false), Judgement::Sound, "it was closed in the meantime");
    }

    #[test]
    fn the_checks_never_run_twice_at_once() {
        let mut monitor = monitor();
        let now = Instant::now();
        monitor.node_is_verified(true, now);
        let at = monitor.wake().unwrap();
        assert!(at >= now + EVERY * 9 / 10 && at <= now + EVERY * 11 / 10, "up to a tenth more or less");
        assert!(!monitor.begins(now) && monitor.begins(at));
        monitor.node_is_verified(true, at);
        assert!(monitor.wake().is_none() && !monitor.begins(at + EVERY * 9));
    }
}

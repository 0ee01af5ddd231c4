//! The time for the rules: the wall clock when the process was started, and what a monotonic clock has counted since.
//! It never jumps, whatever is done to the clock of the machine.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    wall: Timestamp,
    start: Instant,
}

impl Clock {
    /// Starts the clock.
    pub(crate) fn start() -> Self {
        Self { wall: Timestamp::now(), start: Instant::now() }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// What time it was then, or will be.
    pub(crate) fn at(&self, instant: Instant) -> Timestamp {
        let elapsed = SignedDuration::try_from(instant.duration_since(self.start));
        self.wall.checked_add(elapsed.unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
    }

    /// When it will be this time.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        let ahead = at.duration_since(self.wall).max(SignedDuration::ZERO);
        self.start + std::time::Duration::try_from(ahead).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_and_back() {
        let clock = Clock::start();
        let soon = clock.now() + SignedDuration::from_secs(7);
        assert_eq!(clock.instant(soon), Instant::now() + Duration::from_secs(7));
        assert_eq!(clock.at(clock.instant(soon)), soon);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(clock.now() > soon);
        assert!(clock.instant(soon) < Instant::now());
    }
}

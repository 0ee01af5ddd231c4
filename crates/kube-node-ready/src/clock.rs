//! The time for the rules: the wall clock at process start plus the monotonic time elapsed since. It never jumps, even
//! if the machine's clock is changed.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

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

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// Converts an instant, past or future, to a timestamp.
    pub(crate) fn at(&self, instant: Instant) -> Timestamp {
        let elapsed = SignedDuration::try_from(instant.duration_since(self.start));
        self.wall.checked_add(elapsed.unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
    }

    /// Converts a timestamp to an instant, which is never before the start of the clock.
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

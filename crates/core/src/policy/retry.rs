//! How many times a node is tried, and at which delays.

use jiff::SignedDuration;

use crate::config::{Reconciliation, RetryBackoff};

/// How many times a node is tried, and at which delays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Failed attempts in a row after which a node counts as failed.
    pub max_attempts: u32,
    /// Runs without a verdict in a row after which a node counts as failed.
    pub max_inconclusive_runs: u32,
    pub backoff: RetryBackoff,
    pub first_delay_seconds: u32,
    pub longest_delay_seconds: u32,
}

impl Retry {
    #[must_use]
    pub fn longest_delay(&self) -> SignedDuration {
        SignedDuration::from_secs(self.longest_delay_seconds.into())
    }

    /// The delay between a failed attempt and the next one. A node that counts as failed is tried at the longest delay.
    #[must_use]
    pub fn delay_after_attempt(&self, attempt: u32) -> SignedDuration {
        if attempt > self.max_attempts { self.longest_delay() } else { self.delay_after(attempt) }
    }

    /// The delay after this many runs in a row.
    #[must_use]
    pub fn delay_after(&self, runs: u32) -> SignedDuration {
        let earlier = runs.saturating_sub(1);
        let factor = match self.backoff {
            RetryBackoff::Exponential => 1_u64.checked_shl(earlier).unwrap_or(u64::MAX),
            RetryBackoff::Linear => u64::from(earlier) + 1,
        };
        let seconds =
            u64::from(self.first_delay_seconds).saturating_mul(factor).min(self.longest_delay_seconds.into());
        SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
    }
}

impl From<&Reconciliation> for Retry {
    fn from(settings: &Reconciliation) -> Self {
        Self {
            max_attempts: settings.max_retries,
            max_inconclusive_runs: settings.max_inconclusive_runs,
            backoff: settings.retry_backoff,
            first_delay_seconds: settings.retry_delay_seconds,
            longest_delay_seconds: settings.max_retry_delay_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Retry {
        Retry::from(&Reconciliation::default())
    }

    fn delays(retry: &Retry, runs: &[u32]) -> Vec<i64> {
        runs.iter().map(|&runs| retry.delay_after(runs).as_secs()).collect()
    }

    #[test]
    fn exponential_delays_double_until_the_cap() {
        assert_eq!(delays(&defaults(), &[1, 2, 3, 4, 8, 9, 10, 11]), [1, 2, 4, 8, 128, 256, 300, 300]);
        assert_eq!(delays(&defaults(), &[63, 64, 65, 66, u32::MAX]), [300; 5]);
    }

    #[test]
    fn linear_delays_grow_by_the_first_until_the_cap() {
        let retry = Retry {
            backoff: RetryBackoff::Linear,
            first_delay_seconds: 7,
            longest_delay_seconds: 30,
            ..defaults()
        };
        assert_eq!(delays(&retry, &[1, 2, 3, 4, 5, 6, u32::MAX]), [7, 14, 21, 28, 30, 30, 30]);
    }

    #[test]
    fn beyond_the_last_attempt_the_delay_is_the_longest() {
        let delays = [1, 4, 5, 6, 7].map(|attempt| defaults().delay_after_attempt(attempt).as_secs());
        assert_eq!(delays, [1, 8, 16, 300, 300]);
    }

    #[test]
    fn attempt_zero_waits_like_the_first() {
        assert_eq!(defaults().delay_after(0), SignedDuration::from_secs(1));
    }
}

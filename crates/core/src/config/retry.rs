//! The `reconciliation` section.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When nodes are looked at and how failed checks are tried again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reconciliation {
    /// Seconds after which workers are listed again while any of them run, in case their end was not told. Also how often
    /// a node that waits for something outside is looked at again.
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: u32,
    /// Failed attempts in a row after which a node counts as failed, and may be deleted. It is still tried again, every
    /// `maxRetryDelaySeconds`.
    #[schemars(range(min = 1, max = 100))]
    pub max_retries: u32,
    /// How the delay between two attempts grows.
    pub retry_backoff: RetryBackoff,
    /// Seconds between the first failed attempt and the second.
    #[schemars(range(min = 1, max = 3600))]
    pub retry_delay_seconds: u32,
    /// Seconds between two attempts at most. Not less than `retryDelaySeconds`.
    #[schemars(range(min = 1, max = 86400))]
    pub max_retry_delay_seconds: u32,
    /// Runs in a row without a verdict, because the worker was evicted or lost, after which a node counts as failed. It
    /// is never deleted for this, and is still tried again.
    #[schemars(range(min = 1, max = 1000))]
    pub max_inconclusive_runs: u32,
    /// Whether the controller only watches: no worker starts and no node changes.
    pub paused: bool,
    /// Whether the controller says what it would do instead of doing it. It takes the lease all the same; with `--dry-run` on
    /// the command line it does not.
    pub dry_run: bool,
}

impl Default for Reconciliation {
    fn default() -> Self {
        Self {
            interval_seconds: 30,
            max_retries: 5,
            retry_backoff: RetryBackoff::Exponential,
            retry_delay_seconds: 1,
            max_retry_delay_seconds: 300,
            max_inconclusive_runs: 10,
            paused: false,
            dry_run: false,
        }
    }
}

impl Reconciliation {
    /// The same as a span.
    #[must_use]
    pub fn interval(&self) -> SignedDuration {
        SignedDuration::from_secs(self.interval_seconds.into())
    }

    /// The longest time between two attempts.
    #[must_use]
    pub fn longest_delay(&self) -> SignedDuration {
        SignedDuration::from_secs(self.max_retry_delay_seconds.into())
    }

    /// How long to wait after the given failed attempt: the longest delay once all attempts are used up.
    #[must_use]
    pub fn delay_after_attempt(&self, attempt: u32) -> SignedDuration {
        if attempt > self.max_retries { self.longest_delay() } else { self.delay_after(attempt) }
    }

    /// How long to wait after the given failed attempt, the first being 1, before the next one.
    #[must_use]
    pub fn delay_after(&self, attempt: u32) -> SignedDuration {
        let earlier = attempt.saturating_sub(1);
        let factor = match self.retry_backoff {
            RetryBackoff::Exponential => 1_u64.checked_shl(earlier).unwrap_or(u64::MAX),
            RetryBackoff::Linear => u64::from(earlier) + 1,
        };
        let seconds = u64::from(self.retry_delay_seconds)
            .saturating_mul(factor)
            .min(self.max_retry_delay_seconds.into());
        SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
    }
}

/// How the delay between two attempts grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RetryBackoff {
    /// It doubles: 1, 2, 4, 8 times the first delay.
    Exponential,
    /// It grows by the first delay: 1, 2, 3, 4 times the first delay.
    Linear,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(reconciliation: &Reconciliation, attempts: &[u32]) -> Vec<i64> {
        attempts.iter().map(|&attempt| reconciliation.delay_after(attempt).as_secs()).collect()
    }

    #[test]
    fn exponential_delays_double_until_the_cap() {
        let reconciliation = Reconciliation::default();
        assert_eq!(delays(&reconciliation, &[1, 2, 3, 4, 8, 9, 10, 11]), [1, 2, 4, 8, 128, 256, 300, 300]);
        assert_eq!(delays(&reconciliation, &[63, 64, 65, 66, u32::MAX]), [300; 5]);
    }

    #[test]
    fn linear_delays_grow_by_the_first_until_the_cap() {
        let reconciliation = Reconciliation {
            retry_backoff: RetryBackoff::Linear,
            retry_delay_seconds: 7,
            max_retry_delay_seconds: 30,
            ..Reconciliation::default()
        };
        assert_eq!(delays(&reconciliation, &[1, 2, 3, 4, 5, 6, u32::MAX]), [7, 14, 21, 28, 30, 30, 30]);
    }

    #[test]
    fn beyond_the_last_attempt_the_delay_is_the_longest() {
        let reconciliation = Reconciliation::default();
        let delays = [1, 4, 5, 6, 7].map(|attempt| reconciliation.delay_after_attempt(attempt).as_secs());
        assert_eq!(delays, [1, 8, 16, 300, 300]);
    }

    #[test]
    fn attempt_zero_waits_like_the_first() {
        assert_eq!(Reconciliation::default().delay_after(0), SignedDuration::from_secs(1));
    }
}

//! The `reconciliation` section.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When nodes are looked at, and how failed checks are retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reconciliation {
    /// Seconds between two lists of the workers while any of them run, in case an event was missed. Also how often a node
    /// that waits for something else is looked at again.
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: u32,
    /// Number of consecutive failed attempts after which a node counts as failed, and may be deleted. It is still tried
    /// every `maxRetryDelaySeconds`.
    #[schemars(range(min = 1, max = 100))]
    pub max_retries: u32,
    /// How the delay between two attempts grows.
    pub retry_backoff: RetryBackoff,
    /// Seconds between the first failed attempt and the second.
    #[schemars(range(min = 1, max = 3600))]
    pub retry_delay_seconds: u32,
    /// Maximum number of seconds between two attempts. Not less than `retryDelaySeconds`.
    #[schemars(range(min = 1, max = 86400))]
    pub max_retry_delay_seconds: u32,
    /// Number of consecutive runs without a verdict, because the worker was evicted or lost, after which a node counts as
    /// failed. It is never deleted for this, and is still retried.
    #[schemars(range(min = 1, max = 1000))]
    pub max_inconclusive_runs: u32,
    /// Whether the controller only watches, so that no worker starts and no node changes.
    pub paused: bool,
    /// Whether the controller reports what it would do instead of doing it. It still takes the lease, unlike with
    /// `--dry-run` on the command line.
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
    /// The interval as a duration.
    #[must_use]
    pub fn interval(&self) -> SignedDuration {
        SignedDuration::from_secs(self.interval_seconds.into())
    }
}

/// How the delay between two attempts grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RetryBackoff {
    /// It doubles each time: 1, 2, 4, 8 times the first delay.
    Exponential,
    /// It grows by the first delay each time: 1, 2, 3, 4 times the first delay.
    Linear,
}

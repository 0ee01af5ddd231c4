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

//! The sections about the controller itself and its bounds.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format;

/// Limits on what the controller does to a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Number of slots for workers in the whole cluster. A worker holds one while it runs, and before that for the first
    /// ten seconds in which it could start. After that it hands the slot on and keeps waiting. While there are ten
    /// workers for each slot, no node is tried again.
    #[schemars(range(min = 1, max = 10000))]
    pub max_concurrent_workers: u32,
    /// How many nodes may be deleted, and when the cluster itself is suspected. The latter applies even if
    /// `nodeManagement.deleteFailedNodes` is `false`.
    pub deletion: DeletionLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_concurrent_workers: 100, deletion: DeletionLimits::default() }
    }
}

/// How many nodes may be deleted, and when the cluster itself is suspected. A deletion is subject to all three limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeletionLimits {
    /// Maximum number of nodes deleted in any hour, whatever the size of the cluster.
    #[schemars(range(min = 1, max = 1000))]
    pub max_per_hour: u32,
    /// Maximum percentage of the managed nodes deleted in any hour. One node may always be deleted, however small the
    /// cluster.
    #[schemars(range(min = 1, max = 100))]
    pub max_percent: u32,
    /// Percentage of the managed nodes that may fail before the cluster itself is suspected. While more than that, and
    /// more than one, are failing, no node is deleted, no open node is closed and no failure costs an attempt. Open
    /// nodes are also closed (after a failure, by `onReboot: close` or by `backfill`) only while no more than this
    /// percentage of all nodes in scope are closed and not verified; one node may always be closed.
    #[schemars(range(min = 0, max = 100))]
    pub max_failing_percent: u32,
}

impl Default for DeletionLimits {
    fn default() -> Self {
        Self { max_per_hour: 3, max_percent: 10, max_failing_percent: 20 }
    }
}

impl DeletionLimits {
    /// The number of nodes that may be deleted in any hour, given the number of managed nodes.
    #[must_use]
    pub fn per_hour(&self, managed: usize) -> usize {
        let share = managed.saturating_mul(as_usize(self.max_percent)) / 100;
        share.max(1).min(as_usize(self.max_per_hour))
    }

    /// Returns whether so many of the managed nodes fail that nothing may be deleted. A single failing node is never
    /// too many.
    #[must_use]
    pub fn too_many_failing(&self, failing: usize, managed: usize) -> bool {
        failing > 1
            && failing.saturating_mul(100) > managed.saturating_mul(as_usize(self.max_failing_percent))
    }
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// How replicas of the controller elect the one that acts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether a controller waits for the lease before it acts. Without it only one controller may run.
    pub enabled: bool,
    /// Name of the lease.
    #[schemars(regex(pattern = format::DNS_SUBDOMAIN.pattern))]
    pub lease_name: String,
    /// Namespace of the lease. Empty: the namespace of the controller.
    #[schemars(regex(pattern = format::DNS_LABEL_OR_EMPTY.pattern))]
    pub lease_namespace: String,
    /// Seconds after the last renewal at which another controller may take the lease.
    #[schemars(range(min = 2, max = 3600))]
    pub lease_duration_seconds: u32,
    /// Seconds without a renewal after which the leader stops acting. Less than `leaseDurationSeconds`.
    #[schemars(range(min = 1, max = 3600))]
    pub renew_deadline_seconds: u32,
    /// Seconds between two attempts to take or renew the lease. Less than `renewDeadlineSeconds`.
    #[schemars(range(min = 1, max = 3600))]
    pub retry_period_seconds: u32,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_name: "kube-node-ready-controller".to_owned(),
            lease_namespace: String::new(),
            lease_duration_seconds: 15,
            renew_deadline_seconds: 10,
            retry_period_seconds: 2,
        }
    }
}

impl LeaderElection {
    /// The time after the last renewal at which another controller may take the lease.
    #[must_use]
    pub fn lease_duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration_seconds.into())
    }

    /// The time without a renewal after which the leader stops acting.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        Duration::from_secs(self.renew_deadline_seconds.into())
    }

    /// The time between two attempts to take or renew the lease.
    #[must_use]
    pub fn retry_period(&self) -> Duration {
        Duration::from_secs(self.retry_period_seconds.into())
    }
}

/// The Prometheus endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// Whether metrics are served.
    pub enabled: bool,
    /// Port of the endpoint.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Whether there are series for each node. They are costly in very large clusters.
    pub per_node: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { enabled: true, port: 8080, per_node: true }
    }
}

/// The health endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Health {
    /// Port of the endpoint. If it is the port of `metrics`, one server serves both.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

impl Default for Health {
    fn default() -> Self {
        Self { port: 8080 }
    }
}

/// What is logged and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Logging {
    /// The lowest level that is logged.
    pub level: Level,
    /// The format of the log.
    pub format: LogFormat,
}

impl Default for Logging {
    fn default() -> Self {
        Self { level: Level::Info, format: LogFormat::Json }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LogLevel")]
pub enum Level {
    /// Every step, requests included.
    Trace,
    /// Every decision.
    Debug,
    /// Every change.
    Info,
    /// Problems that are retried.
    Warn,
    /// Problems that need an operator.
    Error,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// One JSON object per line, for machines.
    Json,
    /// Text, for people.
    Console,
}

/// How the Kubernetes API is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Kubernetes {
    /// Path of a kubeconfig file. Empty: the service account of the pod, or what kubectl would use.
    pub kubeconfig: String,
    /// Timeout of a request in seconds.
    #[schemars(range(min = 1, max = 300))]
    pub request_timeout_seconds: u32,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self { kubeconfig: String::new(), request_timeout_seconds: 10 }
    }
}

impl Kubernetes {
    /// The timeout of one request.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout_seconds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_an_hour_may_go_even_in_a_small_cluster() {
        let limits = DeletionLimits::default();
        let allowed: Vec<usize> =
            [0, 1, 9, 19, 20, 30, 39, 5000].map(|managed| limits.per_hour(managed)).into();
        assert_eq!(allowed, [1, 1, 1, 1, 2, 3, 3, 3]);
    }

    #[test]
    fn exactly_the_allowed_share_may_fail() {
        let limits = DeletionLimits::default();
        assert!(!limits.too_many_failing(2, 10));
        assert!(limits.too_many_failing(3, 10));
        assert!(!limits.too_many_failing(0, 0));
        assert!(!limits.too_many_failing(1, 1));
        assert!(limits.too_many_failing(2, 2));
    }
}

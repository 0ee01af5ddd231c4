//! The metrics. Every name and label is in `docs/metrics.md`, which is generated from this module.

mod families;
mod nodes;
mod own_node;

use std::fmt;
use std::time::Duration;

use knr_core::explain::Phase;
use prometheus_client::encoding::text;

use crate::health::{Health, Kind};
use families::{Families, health_registry};
use nodes::Nodes;
pub use own_node::NodeMetrics;

/// A source of metrics.
pub trait Exposition: Send + Sync {
    /// Returns all metrics in the `OpenMetrics` text format, including those of the current health.
    fn text(&self, health: &Health) -> Result<String, fmt::Error>;
}

/// The metrics of the controller. Share them in an `Arc`.
#[derive(Debug)]
pub struct Metrics {
    nodes: Nodes,
    families: Families,
}

/// The number of workers, by the state of their pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Not running yet.
    pub pending: usize,
    /// Running the checks.
    pub running: usize,
    /// Succeeded, and not yet removed.
    pub succeeded: usize,
    /// Ended in any other way, and not yet removed.
    pub failed: usize,
}

/// Whether this replica leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leader {
    Yes,
    No,
}

/// The outcome of a changed configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigReload {
    /// The new configuration is in effect.
    Ok,
    /// The new configuration is invalid, and the last valid one stays in effect.
    Rejected,
}

impl Metrics {
    /// The values of the label `action`. Their series exist before the first write.
    pub const ACTIONS: [&str; 9] = [
        "start_worker",
        "remove_worker",
        "open_gate",
        "close_gate",
        "record",
        "set_condition",
        "event",
        "reserve_deletion",
        "delete_node",
    ];

    /// The values of the label `outcome` of a write.
    pub const OUTCOMES: [&str; 5] = ["done", "conflict", "refused", "unavailable", "unknown"];

    /// Creates the metrics, with or without series for each node.
    #[must_use]
    pub fn new(per_node: bool) -> Self {
        let nodes = Nodes::new(per_node);
        Self { families: Families::new(nodes.clone()), nodes }
    }

    /// Shows or hides the series of each node. Hidden series keep counting.
    pub fn set_per_node(&self, per_node: bool) {
        self.nodes.set_per_node(per_node);
    }

    /// Sets the phase of a node. `None` means that it is gone, and removes every series with its name.
    pub fn node(&self, name: &str, phase: Option<Phase>) {
        self.nodes.stands(name, phase);
    }

    /// A node was verified, this long after it was first seen.
    pub fn verified(&self, name: &str, since_seen: Duration) {
        self.families.verified("success");
        self.families.time_to_verified.observe(since_seen.as_secs_f64());
        self.nodes.verified(name, since_seen);
    }

    /// The checks failed on a node.
    pub fn failed(&self, name: &str) {
        self.families.verified("failed");
        self.nodes.failed(name);
    }

    /// Sets the fault of the installation that keeps the checks from running on a node, if there is one.
    pub fn blocked(&self, name: &str, fault: Option<&'static str>) {
        self.nodes.blocked(name, fault);
    }

    /// Sets whether the cluster rather than single nodes is suspected.
    pub fn cluster_suspected(&self, is_suspected: bool) {
        self.families.cluster_suspected.set(i64::from(is_suspected));
    }

    /// A failed node was deleted.
    pub fn deleted(&self) {
        self.families.nodes_deleted.inc();
    }

    /// A worker ended in a way that says nothing about its node.
    pub fn inconclusive(&self) {
        self.families.verified("inconclusive");
    }

    /// Sets the current number of workers.
    pub fn workers(&self, counts: WorkerCounts) {
        let WorkerCounts { pending, running, succeeded, failed } = counts;
        for (status, count) in
            [("pending", pending), ("running", running), ("succeeded", succeeded), ("failed", failed)]
        {
            self.families.worker_pods.get_or_create(&[("status", status)]).set(signed(count));
        }
    }

    /// A write was answered. The arguments are from [`Metrics::ACTIONS`] and [`Metrics::OUTCOMES`].
    pub fn write(&self, action: &'static str, outcome: &'static str, took: Duration) {
        self.families.writes.get_or_create(&[("action", action), ("outcome", outcome)]).inc();
        self.families.write_duration.get_or_create(&[("action", action)]).observe(took.as_secs_f64());
    }

    /// Sets the number of orders that wait to be sent, and of those that were sent and not answered yet.
    pub fn queue(&self, waiting: usize, in_flight: usize) {
        for (state, count) in [("waiting", waiting), ("in-flight", in_flight)] {
            self.families.queue.get_or_create(&[("state", state)]).set(signed(count));
        }
    }

    /// Events were given up.
    pub fn events_dropped(&self, count: usize) {
        self.families.events_dropped.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// This many nodes were decided about in one pass.
    pub fn decided(&self, nodes: usize, took: Duration) {
        self.families.decisions.inc_by(u64::try_from(nodes).unwrap_or(u64::MAX));
        self.families.decision_duration.observe(took.as_secs_f64());
    }

    /// Something failed in the loop, and will be retried.
    pub fn reconcile_error(&self) {
        self.families.reconcile_errors.inc();
    }

    /// Sets whether this replica leads.
    pub fn leading(&self, leader: Leader) {
        self.families.leader.set(match leader {
            Leader::Yes => 1,
            Leader::No => 0,
        });
    }

    /// The configuration file was changed.
    pub fn config_reload(&self, reload: ConfigReload) {
        let outcome = match reload {
            ConfigReload::Ok => "ok",
            ConfigReload::Rejected => "rejected",
        };
        self.families.config_reloads.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// The watch of a resource broke and was restarted.
    pub fn watch_restarted(&self, resource: &'static str) {
        self.families.watch_restarts.get_or_create(&[("resource", resource)]).inc();
    }
}

impl Exposition for Metrics {
    fn text(&self, health: &Health) -> Result<String, fmt::Error> {
        let readings = health.readings();
        for watch in readings.iter().filter(|reading| reading.kind == Kind::Watch) {
            // A watch that never broke has a series with zero restarts.
            drop(self.families.watch_restarts.get_or_create(&[("resource", watch.name)]));
        }
        let mut text = String::new();
        text::encode_registry(&mut text, &self.families.registry)?;
        text::encode_registry(&mut text, &health_registry(&readings))?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;

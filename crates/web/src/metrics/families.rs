//! The metric families: names, descriptions, and the series that exist before anything happens.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::Metrics;
use super::nodes::Nodes;
use crate::health::{Kind, Reading, is_alive};

pub(super) const PREFIX: &str = "kube_node_ready";

/// Buckets for the seconds from when a node is first seen until it is verified. They include image pulls and network
/// setup.
const NODE_START: [f64; 14] =
    [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0];
/// Buckets for the seconds that the API server takes for a write.
const REQUEST: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Buckets for the seconds of a decision: microseconds for one node, milliseconds for a cluster.
const THOUGHT: [f64; 11] = [0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0];

/// Labels whose names and values are constants.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

#[derive(Debug)]
pub(super) struct Families {
    pub(super) registry: Registry,
    verifications: Family<Labels<1>, Counter>,
    pub(super) time_to_verified: Histogram,
    pub(super) nodes_deleted: Counter,
    pub(super) worker_pods: Family<Labels<1>, Gauge>,
    pub(super) writes: Family<Labels<2>, Counter>,
    pub(super) write_duration: Family<Labels<1>, Histogram>,
    pub(super) queue: Family<Labels<1>, Gauge>,
    pub(super) events_dropped: Counter,
    pub(super) decisions: Counter,
    pub(super) decision_duration: Histogram,
    pub(super) reconcile_errors: Counter,
    pub(super) leader: Gauge,
    pub(super) cluster_suspected: Gauge,
    pub(super) config_reloads: Family<Labels<1>, Counter>,
    pub(super) watch_restarts: Family<Labels<1>, Counter>,
}

impl Families {
    pub(super) fn new(nodes: Nodes) -> Self {
        let mut families = Self {
            registry: Registry::with_prefix(PREFIX),
            verifications: Family::default(),
            time_to_verified: Histogram::new(NODE_START),
            nodes_deleted: Counter::default(),
            worker_pods: Family::default(),
            writes: Family::default(),
            write_duration: Family::new_with_constructor(|| Histogram::new(REQUEST)),
            queue: Family::default(),
            events_dropped: Counter::default(),
            decisions: Counter::default(),
            decision_duration: Histogram::new(THOUGHT),
            reconcile_errors: Counter::default(),
            leader: Gauge::default(),
            cluster_suspected: Gauge::default(),
            config_reloads: Family::default(),
            watch_restarts: Family::default(),
        };
        families.preset();
        families.register_verification();
        families.register_controller();
        families.registry.register_collector(Box::new(nodes));
        families
    }

    pub(super) fn verified(&self, status: &'static str) {
        self.verifications.get_or_create(&[("status", status)]).inc();
    }

    /// Creates series with zero: only then can alerts refer to them, and does the first event count as an increase.
    fn preset(&self) {
        for status in ["success", "failed", "inconclusive"] {
            drop(self.verifications.get_or_create(&[("status", status)]));
        }
        for status in ["pending", "running", "succeeded", "failed"] {
            drop(self.worker_pods.get_or_create(&[("status", status)]));
        }
        for state in ["waiting", "in-flight"] {
            drop(self.queue.get_or_create(&[("state", state)]));
        }
        for outcome in ["ok", "rejected"] {
            drop(self.config_reloads.get_or_create(&[("outcome", outcome)]));
        }
        for action in Metrics::ACTIONS {
            drop(self.write_duration.get_or_create(&[("action", action)]));
            for outcome in Metrics::OUTCOMES {
                drop(self.writes.get_or_create(&[("action", action), ("outcome", outcome)]));
            }
        }
    }

    fn register_verification(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "verifications",
            "Finished runs of the checks, by result",
            self.verifications.clone(),
        );
        registry.register_with_unit(
            "time_to_verified",
            "Time from when a node was first seen until it was verified",
            Unit::Seconds,
            self.time_to_verified.clone(),
        );
        registry.register(
            "nodes_deleted",
            "Failed nodes that were deleted, directly or by their NodeClaim",
            self.nodes_deleted.clone(),
        );
        registry.register(
            "cluster_suspected",
            "1 while the cluster itself is suspected, so that no node is deleted or closed, else 0",
            self.cluster_suspected.clone(),
        );
        registry.register(
            "worker_pods",
            "Worker pods that exist now, by their state",
            self.worker_pods.clone(),
        );
    }

    fn register_controller(&mut self) {
        let registry = &mut self.registry;
        registry.register("writes", "Writes to the API server, by action and outcome", self.writes.clone());
        registry.register_with_unit(
            "write_duration",
            "Time until the API server answered a write",
            Unit::Seconds,
            self.write_duration.clone(),
        );
        registry.register(
            "queue_orders",
            "Orders that wait to be sent, and orders that were sent and not answered yet",
            self.queue.clone(),
        );
        registry.register(
            "events_dropped",
            "Events that were given up: under load, while the API server did not take them, or because this replica lost the lease, was paused or stopped",
            self.events_dropped.clone(),
        );
        registry.register("decisions", "Nodes that were decided about", self.decisions.clone());
        registry.register_with_unit(
            "decision_duration",
            "Time to decide about all nodes that had changed",
            Unit::Seconds,
            self.decision_duration.clone(),
        );
        registry.register(
            "controller_reconcile_errors",
            "Errors in the loop of the controller; each is retried",
            self.reconcile_errors.clone(),
        );
        registry.register("leader", "1 if this replica is the one that acts, else 0", self.leader.clone());
        registry.register(
            "config_reloads",
            "Changes of the configuration file that took effect or were rejected",
            self.config_reloads.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that broke off and were started again",
            self.watch_restarts.clone(),
        );
        let build = Family::<Labels<1>, Gauge>::default();
        build.get_or_create(&[("version", knr_core::VERSION)]).set(1);
        registry.register("build_info", "Always 1; the version is in the label", build);
    }
}

/// Returns the metrics that are computed at the time of a scrape.
pub(super) fn health_registry(readings: &[Reading]) -> Registry {
    let healthy: Gauge = Gauge::default();
    healthy.set(i64::from(is_alive(readings)));
    let ages = Family::<Labels<1>, Gauge<f64, AtomicU64>>::default();
    for watch in readings.iter().filter(|reading| reading.kind == Kind::Watch) {
        ages.get_or_create(&[("resource", watch.name)]).set(watch.age.as_secs_f64());
    }
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register(
        "controller_healthy",
        "1 if the loop and all watches are alive, as on /livez, else 0",
        healthy,
    );
    registry.register_with_unit(
        "watch_age",
        "Time since the last message from the watch of a resource",
        Unit::Seconds,
        ages,
    );
    registry
}

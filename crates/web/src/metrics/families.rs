//! The families of metrics: names, descriptions, and the series that exist before anything happens.

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

/// Seconds from the first sight of a node until it is verified: images are pulled and networks come up meanwhile.
const NODE_START: [f64; 14] =
    [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0];
/// Seconds that the API server takes for a write.
const REQUEST: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Seconds that we think: microseconds for one node, milliseconds for a cluster.
const THOUGHT: [f64; 11] = [0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0];

/// Names and values that are part of the program.
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

    /// An alert can be written, and a first event is seen as an increase, only if there was a zero before.
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
            "Runs of the checks that came to an end, by what they said about the node",
            self.verifications.clone(),
        );
        registry.register_with_unit(
            "time_to_verified",
            "Time from the first sight of a node until it was verified",
            Unit::Seconds,
            self.time_to_verified.clone(),
        );
        registry.register(
            "nodes_deleted",
            "Failed nodes that were deleted, those included that were deleted by their NodeClaim",
            self.nodes_deleted.clone(),
        );
        registry.register(
            "cluster_suspected",
            "1 while the cluster rather than single nodes is suspected, and nothing is deleted or closed, else 0",
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
        registry.register(
            "writes",
            "Writes to the API server, by what was written and what came of it",
            self.writes.clone(),
        );
        registry.register_with_unit(
            "write_duration",
            "Time until the API server answered a write",
            Unit::Seconds,
            self.write_duration.clone(),
        );
        registry.register(
            "queue_orders",
            "Orders that wait for their turn now, and orders that were sent and not answered",
            self.queue.clone(),
        );
        registry.register(
            "events_dropped",
            "Events that were never sent: under load they are dropped, so that gates and conditions are written in time",
            self.events_dropped.clone(),
        );
        registry.register("decisions", "Nodes that were decided about", self.decisions.clone());
        registry.register_with_unit(
            "decision_duration",
            "Time to decide about all the nodes that had changed",
            Unit::Seconds,
            self.decision_duration.clone(),
        );
        registry.register(
            "controller_reconcile_errors",
            "Errors in the loop of the controller; each is tried again",
            self.reconcile_errors.clone(),
        );
        registry.register("leader", "1 if this replica is the one that acts, else 0", self.leader.clone());
        registry.register(
            "config_reloads",
            "Changes of the configuration file that came into force or were rejected",
            self.config_reloads.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that broke off and were begun anew",
            self.watch_restarts.clone(),
        );
        let build = Family::<Labels<1>, Gauge>::default();
        build.get_or_create(&[("version", knr_core::VERSION)]).set(1);
        registry.register("build_info", "Always 1; the version is in the label", build);
    }
}

/// What only the moment of the question can tell.
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
        "1 if everything that has to show signs of life does, as on /livez, else 0",
        healthy,
    );
    registry.register_with_unit(
        "watch_age",
        "Time since the watch of a resource was last heard",
        Unit::Seconds,
        ages,
    );
    registry
}

//! Configurations at the start of a run.

mod edit;

use std::collections::BTreeSet;

use knr_core::config::{Config, Effect, OnReboot, RetryBackoff, Selector, StartupGate, Taint};
use knr_core::names;
use knr_core::view::PoolView;

use super::{Size, choose};
use crate::rng::Rng;
pub(crate) use edit::edit;
use edit::edit_gate;

/// An init pod that runs on every node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InitPod {
    /// The component that it belongs to.
    pub(crate) component: &'static str,
    /// The namespace in which it runs.
    pub(crate) namespace: &'static str,
}

/// The annotations by which every init pod reports that it is done. A gate may wait for any of them.
pub(crate) const INIT_POD_ANNOTATIONS: [&str; 3] = [names::READY_ANNOTATION, STORAGE_READY, DONE];

/// One for each of two gates, and one with matching labels in a namespace that no gate selects at first.
pub(crate) const INIT_PODS: [InitPod; 3] = [
    InitPod { component: names::INIT_POD_VALUE, namespace: "kube-system" },
    InitPod { component: STORAGE, namespace: STORAGE },
    InitPod { component: STORAGE, namespace: "default" },
];
const DONE: &str = "example.com/done";
const STORAGE: &str = "storage";
const STORAGE_READY: &str = "example.com/storage-ready";
const REQUEST_TIMEOUTS: [u32; 4] = [5, 10, 10, 15];
const SECOND_TAINT: &str = "node-ready/second";
const OTHER_TAINT: &str = "example.com/unverified";
const STORAGE_TAINT: &str = "example.com/storage";
const STORAGE_SINCE: &str = "example.com/storage-since";

/// Returns the keys of all taints that a gate may have in a run.
pub(crate) fn gate_keys() -> BTreeSet<String> {
    let keys = [names::UNVERIFIED_TAINT, names::STARTUP_TAINT, SECOND_TAINT, OTHER_TAINT, STORAGE_TAINT];
    let others = [names::STARTUP_TAINT, STORAGE_TAINT].map(other);
    keys.into_iter().map(str::to_owned).chain(others).collect()
}

/// Returns one pool that lists the gates as startup taints, and one that does not.
pub(super) fn pools() -> Vec<PoolView> {
    vec![
        PoolView { name: "aware".to_owned(), startup_taints: gate_keys() },
        PoolView { name: "unaware".to_owned(), startup_taints: std::iter::empty().collect() },
    ]
}

/// Returns the default configuration with short timeouts, so that the life of a node fits into minutes.
pub(super) fn base() -> Config {
    let mut config = Config::default();
    config.worker.timeout_seconds = 30;
    config.worker.pending_timeout_seconds = 40;
    config.reconciliation.max_retry_delay_seconds = 60;
    config
}

/// Draws the configuration at the start of a run.
pub(super) fn draw(size: Size, rng: &mut Rng) -> Config {
    let mut config = base();
    config.reconciliation.max_retries = choose(rng, [1, 3, 5]);
    config.reconciliation.max_retry_delay_seconds = choose(rng, [60, 60, 120, 300]);
    config.kubernetes.request_timeout_seconds = choose(rng, REQUEST_TIMEOUTS);
    if rng.permille(300) {
        config.reconciliation.retry_backoff = RetryBackoff::Linear;
    }
    let (slots, failing) = match size {
        Size::Small => ([1, 2, 100], [20, 60, 60]),
        Size::Large => ([5, 20, 100], [10, 20, 60]),
    };
    config.limits.max_concurrent_workers = choose(rng, slots);
    config.limits.deletion.max_failing_percent = choose(rng, failing);
    config.node_management.on_reboot = choose(rng, [OnReboot::Verify, OnReboot::Close, OnReboot::Ignore]);
    config.node_management.backfill = rng.permille(250);
    config.node_management.delete_failed_nodes = rng.permille(400);
    config.node_management.taints = taints(rng);
    if rng.permille(400) {
        config.gates = gates(rng);
        if rng.permille(500) {
            config.node_management.after = may_come_first(&config.gates);
        }
    }
    if !is_valid(&config) {
        config.node_management.backfill = false;
    }
    config
}

fn taint(key: &str, effect: Effect) -> Taint {
    Taint { key: key.to_owned(), value: "true".to_owned(), effect }
}

/// Returns a name that a gate may use instead of its own.
fn other(name: &str) -> String {
    format!("{name}-2")
}

fn taints(rng: &mut Rng) -> Vec<Taint> {
    match rng.below(10) {
        0..7 => vec![taint(names::UNVERIFIED_TAINT, Effect::NoSchedule)],
        7 => vec![taint(names::UNVERIFIED_TAINT, Effect::NoExecute)],
        8 => vec![taint(names::UNVERIFIED_TAINT, Effect::NoSchedule), taint(SECOND_TAINT, Effect::NoExecute)],
        _ => vec![
            taint(SECOND_TAINT, Effect::NoSchedule),
            taint(names::UNVERIFIED_TAINT, Effect::PreferNoSchedule),
        ],
    }
}

/// Returns a gate that waits for the init pods of another component.
fn second_gate() -> StartupGate {
    StartupGate {
        name: STORAGE.to_owned(),
        taint: taint(STORAGE_TAINT, Effect::NoSchedule),
        namespaces: vec![STORAGE.to_owned()],
        pod_selector: selector(&format!("{}={STORAGE}", names::INIT_POD_LABEL)),
        ready_annotation: STORAGE_READY.to_owned(),
        completed_annotation: STORAGE_SINCE.to_owned(),
        ..StartupGate::default()
    }
}

fn selector(text: &str) -> Selector {
    text.parse().unwrap_or_else(|_| StartupGate::default().pod_selector)
}

fn gates(rng: &mut Rng) -> Vec<StartupGate> {
    let second = StartupGate { after: waits_for(rng), ..second_gate() };
    let mut gates = match rng.below(4) {
        0 | 3 => vec![StartupGate::default(), second],
        1 => vec![second],
        _ => vec![StartupGate::default()],
    };
    for gate in &mut gates {
        for _ in 0..rng.below(3) {
            edit_gate(gate, rng);
        }
    }
    gates
}

/// Draws which gates a startup gate waits for.
fn waits_for(rng: &mut Rng) -> Option<Vec<String>> {
    match rng.below(4) {
        0 | 1 => None,
        2 => Some(Vec::new()),
        _ => Some(vec![names::VERIFICATION_GATE.to_owned()]),
    }
}

/// Returns the gates that may open before the verification gate, because they do not wait for it.
fn may_come_first(gates: &[StartupGate]) -> Vec<String> {
    let waits = |gate: &&StartupGate| gate.after.as_ref().is_some_and(|after| !after.is_empty());
    gates.iter().filter(|gate| !waits(gate)).map(|gate| gate.name.clone()).collect()
}

/// Returns whether the product accepts a configuration. Parsing takes time, so it is skipped where it cannot fail.
pub(crate) fn is_valid(config: &Config) -> bool {
    let evicts = config.node_management.taints.iter().any(|taint| taint.effect == Effect::NoExecute);
    if !(evicts && config.node_management.backfill) {
        return true;
    }
    serde_json::to_string(config).is_ok_and(|text| Config::parse(&text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_is_one_that_the_product_takes() {
        let mut rng = Rng::new(1);
        for size in [Size::Small, Size::Large] {
            for _ in 0..20 {
                let mut config = draw(size, &mut rng);
                for _ in 0..5 {
                    let text = serde_json::to_string(&config).unwrap();
                    assert!(!is_valid(&config) || Config::parse(&text).is_ok(), "{text}");
                    edit(&mut config, true, &mut rng);
                }
            }
        }
    }
}

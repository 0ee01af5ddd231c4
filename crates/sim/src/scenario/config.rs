//! Configurations: at the start of a run, and as operators edit them during it.

use std::collections::BTreeSet;

use knr_core::config::{
    Config, Effect, NodeManagement, OnReboot, RetryBackoff, Selector, StartupGate, Taint,
};
use knr_core::names;
use knr_core::view::PoolView;

use super::{Size, choose};
use crate::rng::Rng;

/// An init pod that runs on every node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InitPod {
    /// The component that it belongs to.
    pub(crate) component: &'static str,
    /// The namespace in which it runs.
    pub(crate) namespace: &'static str,
    /// The annotations by which it reports that it is done. A gate may wait for either of them.
    pub(crate) annotations: [&'static str; 2],
}

/// One for each of two gates, and one with matching labels in a namespace that no gate selects.
pub(crate) const INIT_PODS: [InitPod; 3] = [
    InitPod {
        component: names::INIT_POD_VALUE,
        namespace: "kube-system",
        annotations: [names::READY_ANNOTATION, DONE],
    },
    InitPod { component: STORAGE, namespace: STORAGE, annotations: [STORAGE_READY, DONE] },
    InitPod { component: STORAGE, namespace: "default", annotations: [STORAGE_READY, DONE] },
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
    let mut second = second_gate();
    second.after = match rng.below(4) {
        0 | 1 => None,
        2 => Some(Vec::new()),
        _ => Some(vec![names::VERIFICATION_GATE.to_owned()]),
    };
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

/// Changes one part of a startup gate, and returns its name.
fn edit_gate(gate: &mut StartupGate, rng: &mut Rng) -> &'static str {
    let is_storage = gate.name == STORAGE;
    let toggle = |text: &mut String, first: &str, second: String| {
        *text = if *text == first { second } else { first.to_owned() };
    };
    match rng.below(5) {
        0 => {
            gate.annotation_only = !gate.annotation_only;
            "reload: annotationOnly"
        }
        1 => {
            let first = if is_storage { STORAGE_READY } else { names::READY_ANNOTATION };
            toggle(&mut gate.ready_annotation, first, DONE.to_owned());
            "reload: readyAnnotation"
        }
        2 => {
            let first = if is_storage { STORAGE_SINCE } else { names::COMPLETED_ANNOTATION };
            toggle(&mut gate.completed_annotation, first, other(first));
            "reload: completedAnnotation"
        }
        3 => {
            let first = if is_storage { STORAGE_TAINT } else { names::STARTUP_TAINT };
            toggle(&mut gate.taint.key, first, other(first));
            "reload: taint of a gate"
        }
        _ => {
            gate.minimum_hold_seconds = choose(rng, [0, 20, 60]);
            "reload: minimumHoldSeconds"
        }
    }
}

/// Returns the gates that may open before the verification gate, because they do not wait for it.
fn may_come_first(gates: &[StartupGate]) -> Vec<String> {
    let waits = |gate: &&StartupGate| gate.after.as_ref().is_some_and(|after| !after.is_empty());
    gates.iter().filter(|gate| !waits(gate)).map(|gate| gate.name.clone()).collect()
}

/// Changes one part of a configuration, and returns its name.
pub(crate) fn edit(config: &mut Config, may_have_gates: bool, rng: &mut Rng) -> &'static str {
    match rng.below(23) {
        17 if rng.permille(500) => {
            config.kubernetes.request_timeout_seconds = choose(rng, REQUEST_TIMEOUTS);
            "reload: requestTimeoutSeconds"
        }
        0..6 | 17 => edit_pace(config, rng),
        15 | 16 | 18 => edit_worker(config, rng),
        6..13 => edit_nodes(&mut config.node_management, rng),
        19..23 if !config.gates.is_empty() => {
            let index = usize::try_from(rng.below(config.gates.len() as u64)).unwrap_or(0);
            edit_gate(&mut config.gates[index], rng)
        }
        13 if may_have_gates => {
            config.gates = if rng.permille(300) { Vec::new() } else { gates(rng) };
            let names = may_come_first(&config.gates);
            config.node_management.after.retain(|name| names.contains(name));
            "reload: gates"
        }
        _ => {
            let names = may_come_first(&config.gates);
            let after = &mut config.node_management.after;
            *after = if after.is_empty() { names } else { Vec::new() };
            "reload: after"
        }
    }
}

fn edit_pace(config: &mut Config, rng: &mut Rng) -> &'static str {
    let pace = &mut config.reconciliation;
    match rng.below(8) {
        0 => {
            pace.max_retries = up_to(6, rng);
            "reload: maxRetries"
        }
        1 => {
            pace.retry_delay_seconds = up_to(20, rng);
            pace.max_retry_delay_seconds = 20 + up_to(280, rng);
            pace.retry_backoff = choose(rng, [RetryBackoff::Linear, RetryBackoff::Exponential]);
            "reload: retry settings"
        }
        7 => {
            pace.interval_seconds = choose(rng, [10, 30, 60]);
            "reload: intervalSeconds"
        }
        6 => {
            pace.max_inconclusive_runs = 1 + up_to(9, rng);
            "reload: maxInconclusiveRuns"
        }
        2 => {
            pace.paused = !pace.paused;
            "reload: paused"
        }
        3 => {
            pace.dry_run = !pace.dry_run;
            "reload: dryRun"
        }
        4 => {
            config.limits.max_concurrent_workers = 1 + up_to(7, rng);
            "reload: maxConcurrentWorkers"
        }
        _ => {
            let deletion = &mut config.limits.deletion;
            deletion.max_failing_percent = up_to(100, rng);
            deletion.max_percent = up_to(30, rng);
            deletion.max_per_hour = up_to(5, rng);
            "reload: limits.deletion"
        }
    }
}

/// Edits what is required of a node. Results of other checks, under other timeouts or of another image no longer count
/// for or against it.
fn edit_worker(config: &mut Config, rng: &mut Rng) -> &'static str {
    let worker = &mut config.worker;
    match rng.below(3) {
        0 => {
            worker.pending_timeout_seconds = 20 + up_to(40, rng);
            worker.timeout_seconds = 15 + up_to(30, rng);
            "reload: worker timeouts"
        }
        1 => {
            worker.connectivity_matrix = !worker.connectivity_matrix;
            "reload: checks"
        }
        _ => {
            choose(rng, ["v1", "v2"]).clone_into(&mut worker.image.tag);
            "reload: worker.image"
        }
    }
}

fn edit_nodes(nodes: &mut NodeManagement, rng: &mut Rng) -> &'static str {
    match rng.below(8) {
        7 => {
            nodes.include_control_plane = !nodes.include_control_plane;
            "reload: includeControlPlane"
        }
        0 | 1 => {
            nodes.delete_failed_nodes = !nodes.delete_failed_nodes;
            "reload: deleteFailedNodes"
        }
        2 => {
            nodes.backfill = !nodes.backfill;
            "reload: backfill"
        }
        3 => {
            nodes.on_reboot = choose(rng, [OnReboot::Verify, OnReboot::Close, OnReboot::Ignore]);
            "reload: onReboot"
        }
        4 => {
            let zone = selector("zone=b");
            match nodes.exclude.iter().position(|known| *known == zone) {
                Some(index) => drop(nodes.exclude.remove(index)),
                None => nodes.exclude.push(zone),
            }
            "reload: exclude"
        }
        5 => {
            let label = &mut nodes.verified_label;
            let (part, others) = if rng.permille(500) {
                (&mut label.value, ["true", "yes"])
            } else {
                (&mut label.key, [names::VERIFIED_LABEL, "example.com/verified"])
            };
            others[usize::from(*part == others[0])].clone_into(part);
            "reload: verifiedLabel"
        }
        _ => {
            nodes.taints =
                if rng.permille(300) { vec![taint(OTHER_TAINT, Effect::NoSchedule)] } else { taints(rng) };
            "reload: taints"
        }
    }
}

fn up_to(most: u64, rng: &mut Rng) -> u32 {
    u32::try_from(rng.between(1, most)).unwrap_or(1)
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

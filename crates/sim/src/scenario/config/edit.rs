//! How operators edit the configuration during a run.

use knr_core::config::{Config, Effect, NodeManagement, OnReboot, Placement, RetryBackoff, StartupGate};
use knr_core::names;

use super::{
    DONE, OTHER_TAINT, REQUEST_TIMEOUTS, STORAGE, STORAGE_READY, STORAGE_SINCE, STORAGE_TAINT, choose, gates,
    may_come_first, other, selector, taint, taints, waits_for,
};
use crate::rng::Rng;

/// Changes one part of a startup gate, and returns its name.
pub(super) fn edit_gate(gate: &mut StartupGate, rng: &mut Rng) -> &'static str {
    let is_storage = gate.name == STORAGE;
    let toggle = |text: &mut String, first: &str, second: String| {
        *text = if *text == first { second } else { first.to_owned() };
    };
    match rng.below(8) {
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
        4 => {
            gate.taint.effect = choose(rng, [Effect::NoSchedule, Effect::PreferNoSchedule]);
            "reload: effect of a gate"
        }
        5 => {
            let own = if is_storage { STORAGE } else { "kube-system" };
            let others: &[&str] = choose(rng, [&[], &["default"], &["kube-system", STORAGE]]);
            let others = others.iter().copied().filter(|name| *name != own);
            gate.namespaces = std::iter::once(own).chain(others).map(str::to_owned).collect();
            "reload: namespaces"
        }
        6 => {
            let own = if is_storage { STORAGE } else { names::INIT_POD_VALUE };
            let label = names::INIT_POD_LABEL;
            gate.pod_selector = match rng.below(3) {
                0 => selector(label),
                1 => selector(&format!("{label}!=nothing")),
                _ => selector(&format!("{label}={own}")),
            };
            "reload: podSelector"
        }
        _ => {
            gate.minimum_hold_seconds = choose(rng, [0, 20, 60]);
            "reload: minimumHoldSeconds"
        }
    }
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
            if rng.permille(100) {
                config.gates[index].after = waits_for(rng);
                let names = may_come_first(&config.gates);
                config.node_management.after.retain(|name| names.contains(name));
                return "reload: after of a gate";
            }
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

/// Edits what is required of a node, or only how its workers run. Results of other checks, under other timeouts or of
/// another image no longer count for or against it.
fn edit_worker(config: &mut Config, rng: &mut Rng) -> &'static str {
    let worker = &mut config.worker;
    match rng.below(5) {
        0 => {
            worker.pending_timeout_seconds = 20 + up_to(40, rng);
            worker.timeout_seconds = 15 + up_to(30, rng);
            "reload: worker timeouts"
        }
        1 => {
            worker.connectivity_matrix = !worker.connectivity_matrix;
            "reload: checks"
        }
        2 => {
            worker.dns_test_domains = vec![choose(rng, ["example.com", "example.org"]).to_owned()];
            "reload: dnsTestDomains"
        }
        3 => {
            worker.placement = choose(rng, [Placement::Direct, Placement::Scheduler]);
            choose(rng, ["", "important"]).clone_into(&mut worker.priority_class_name);
            "reload: how workers run"
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
            let zone = selector(choose(rng, ["zone=b", "zone=b", "zone in (a)"]));
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

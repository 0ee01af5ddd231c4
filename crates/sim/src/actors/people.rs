//! Operators, and what they do to nodes, workers, pools and the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use knr_core::action::{Action, Closing};
use knr_core::config::{Config, OnReboot};
use knr_core::names;
use knr_core::view::PoolView;
use serde_json::json;

use crate::run::Sim;
use crate::scenario;

/// A changed configuration reaches a process within this many milliseconds.
const TAKEN_UP_WITHIN: u64 = 5_000;
/// The same for a configuration that forbids what is about to be sent.
const FORBIDDEN_WITHIN: u64 = 50;
/// The value of the pause annotation on a node that stays paused for good.
const FORGOTTEN: &str = "forgotten";

/// An operator wants a node to be verified again.
pub(super) fn remove_label(sim: &mut Sim, name: &str) {
    sim.note(name, "a person removes the verified label");
    if let Some(node) = sim.api.node(name) {
        sim.monitor.label_removed(&node.view, &sim.config);
    }
    let key = sim.config.node_management.verified_label.key.clone();
    sim.api.edit_node(name, |node| {
        if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
            labels.remove(&key);
        }
    });
}

/// An operator wants all nodes to be verified again.
pub(super) fn remove_all_labels(sim: &mut Sim) {
    let names: Vec<String> = sim.api.nodes().map(|(name, _)| name.clone()).collect();
    if names.len() >= 10 {
        sim.stats.count("ten or more nodes on probation at once");
    }
    for name in names {
        remove_label(sim, &name);
    }
}

pub(super) fn delete_worker(sim: &mut Sim, name: &str) {
    let worker = sim.api.workers().find(|worker| worker.stamp.node.name.as_str() == name).cloned();
    if let Some(worker) = worker {
        sim.note(name, "a person deletes the worker");
        sim.monitor.touched(Some(name));
        let _ = sim.api.delete_worker(&worker.id);
    }
}

pub(super) fn edit_state(sim: &mut Sim, name: &str) {
    let garbled = sim.rng.permille(300);
    sim.note(name, "a person removes or garbles the state annotation");
    sim.api.edit_node(name, |node| {
        if let Some(annotations) = node["metadata"]["annotations"].as_object_mut() {
            if garbled {
                annotations.insert(names::STATE_ANNOTATION.to_owned(), json!("{\"v\":1,"));
            } else {
                annotations.remove(names::STATE_ANNOTATION);
            }
        }
    });
}

pub(super) fn take_off_by_hand(sim: &mut Sim, name: &str) {
    sim.note(name, "a person takes the gate taint off");
    if let Some(node) = sim.api.node(name) {
        sim.monitor.opened_by_hand(&node.view.id.uid);
    }
    let keys: Vec<String> = sim.config.node_management.taints.iter().map(|taint| taint.key.clone()).collect();
    sim.api.edit_node(name, |node| {
        if let Some(list) = node["spec"]["taints"].as_array_mut() {
            list.retain(|taint| !keys.iter().any(|key| taint["key"] == json!(key)));
        }
    });
}

pub(super) fn pause(sim: &mut Sim, name: &str) {
    sim.note(name, "a person pauses the node, or lets it go on");
    sim.api.edit_node(name, |node| {
        let paused = node.pointer("/metadata/annotations/node-ready~1paused").is_some();
        if !node["metadata"]["annotations"].is_object() {
            node["metadata"]["annotations"] = json!({});
        }
        if let Some(annotations) = node["metadata"]["annotations"].as_object_mut() {
            if paused {
                annotations.remove(names::PAUSED_ANNOTATION);
            } else {
                annotations.insert(names::PAUSED_ANNOTATION.to_owned(), json!("true"));
            }
        }
    });
}

/// Edits the configuration, if the product accepts the result.
pub(super) fn edit_config(sim: &mut Sim) {
    let mut config = (*sim.config).clone();
    let what = scenario::edit(&mut config, sim.actors.has_init_pods, &mut sim.rng);
    if !scenario::is_valid(&config) {
        return;
    }
    sim.note("", format_args!("a person edits the configuration: {what}"));
    sim.stats.count(what);
    if config.node_management.taints != sim.config.node_management.taints {
        let uids: Vec<_> = sim.api.nodes().map(|(_, node)| node.view.id.uid.clone()).collect();
        for uid in &uids {
            sim.monitor.opened_by_hand(uid);
        }
    }
    if config.worker.image != sim.config.worker.image {
        for machine in sim.actors.machines.values_mut() {
            machine.has_image = false;
        }
    }
    publish(sim, config, TAKEN_UP_WITHIN);
}

/// An operator sees that a node is about to be closed or deleted, and forbids it before the order is sent. Happens once
/// in a run.
pub(crate) fn forbid(sim: &mut Sim, order: &Action) {
    let mut config = (*sim.config).clone();
    let settings = &mut config.node_management;
    match order {
        Action::DeleteNode { .. } => settings.delete_failed_nodes = false,
        Action::CloseGate { because: Closing::Backfill, .. } => settings.backfill = false,
        Action::CloseGate { because: Closing::Rebooted, .. } => settings.on_reboot = OnReboot::Ignore,
        _ => return,
    }
    if sim.actors.calm || sim.actors.has_forbidden || config == *sim.config {
        return;
    }
    sim.actors.has_forbidden = true;
    sim.note("", format_args!("a person forbids what is about to be sent: {order}"));
    sim.stats.count("order forbidden while it waits to be sent");
    publish(sim, config, FORBIDDEN_WITHIN);
}

/// Puts the configuration into the file. Every process loads it within this many milliseconds.
fn publish(sim: &mut Sim, config: Config, within: u64) {
    sim.config = Arc::new(config);
    sim.monitor.config_changed(&sim.api, &sim.config, sim.now);
    sim.reconfigure(within);
}

/// An operator asks for an immediate attempt.
pub(super) fn ask_for_retry(sim: &mut Sim, name: &str) {
    sim.note(name, "a person asks for an attempt at once");
    sim.stats.count("attempt asked for");
    let now = sim.now.to_string();
    annotate(sim, name, names::RETRY_ANNOTATION, &now);
}

/// An operator pauses many nodes, and forgets them.
pub(super) fn forget_pauses(sim: &mut Sim) {
    let names: Vec<String> = sim.api.nodes().map(|(name, _)| name.clone()).collect();
    sim.stats.count("many nodes paused for good");
    for name in names {
        if sim.rng.permille(500) {
            sim.note(&name, "a person pauses the node for good");
            annotate(sim, &name, names::PAUSED_ANNOTATION, FORGOTTEN);
        }
    }
}

fn annotate(sim: &mut Sim, name: &str, key: &str, value: &str) {
    sim.api.edit_node(name, |node| {
        if !node["metadata"]["annotations"].is_object() {
            node["metadata"]["annotations"] = json!({});
        }
        node["metadata"]["annotations"][key] = json!(value);
    });
}

/// Adds a Karpenter pool, removes one, or edits which gates it knows.
pub(super) fn edit_pools(sim: &mut Sim) {
    let name = *sim.rng.pick(&["aware", "unaware", "unlisted"]).unwrap_or(&"aware");
    let what = match sim.api.pool(name).cloned() {
        None => {
            let startup_taints = scenario::gate_keys();
            sim.api.put_pool(PoolView { name: name.to_owned(), startup_taints });
            "NodePool added"
        }
        Some(_) if sim.rng.permille(300) => {
            sim.api.remove_pool(name);
            "NodePool removed"
        }
        Some(mut pool) => {
            let taints = &mut pool.startup_taints;
            if !taints.is_empty() && sim.rng.permille(300) {
                taints.pop_first();
            } else {
                *taints = if taints.is_empty() { scenario::gate_keys() } else { BTreeSet::new() };
            }
            sim.api.put_pool(pool);
            "NodePool edited"
        }
    };
    sim.note("", format_args!("{what}: {name}"));
    sim.stats.count(what);
    sim.monitor.pools_changed(&sim.api.pools(), sim.now);
}

/// Lifts all pauses except the forgotten ones, and ends the dry run.
pub(super) fn let_go(sim: &mut Sim) {
    let names: Vec<String> = sim.api.nodes().map(|(name, _)| name.clone()).collect();
    for name in names {
        sim.api.edit_node(&name, |node| {
            if let Some(annotations) = node["metadata"]["annotations"].as_object_mut()
                && annotations.get(names::PAUSED_ANNOTATION).is_none_or(|value| value != FORGOTTEN)
            {
                annotations.remove(names::PAUSED_ANNOTATION);
            }
        });
    }
    let config = Arc::make_mut(&mut sim.config);
    config.reconciliation.paused = false;
    config.reconciliation.dry_run = false;
    sim.reconfigure(0);
}

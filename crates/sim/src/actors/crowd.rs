//! Those who write to the same nodes as we do: an autoscaler, a rude writer, a person; and bad luck.

use jiff::{SignedDuration, Timestamp};
use knr_core::ids::Uid;
use knr_core::names;
use serde_json::{Value, json};

use super::{ActorEvent, Fit, Machine};
use crate::observe;
use crate::run::{Event, Sim};

/// The API server keeps times in whole seconds.
pub(super) fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// A machine joins as a node, as an autoscaler or a template makes it.
pub(super) fn join(sim: &mut Sim, name: &str) {
    if sim.api.node(name).is_some() {
        return;
    }
    let uid = sim.api.new_uid();
    let lone = sim.actors.fit.is_some();
    let heals = sim.now + SignedDuration::from_secs(i64::try_from(sim.rng.below(90)).unwrap_or(0));
    let fit = sim.actors.fit.unwrap_or(match sim.rng.below(20) {
        0..14 => Fit::Always,
        14..17 => Fit::From(heals),
        _ => Fit::Never,
    });
    sim.actors.machines_made += 1;
    let (serial, boot) = sim.actors.staying.remove(name).unwrap_or((sim.actors.machines_made, 1));
    let machine = Machine { uid: uid.clone(), boot, up: true, fit, serial };
    sim.note(name, format_args!("joins as {uid}, fit: {fit:?}"));
    let node = template(sim, name, &machine, lone);
    let is_karpenter = node.pointer("/metadata/labels/karpenter.sh~1nodepool").is_some();
    sim.actors.machines.insert(name.to_owned(), machine);
    sim.api.create_node(name, node);
    if is_karpenter {
        let after = sim.rng.between(500, 10_000);
        sim.at(after, Event::Actor(ActorEvent::Registered(name.to_owned(), uid.clone())));
    }
    if !sim.config.gates.is_empty() {
        let after = sim.rng.between(50, 3_000);
        sim.at(after, Event::Actor(ActorEvent::InitPodMade(name.to_owned(), uid)));
    }
}

fn template(sim: &mut Sim, name: &str, machine: &Machine, lone: bool) -> Value {
    let mut taints = vec![json!({"key": "cni/agent", "effect": "NoSchedule"})];
    let gated = lone || !sim.rng.permille(100);
    if gated {
        taints.extend(sim.config.node_management.taints.iter().map(|taint| json!(taint)));
        taints.extend(sim.config.gates.iter().map(|gate| json!(gate.taint)));
    }
    taints.push(json!({"key": "vendor/gpu", "value": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}));
    let mut labels = json!({"zone": "a"});
    if !lone {
        match sim.rng.below(100) {
            0..10 => labels["karpenter.sh/nodepool"] = json!("aware"),
            10..14 => labels["karpenter.sh/nodepool"] = json!("unaware"),
            14..17 => labels["node-role.kubernetes.io/control-plane"] = json!(""),
            17..20 => labels["kubernetes.azure.com/mode"] = json!("system"),
            20..23 => labels[names::VERIFIED_LABEL] = json!("true"),
            _ => {}
        }
        if sim.rng.permille(100) {
            taints.clear();
            taints.extend(sim.config.node_management.taints.iter().map(|taint| json!(taint)));
        }
    }
    let annotations = if lone || sim.rng.permille(800) { json!({"ttl": "0"}) } else { Value::Null };
    json!({
        "metadata": {
            "name": name, "uid": machine.uid, "labels": labels, "annotations": annotations,
            "creationTimestamp": whole_second(sim.now).to_string(),
        },
        "spec": { "taints": taints },
        "status": { "nodeInfo": { "bootID": machine.boot_id(machine.boot) } },
    })
}

pub(super) fn register(sim: &mut Sim, name: &str, uid: &Uid) {
    if sim.actors.machines.get(name).is_some_and(|machine| machine.uid == *uid) {
        sim.api.edit_node(name, |node| node["metadata"]["labels"]["karpenter.sh/registered"] = json!("true"));
    }
}

/// Somebody deletes a node; a finalizer may take its time.
pub(super) fn leave(sim: &mut Sim, name: &str) {
    sim.note(name, "is deleted by the autoscaler");
    sim.api.edit_node(name, |node| node["metadata"]["deletionTimestamp"] = json!("now"));
}

pub(super) fn notice_node(sim: &mut Sim, node: &Value) {
    if node.pointer("/metadata/deletionTimestamp").is_some() {
        let (name, uid) = (observe::name(node).to_owned(), observe::text(node, "/metadata/uid").into());
        let after = sim.rng.between(10, 4_000);
        sim.at(after, Event::Actor(ActorEvent::Removed(name, uid)));
    }
}

/// The machine is gone. Its pods go later, and its name may be used again at once.
pub(super) fn remove(sim: &mut Sim, name: &str, uid: &Uid) {
    if sim.actors.machines.get(name).is_none_or(|machine| machine.uid != *uid) {
        return;
    }
    sim.note(name, "is gone");
    let stays = sim.rng.permille(300);
    if let Some(machine) = sim.actors.machines.remove(name).filter(|machine| stays && machine.up) {
        sim.actors.staying.insert(name.to_owned(), (machine.serial, machine.boot));
    }
    sim.api.remove_node(name);
    let pods: Vec<Uid> =
        sim.api.init_pods().filter(|pod| pod.host.as_str() == name).map(|pod| pod.uid.clone()).collect();
    for pod in pods {
        let after = sim.rng.between(500, 15_000);
        sim.at(after, Event::Actor(ActorEvent::InitPodRemoved(pod)));
    }
    let workers: Vec<_> = sim
        .api
        .workers()
        .filter(|worker| worker.stamp.node.uid == *uid)
        .map(|worker| worker.id.clone())
        .collect();
    for worker in workers {
        let after = sim.rng.between(500, 15_000);
        sim.at(after, Event::Actor(ActorEvent::WorkerRemoved(worker)));
    }
    if !sim.actors.calm && sim.rng.permille(600) {
        let after = sim.rng.between(1_100, 8_000);
        sim.at(after, Event::Actor(ActorEvent::Joins(name.to_owned())));
    }
}

/// One of many things happens.
pub(super) fn disturb(sim: &mut Sim) {
    if sim.actors.calm {
        return;
    }
    let names: Vec<String> = sim.api.nodes().map(|(name, _)| name.clone()).collect();
    let Some(name) = sim.rng.pick(&names).cloned() else { return };
    match sim.rng.below(20) {
        0..5 => rude(sim, &name),
        5 => remove_label(sim, &name),
        6 => taint_back(sim, &name),
        7 => delete_worker(sim, &name),
        9 => sim.at(0, Event::Actor(ActorEvent::Leaves(name))),
        10 => edit_state(sim, &name),
        11 => pause(sim, &name),
        12 => edit_config(sim),
        13 => sim.split(),
        14 => {
            let id = usize::try_from(sim.rng.below(sim.replica_count() as u64)).unwrap_or(0);
            sim.jump(id);
        }
        15 | 16 => {
            if let Some(leader) = sim.leader() {
                sim.crash(leader, None);
            }
        }
        17 => {
            sim.send_bookmarks();
            sim.api.compact();
        }
        18 if sim.rng.permille(500) => take_off_by_hand(sim, &name),
        18 => super::kubelet::die(sim, &name),
        _ => sim.at(0, Event::Actor(ActorEvent::Reboots(name))),
    }
}

/// Edits taints and labels of its own, anywhere in the list.
fn rude(sim: &mut Sim, name: &str) {
    let (what, place) = (sim.rng.below(4), sim.rng.below(5));
    sim.note(name, "the rude writer edits taints and labels");
    sim.api.edit_node(name, |node| {
        if what == 3 {
            node["metadata"]["labels"][format!("rude-{place}")] = json!(place.to_string());
            return;
        }
        if !node["spec"]["taints"].is_array() {
            node["spec"]["taints"] = json!([]);
        }
        let Some(list) = node["spec"]["taints"].as_array_mut() else { return };
        let key = format!("rude/{place}");
        if let Some(index) = list.iter().position(|taint| taint["key"] == json!(key)) {
            list.remove(index);
        } else {
            let index = usize::try_from(place).unwrap_or(0).min(list.len());
            list.insert(index, json!({"key": key, "value": "x", "effect": "NoSchedule"}));
        }
    });
}

/// A person wants a node to be verified again.
pub(super) fn remove_label(sim: &mut Sim, name: &str) {
    sim.note(name, "a person removes the verified label");
    if let Some(node) = sim.api.node(name) {
        sim.monitor.label_removed(&observe::node(node), &sim.config);
    }
    sim.api.edit_node(name, |node| {
        if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
            labels.remove(names::VERIFIED_LABEL);
        }
    });
}

/// An autoscaler restores the taint which it made the node with.
fn taint_back(sim: &mut Sim, name: &str) {
    let taints = &sim.config.node_management.taints;
    let node = sim.api.node(name).map(|node| observe::node(node));
    if node.is_some_and(|node| taints.iter().all(|taint| node.position(taint).is_none())) {
        sim.note(name, "the autoscaler puts the taint back");
        let taint = json!(sim.config.node_management.taints[0]);
        sim.api.edit_node(name, |node| match node["spec"]["taints"].as_array_mut() {
            Some(list) => list.insert(0, taint),
            None => node["spec"]["taints"] = json!([taint]),
        });
    }
}

pub(super) fn delete_worker(sim: &mut Sim, name: &str) {
    let worker = sim.api.workers().find(|worker| worker.stamp.node.name.as_str() == name).cloned();
    if let Some(worker) = worker {
        sim.note(name, "a person deletes the worker");
        let _ = sim.api.delete_worker(&worker.id);
    }
}

fn edit_state(sim: &mut Sim, name: &str) {
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

fn take_off_by_hand(sim: &mut Sim, name: &str) {
    sim.note(name, "a person takes the gate taint off");
    let keys: Vec<String> = sim.config.node_management.taints.iter().map(|taint| taint.key.clone()).collect();
    sim.api.edit_node(name, |node| {
        if let Some(list) = node["spec"]["taints"].as_array_mut() {
            list.retain(|taint| !keys.iter().any(|key| taint["key"] == json!(key)));
        }
    });
}

fn pause(sim: &mut Sim, name: &str) {
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

fn edit_config(sim: &mut Sim) {
    let what = sim.rng.below(4);
    let retries = sim.rng.between(1, 6);
    let config = &mut sim.config;
    match what {
        0 => config.reconciliation.max_retries = u32::try_from(retries).unwrap_or(1),
        1 => config.reconciliation.paused = !config.reconciliation.paused,
        2 => config.limits.max_concurrent_workers = u32::try_from(retries).unwrap_or(1),
        _ => {
            config.node_management.delete_failed_nodes = !config.node_management.delete_failed_nodes;
            sim.monitor.asked_until = sim.now + SignedDuration::from_secs(30);
        }
    }
    sim.note("", "a person edits the configuration");
    sim.reconfigure();
}

/// At the end nothing is paused.
pub(super) fn let_go(sim: &mut Sim) {
    let names: Vec<String> = sim.api.nodes().map(|(name, _)| name.clone()).collect();
    for name in names {
        sim.api.edit_node(&name, |node| {
            if let Some(annotations) = node["metadata"]["annotations"].as_object_mut() {
                annotations.remove(names::PAUSED_ANNOTATION);
            }
        });
    }
    sim.config.reconciliation.paused = false;
    sim.reconfigure();
}

//! The actors that create, change and remove nodes: an autoscaler, Karpenter, a rude writer; and random disturbances.

use jiff::{SignedDuration, Timestamp};
use knr_core::config::Effect;
use knr_core::ids::{NodeRef, Uid};
use knr_core::view::NodeView;
use serde_json::{Value, json};

use super::{ActorEvent, Fit, Machine, kubelet, people, readiness};
use crate::run::{Event, Sim};
use crate::scenario::INIT_PODS;

/// Truncates a time to whole seconds, as the API server does.
pub(super) fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Schedules an event at a random time, `low` to `high` milliseconds from now.
pub(super) fn soon(sim: &mut Sim, low: u64, high: u64, event: ActorEvent) {
    let after = sim.rng.between(low, high);
    sim.at(after, Event::Actor(event));
}

/// A machine joins as a node, the way an autoscaler or a template creates it.
pub(super) fn join(sim: &mut Sim, name: &str) {
    if sim.api.node(name).is_some() {
        return;
    }
    let uid = sim.api.new_uid();
    let lone = sim.actors.fit.is_some();
    let machine = match sim.actors.staying.remove(name) {
        Some(machine) => {
            sim.stats.count("machine joins again in the same boot");
            Machine { uid: uid.clone(), ..machine }
        }
        None => new_machine(sim, name, &uid, lone),
    };
    let (boot, fit) = (machine.boot, machine.fit);
    sim.note(name, format_args!("joins as {uid} in boot {boot}, fit: {fit:?}"));
    let mut node = machine.registers_as.clone();
    node["metadata"]["uid"] = json!(uid);
    node["metadata"]["creationTimestamp"] = json!(whole_second(sim.now).to_string());
    node["status"]["nodeInfo"]["bootID"] = json!(machine.boot_id(boot));
    if !lone {
        readiness::joins(sim, &mut node, name, &uid, boot);
    }
    let is_karpenter = node.pointer("/metadata/labels/karpenter.sh~1nodepool").is_some();
    sim.actors.machines.insert(name.to_owned(), machine);
    sim.api.create_node(name, node);
    let name = || name.to_owned();
    if is_karpenter {
        soon(sim, 500, 10_000, ActorEvent::Registered(name(), uid.clone()));
    }
    if sim.actors.has_init_pods {
        for pod in INIT_PODS {
            soon(sim, 50, 3_000, ActorEvent::InitPodMade(name(), uid.clone(), pod));
        }
    }
    if !lone {
        soon(sim, 200_000, 300_000, ActorEvent::Heartbeat(name(), uid.clone()));
        soon(sim, 1_000, 60_000, ActorEvent::Workload(name(), uid));
    }
}

fn new_machine(sim: &mut Sim, name: &str, uid: &Uid, lone: bool) -> Machine {
    let fit = sim.actors.fit.unwrap_or_else(|| draw_fit(sim));
    sim.actors.machines_made += 1;
    let serial = sim.actors.machines_made;
    let registers_as = template(sim, name, lone);
    Machine {
        uid: uid.clone(),
        boot: 1,
        up: true,
        dead: false,
        fit,
        serial,
        has_image: false,
        busy: None,
        registers_as,
    }
}

fn draw_fit(sim: &mut Sim) -> Fit {
    if !sim.rng.permille(sim.actors.unfit) {
        Fit::Always
    } else if sim.rng.permille(500) {
        let heals = i64::try_from(sim.rng.below(90)).unwrap_or(0);
        Fit::From(sim.now + SignedDuration::from_secs(heals))
    } else {
        Fit::Never
    }
}

fn template(sim: &mut Sim, name: &str, lone: bool) -> Value {
    let mut taints = vec![json!({"key": "cni/agent", "effect": "NoSchedule"})];
    let gated = lone || !sim.rng.permille(100);
    if gated {
        taints.extend(sim.config.node_management.taints.iter().map(|taint| json!(taint)));
        taints.extend(sim.config.gates.iter().map(|gate| json!(gate.taint)));
    }
    taints.push(json!({"key": "vendor/gpu", "value": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}));
    let zone = *sim.rng.pick(&["a", "b", "c"]).unwrap_or(&"a");
    let mut labels = json!({ "zone": zone });
    let mut claim = Value::Null;
    if !lone {
        match sim.rng.below(100) {
            0..10 => labels["karpenter.sh/nodepool"] = json!("aware"),
            10..14 => labels["karpenter.sh/nodepool"] = json!("unaware"),
            14..16 => labels["karpenter.sh/nodepool"] = json!("unlisted"),
            16..19 => labels["node-role.kubernetes.io/control-plane"] = json!(""),
            19..21 => labels["kubernetes.azure.com/mode"] = json!("system"),
            21..24 => {
                let label = &sim.config.node_management.verified_label;
                labels[&label.key] = json!(label.value);
            }
            _ => {}
        }
        if labels.get("karpenter.sh/nodepool").is_some() && sim.rng.permille(700) {
            claim = json!(format!("claim-{}", sim.actors.machines_made));
        }
        if sim.rng.permille(100) {
            taints.clear();
            taints.extend(sim.config.node_management.taints.iter().map(|taint| json!(taint)));
        }
    }
    let annotations = if lone || sim.rng.permille(800) { json!({"ttl": "0"}) } else { Value::Null };
    let mut node = json!({
        "metadata": { "name": name, "labels": labels, "annotations": annotations },
        "spec": { "taints": taints },
    });
    if !claim.is_null() {
        node["metadata"]["claim"] = claim;
    }
    node
}

pub(super) fn register(sim: &mut Sim, name: &str, uid: &Uid) {
    if sim.actors.is_machine(name, uid) {
        sim.api.edit_node(name, |node| node["metadata"]["labels"]["karpenter.sh/registered"] = json!("true"));
    }
}

/// Somebody deletes a node. A finalizer may delay the removal.
pub(super) fn leave(sim: &mut Sim, name: &str) {
    sim.note(name, "is deleted by the autoscaler");
    sim.api.edit_node(name, |node| node["metadata"]["deletionTimestamp"] = json!("now"));
}

/// Karpenter has to terminate the machine before its node is removed.
pub(crate) fn claim_deleted(sim: &mut Sim, node: &NodeRef) {
    soon(sim, 500, 8_000, ActorEvent::ClaimGone(node.clone()));
}

pub(super) fn claim_gone(sim: &mut Sim, node: &NodeRef) {
    if sim.actors.is_machine(node.name.as_str(), &node.uid) {
        sim.note(node.name.as_str(), "is deleted by Karpenter, with its claim");
        sim.api.edit_node(node.name.as_str(), |node| node["metadata"]["deletionTimestamp"] = json!("now"));
    }
}

pub(super) fn notice_node(sim: &mut Sim, node: &NodeView) {
    let (name, uid) = (node.id.name.to_string(), node.id.uid.clone());
    let evicts = sim
        .config
        .node_management
        .taints
        .iter()
        .any(|taint| taint.effect == Effect::NoExecute && node.position(taint).is_some());
    if evicts && let Some(machine) = sim.actors.machines.get_mut(&name) {
        machine.busy = None;
    }
    sim.place_keeper(node);
    if node.leaving {
        soon(sim, 10, 4_000, ActorEvent::Removed(name, uid));
    }
}

/// Pods are scheduled to an open node, or leave it.
pub(super) fn workload(sim: &mut Sim, name: &str, uid: &Uid) {
    if sim.actors.calm || !sim.actors.is_machine(name, uid) {
        return;
    }
    let is_open = sim.api.node(name).is_some_and(|node| {
        let gates = sim.config.gates.iter().map(|gate| &gate.taint);
        let mut taints = sim.config.node_management.taints.iter().chain(gates);
        taints.all(|taint| node.view.position(taint).is_none())
    });
    if let Some(machine) = sim.actors.machines.get_mut(name) {
        machine.busy = match machine.busy {
            None if is_open => Some(sim.now),
            _ => None,
        };
    }
    soon(sim, 5_000, 120_000, ActorEvent::Workload(name.to_owned(), uid.clone()));
}

/// The machine is gone. Its pods are removed later, and its name may be reused at once.
pub(super) fn remove(sim: &mut Sim, name: &str, uid: &Uid) {
    if !sim.actors.is_machine(name, uid) {
        return;
    }
    sim.note(name, "is gone");
    sim.end_keeper(name);
    let machine = sim.actors.machines.remove(name);
    let stays = !sim.actors.calm && sim.rng.permille(400);
    let staying =
        machine.filter(|machine| stays && machine.up && machine.registers_as["metadata"]["claim"].is_null());
    let joins = staying.is_some() || !sim.actors.calm && sim.rng.permille(500);
    if let Some(machine) = staying {
        sim.actors.staying.insert(name.to_owned(), Machine { busy: None, ..machine });
    }
    sim.api.remove_node(name);
    let init_pods = sim.api.init_pods().filter(|pod| pod.host.as_str() == name);
    let pods: Vec<Uid> = init_pods.map(|pod| pod.uid.clone()).collect();
    for pod in pods {
        soon(sim, 500, 15_000, ActorEvent::InitPodRemoved(pod));
    }
    let workers = sim.api.workers().filter(|worker| worker.stamp.node.uid == *uid);
    let workers: Vec<_> = workers.map(|worker| worker.id.clone()).collect();
    for worker in workers {
        soon(sim, 500, 15_000, ActorEvent::WorkerRemoved(worker));
    }
    if joins {
        soon(sim, 1_100, 8_000, ActorEvent::Joins(name.to_owned()));
    }
}

/// Causes one of many disturbances.
pub(super) fn disturb(sim: &mut Sim) {
    if sim.actors.calm {
        return;
    }
    let names: Vec<String> = sim.api.nodes().map(|(name, _)| name.clone()).collect();
    let Some(name) = sim.rng.pick(&names).cloned() else { return };
    sim.monitor.touched(None);
    let what = sim.rng.below(31);
    match what {
        15..19 if sim.replica_count() == 0 => sim.restart_keeper(&name),
        0..5 => rude(sim, &name),
        5 => people::remove_label(sim, &name),
        6 => taint_back(sim, &name),
        7 => people::delete_worker(sim, &name),
        8 => sim.at(0, Event::Actor(ActorEvent::Leaves(name))),
        9 => people::edit_state(sim, &name),
        10 => people::pause(sim, &name),
        30 if sim.rng.permille(300) => people::forget_pauses(sim),
        11..14 | 30 => people::edit_config(sim),
        14 | 26 => people::edit_pools(sim),
        27 => people::ask_for_retry(sim, &name),
        28 | 29 => readiness::is_lost(sim, &name),
        15 if sim.rng.permille(500) => sim.split(),
        15 => sim.freeze(),
        16 => {
            let id = usize::try_from(sim.rng.below(sim.replica_count() as u64)).unwrap_or(0);
            sim.jump(id);
        }
        17 | 18 => {
            if let Some(leader) = sim.leader() {
                sim.crash(leader, None);
            }
        }
        19 => {
            sim.send_bookmarks();
            sim.api.compact();
        }
        20 if sim.rng.permille(500) => people::take_off_by_hand(sim, &name),
        20 => kubelet::die(sim, &name),
        21 => kubelet::breaks(sim, &name),
        22 if sim.rng.permille(500) => sim.at(0, Event::Actor(ActorEvent::PowerFails)),
        22 => people::remove_all_labels(sim),
        _ => sim.at(0, Event::Actor(ActorEvent::Reboots(name))),
    }
}

/// The rude writer edits its own taints, anywhere in the list, and its own labels.
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

/// An autoscaler restores a taint with which it created the node.
fn taint_back(sim: &mut Sim, name: &str) {
    let taints = &sim.config.node_management.taints;
    let is_open = |node: &NodeView| taints.iter().all(|taint| node.position(taint).is_none());
    let Some(taint) = taints.first().map(|taint| json!(taint)) else { return };
    if sim.api.node(name).is_some_and(|node| is_open(&node.view)) {
        sim.note(name, "the autoscaler puts the taint back");
        sim.api.edit_node(name, |node| match node["spec"]["taints"].as_array_mut() {
            Some(list) => list.insert(0, taint),
            None => node["spec"]["taints"] = json!([taint]),
        });
    }
}

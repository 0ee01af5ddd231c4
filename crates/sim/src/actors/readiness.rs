//! The `Ready` condition of nodes: it becomes true late, turns false for a while, and is lost with the kubelet.

use knr_core::ids::Uid;
use knr_core::view::WorkerView;
use serde_json::{Value, json};

use super::ActorEvent;
use super::crowd::soon;
use crate::run::Sim;

/// Sets the condition on a node.
pub(super) fn set(node: &mut Value, status: &str) {
    node["status"]["conditions"] = json!([{ "type": "Ready", "status": status }]);
}

/// Sets the condition on a node in the API server.
pub(super) fn report(sim: &mut Sim, name: &str, status: &str) {
    sim.note(name, format_args!("Ready: {status}"));
    sim.api.edit_node(name, |node| set(node, status));
}

/// Most nodes join before they are Ready, and a few take minutes.
pub(super) fn joins(sim: &mut Sim, node: &mut Value, name: &str, uid: &Uid, boot: u32) {
    if sim.rng.permille(700) {
        sim.stats.count("node joins before it is Ready");
        set(node, "False");
        let (low, high) = if sim.rng.permille(80) { (60_000, 240_000) } else { (500, 30_000) };
        soon(sim, low, high, ActorEvent::Ready(name.to_owned(), uid.clone(), boot));
    }
}

pub(super) fn becomes_ready(sim: &mut Sim, name: &str, uid: &Uid, boot: u32) {
    let is_up = sim.actors.machines.get(name).is_some_and(|machine| machine.up);
    if is_up && sim.actors.is_in_boot(name, uid, boot) {
        report(sim, name, "True");
    }
}

/// The kubelet reports that its node is not Ready, for a while.
pub(super) fn is_lost(sim: &mut Sim, name: &str) {
    let Some(machine) = sim.actors.machines.get(name).filter(|machine| machine.up) else { return };
    let (uid, boot) = (machine.uid.clone(), machine.boot);
    sim.stats.count("node not Ready for a while");
    report(sim, name, "False");
    soon(sim, 5_000, 200_000, ActorEvent::Ready(name.to_owned(), uid, boot));
}

/// A kubelet starts no pods while its node is not Ready.
pub(super) fn is_ready(sim: &Sim, worker: &WorkerView) -> bool {
    let name = worker.host.as_ref().map_or("", |host| host.as_str());
    sim.api.node(name).is_some_and(|node| node.view.ready)
}

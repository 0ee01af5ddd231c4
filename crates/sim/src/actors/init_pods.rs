//! Init pods: created for each node, ready after a while, and started again with their machine.

use knr_core::ids::{Uid, Version};
use knr_core::names;
use knr_core::view::InitPodView;

use super::ActorEvent;
use super::crowd::{soon, whole_second};
use crate::run::Sim;
use crate::scenario::{INIT_POD_ANNOTATIONS, INIT_PODS, InitPod};

/// The `DaemonSet` controller creates a pod for a node as soon as it sees the node.
pub(super) fn make(sim: &mut Sim, name: &str, node: &Uid, pod: InitPod) {
    let Some(machine) = sim.actors.machines.get(name).filter(|machine| machine.uid == *node) else { return };
    let boot = machine.boot;
    let uid = sim.api.new_uid();
    let labels = [(names::INIT_POD_LABEL, pod.component)];
    sim.api.put_init_pod(InitPodView {
        uid: uid.clone(),
        version: Version(0),
        namespace: pod.namespace.to_owned(),
        name: format!("init-{uid}"),
        host: name.into(),
        created: whole_second(sim.now),
        labels: labels.into_iter().collect(),
        annotations: std::iter::empty().collect(),
        ready: false,
        containers: format!("boot {boot}"),
        leaving: false,
    });
    soon(sim, 500, 8_000, ActorEvent::InitPodDone(uid, pod, boot));
}

/// An init pod has done its work.
pub(super) fn done(sim: &mut Sim, uid: &Uid, kind: InitPod, boot: u32) {
    let Some(pod) = sim.api.init_pod(uid).cloned() else { return };
    let Some(machine) = sim.actors.machines.get(pod.host.as_str()) else { return };
    if machine.boot != boot || !machine.up {
        return;
    }
    sim.monitor.init_pod_ready(&machine.uid, &machine.boot_id(boot), kind);
    let mut pod = (*pod).clone();
    let says_so = INIT_POD_ANNOTATIONS.iter().all(|key| pod.annotations.contains_key(*key));
    if !says_so && (pod.ready || sim.rng.permille(300)) {
        let said = INIT_POD_ANNOTATIONS.map(|key| (key.to_owned(), "true".to_owned()));
        pod.annotations = pod
            .annotations
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .chain(said)
            .collect();
    } else {
        pod.ready = true;
    }
    if !(pod.ready && INIT_POD_ANNOTATIONS.iter().all(|key| pod.annotations.contains_key(*key))) {
        // It is ready first and says so a little later, or the other way round.
        soon(sim, 500, 3_000, ActorEvent::InitPodDone(uid.clone(), kind, boot));
    }
    sim.api.put_init_pod(pod);
}

fn all_on(sim: &Sim, name: &str) -> Vec<InitPodView> {
    let pods = sim.api.init_pods().filter(|pod| pod.host.as_str() == name);
    pods.map(|pod| (**pod).clone()).collect()
}

/// The node controller marks the pods of a kubelet that is gone as not ready.
pub(super) fn not_ready(sim: &mut Sim, name: &str) {
    for mut pod in all_on(sim, name) {
        pod.ready = false;
        sim.api.put_init_pod(pod);
    }
}

/// The kubelet starts all containers again after its machine was restarted.
pub(super) fn start_again(sim: &mut Sim, name: &str, boot: u32) {
    for mut pod in all_on(sim, name) {
        let component = pod.labels.get(names::INIT_POD_LABEL).unwrap_or_default();
        let is_same =
            |kind: &InitPod| (kind.component, kind.namespace) == (component, pod.namespace.as_str());
        let Some(kind) = INIT_PODS.into_iter().find(is_same) else { continue };
        pod.ready = false;
        pod.containers = format!("boot {boot}");
        soon(sim, 500, 6_000, ActorEvent::InitPodDone(pod.uid.clone(), kind, boot));
        sim.api.put_init_pod(pod);
    }
}

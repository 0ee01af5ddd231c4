//! The other actors in the cluster: kubelets and their pods, an autoscaler, a rude writer, an operator.

mod crowd;
mod init_pods;
mod kubelet;
mod people;
mod readiness;
mod reports;

use std::collections::BTreeMap;

use jiff::Timestamp;
use knr_core::feed::ObjectKind;
use knr_core::ids::{BootId, NodeRef, Uid, Version, WorkerRef};
use knr_core::view::{Ending, Occupancy};
use serde_json::Value;

use crate::api::Object;
use crate::invariants::Monitor;
use crate::run::{Event, Sim, millis};
use crate::scenario::{InitPod, Scenario};

pub(crate) use crowd::claim_deleted;
pub(crate) use kubelet::{checks_pass, run_ends};
pub(crate) use people::forbid;

/// Something that another actor does.
#[derive(Debug, Clone)]
pub(crate) enum ActorEvent {
    /// A machine joins as a node.
    Joins(String),
    /// Karpenter has registered a node.
    Registered(String, Uid),
    /// Somebody deletes a node. Its finalizers delay the removal.
    Leaves(String),
    /// Karpenter deletes a node whose claim was deleted.
    ClaimGone(NodeRef),
    /// A node is removed from the API server.
    Removed(String, Uid),
    /// A machine is restarted.
    Reboots(String),
    /// Many machines are restarted at once.
    PowerFails,
    /// The kubelet of a machine is back, in this boot.
    KubeletBack(String, Uid, u32),
    /// The node controller notices that a kubelet is gone.
    Unreachable(String, Uid),
    /// The kubelet reports in this boot that its node is Ready.
    Ready(String, Uid, u32),
    /// The kubelet reports that nothing has changed.
    Heartbeat(String, Uid),
    /// The kubelet reports its pods in this boot.
    PodsPosted(String, Uid, u32),
    /// Pods are scheduled to a node, or leave it.
    Workload(String, Uid),
    /// A worker begins to run.
    WorkerStarts(WorkerRef),
    /// A worker that was started in this boot ends.
    WorkerEnds(WorkerRef, Uid, u32),
    /// The deadline of a worker's pod has passed.
    WorkerDeadline(WorkerRef),
    /// The kubelet reports how a worker ended in this boot.
    WorkerEndPosted(WorkerRef, Uid, u32, Ending),
    /// A worker is removed from the API server.
    WorkerRemoved(WorkerRef),
    /// The `DaemonSet` controller creates an init pod for a node.
    InitPodMade(String, Uid, InitPod),
    /// An init pod that was started in this boot has done its work.
    InitPodDone(Uid, InitPod, u32),
    /// An init pod is removed.
    InitPodRemoved(Uid),
    /// The worker of a node is evicted.
    Evicted(String),
    /// An operator deletes the worker of a node.
    WorkerDeleted(String),
    /// An operator removes the verified label.
    LabelRemoved(String),
    /// One of the many things that operators and programs do.
    Disturbance,
}

/// The true state of a machine, which the API server may not know.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The UID of the node as which it has joined.
    pub(crate) uid: Uid,
    /// The number of its current boot.
    pub(crate) boot: u32,
    /// Whether its kubelet runs.
    pub(crate) up: bool,
    /// Whether it is gone for good.
    pub(crate) dead: bool,
    /// Whether the checks pass on it.
    pub(crate) fit: Fit,
    /// Part of its boot IDs. It outlives the node if the machine joins again.
    pub(crate) serial: u32,
    /// Whether it has already pulled the current image of the worker.
    pub(crate) has_image: bool,
    /// The time since which it has run pods that closing the node would harm.
    pub(crate) busy: Option<Timestamp>,
    /// The node that its kubelet creates.
    registers_as: Value,
}

/// Whether the checks pass on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    Always,
    /// From this time on.
    From(Timestamp),
    Never,
}

/// The other actors.
#[derive(Debug, Default)]
pub(crate) struct Actors {
    /// All machines, by the name of their node.
    pub(crate) machines: BTreeMap<String, Machine>,
    calm: bool,
    seen: Version,
    /// Whether the checks pass on the machines. Drawn at random for each of them if `None`.
    fit: Option<Fit>,
    /// The number of machines in a thousand on which the checks fail from the start.
    unfit: u64,
    has_init_pods: bool,
    machines_made: u32,
    /// An operator has forbidden an order that was waiting to be sent.
    has_forbidden: bool,
    /// Machines whose node was deleted and that join again without a restart, by node name.
    staying: BTreeMap<String, Machine>,
}

impl Machine {
    /// Returns the boot ID of any boot of the machine.
    #[must_use]
    pub(crate) fn boot_id(&self, boot: u32) -> BootId {
        BootId::from(format!("machine-{}-boot-{boot}", self.serial))
    }

    /// Returns whether the checks pass on the machine now, provided that everything all nodes need works.
    #[must_use]
    pub(crate) fn is_fit(&self, now: Timestamp) -> bool {
        match self.fit {
            Fit::Always => true,
            Fit::From(at) => now >= at,
            Fit::Never => false,
        }
    }
}

impl Actors {
    /// Returns what runs on a node.
    #[must_use]
    pub(crate) fn occupancy(&self, name: &str) -> Occupancy {
        match self.machines.get(name).and_then(|machine| machine.busy) {
            Some(_) => Occupancy::Busy("default/web".to_owned()),
            None => Occupancy::Idle,
        }
    }

    fn is_machine(&self, name: &str, uid: &Uid) -> bool {
        self.machines.get(name).is_some_and(|machine| machine.uid == *uid)
    }

    fn is_in_boot(&self, name: &str, uid: &Uid, boot: u32) -> bool {
        self.machines.get(name).is_some_and(|machine| machine.uid == *uid && machine.boot == boot)
    }
}

/// Schedules what the other actors do.
pub(crate) fn schedule(sim: &mut Sim, scenario: &Scenario) {
    let stormy = u64::try_from(scenario.stormy.as_millis()).unwrap_or(0);
    for number in 1..=scenario.nodes {
        let at = if scenario.nodes == 1 { 1_000 } else { sim.rng.below(stormy / 2) };
        sim.at(at, Event::Actor(ActorEvent::Joins(format!("n{number}"))));
    }
    sim.actors.fit = scenario.fit;
    sim.actors.unfit = scenario.unfit;
    sim.actors.has_init_pods = scenario.has_init_pods;
    for (at, event) in scenario.script.clone() {
        sim.at(at, Event::Actor(event));
    }
    for _ in 0..scenario.disturbances {
        let at = sim.rng.below(stormy);
        sim.at(at, Event::Actor(ActorEvent::Disturbance));
    }
}

/// Lets the other actors react to changes: kubelets see pods, finalizers see deletions.
pub(crate) fn notice(sim: &mut Sim) {
    let seen = std::mem::replace(&mut sim.actors.seen, sim.api.version());
    if seen == sim.actors.seen {
        return;
    }
    let mut touched: Vec<String> = Vec::new();
    for change in sim.api.log_after(ObjectKind::Workers, seen) {
        if let Object::Worker(worker) = &change.object {
            touched.push(worker.stamp.node.name.to_string());
            if !change.gone {
                kubelet::notice_worker(sim, worker);
            }
        }
    }
    for change in sim.api.log_after(ObjectKind::Nodes, seen) {
        if let Object::Node(node) = &change.object {
            touched.push(node.view.id.name.to_string());
            let is = (!change.gone).then_some(&node.view);
            sim.monitor.node_changed(&node.view.id.name, is, &sim.config, sim.now);
            if !change.gone {
                crowd::notice_node(sim, &node.view);
            }
        }
    }
    for name in touched {
        if let Some(state) = Monitor::fingerprint(&sim.api, &sim.config, &name) {
            sim.stats.states.insert(state);
        }
    }
}

/// Ends all disturbances, and lifts the pauses and the dry run that operators have set.
pub(crate) fn calm_down(sim: &mut Sim) {
    sim.actors.calm = true;
    people::let_go(sim);
}

/// Performs an event of another actor, once the API server can be reached.
pub(crate) fn act(sim: &mut Sim, event: ActorEvent) {
    let is_local = matches!(event, ActorEvent::WorkerEnds(..));
    if let Some(back) = sim.outages.stop_everybody_until(sim.now).filter(|_| !is_local) {
        let after = sim.rng.below(5_000);
        sim.push(back + millis(after), Event::Actor(event));
        return;
    }
    match event {
        ActorEvent::Joins(name) => crowd::join(sim, &name),
        ActorEvent::Registered(name, uid) => crowd::register(sim, &name, &uid),
        ActorEvent::Leaves(name) => crowd::leave(sim, &name),
        ActorEvent::ClaimGone(node) => crowd::claim_gone(sim, &node),
        ActorEvent::Removed(name, uid) => crowd::remove(sim, &name, &uid),
        ActorEvent::Workload(name, uid) => crowd::workload(sim, &name, &uid),
        ActorEvent::Evicted(name) => kubelet::evict(sim, &name),
        ActorEvent::WorkerDeleted(name) => people::delete_worker(sim, &name),
        ActorEvent::LabelRemoved(name) => people::remove_label(sim, &name),
        ActorEvent::Disturbance => crowd::disturb(sim),
        ActorEvent::Reboots(name) => kubelet::reboot(sim, &name),
        ActorEvent::PowerFails => kubelet::power_fails(sim),
        ActorEvent::KubeletBack(name, uid, boot) => kubelet::back(sim, &name, &uid, boot),
        ActorEvent::Unreachable(name, uid) => kubelet::unreachable(sim, &name, &uid),
        ActorEvent::Ready(name, uid, boot) => readiness::becomes_ready(sim, &name, &uid, boot),
        ActorEvent::Heartbeat(name, uid) => kubelet::heartbeat(sim, &name, &uid),
        ActorEvent::PodsPosted(name, uid, boot) => kubelet::post_pods(sim, &name, &uid, boot),
        ActorEvent::WorkerStarts(id) => kubelet::start_worker(sim, &id),
        ActorEvent::WorkerEnds(id, uid, boot) => kubelet::end_worker(sim, &id, &uid, boot),
        ActorEvent::WorkerDeadline(id) => kubelet::deadline(sim, &id),
        ActorEvent::WorkerEndPosted(id, uid, boot, ending) => {
            kubelet::post_end(sim, &id, &uid, boot, ending);
        }
        ActorEvent::WorkerRemoved(id) => kubelet::remove_worker(sim, &id),
        ActorEvent::InitPodMade(name, uid, pod) => init_pods::make(sim, &name, &uid, pod),
        ActorEvent::InitPodDone(uid, pod, boot) => init_pods::done(sim, &uid, pod, boot),
        ActorEvent::InitPodRemoved(pod) => sim.api.remove_init_pod(&pod),
    }
}

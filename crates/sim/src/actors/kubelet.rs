//! Kubelets, and the pods that run on their machines.

use jiff::{SignedDuration, Timestamp};
use knr_core::fault::Blame;
use knr_core::ids::{NodeName, Uid, WorkerRef};
use knr_core::view::{Ending, Stage, Waiting, WorkerView};
use serde_json::json;

use super::crowd::soon;
use super::reports::{Cause, Report};
use super::{ActorEvent, Actors, Fit, Machine, init_pods, readiness};
use crate::outages::{OutageKind, Outages};
use crate::run::{Event, Sim, millis};

const PASSED: &str = r#"{"checks":[{"name":"dns","outcome":"pass"},{"name":"network","outcome":"pass"}]}"#;
/// The time that the deadline of a worker's pod adds to what a worker may take, as in `k8s/src/objects/worker.rs`.
const SPARE_SECONDS: u32 = 30;

fn machine<'a>(sim: &'a Sim, worker: &WorkerView) -> Option<&'a Machine> {
    sim.actors.machines.get(worker.host.as_ref()?.as_str())
}

/// A kubelet sees a worker that is new, or that is being deleted.
pub(super) fn notice_worker(sim: &mut Sim, worker: &WorkerView) {
    let id = worker.id.clone();
    if worker.leaving {
        let (low, high) = if machine(sim, worker).is_some() { (100, 3_000) } else { (3_000, 20_000) };
        soon(sim, low, high, ActorEvent::WorkerRemoved(id));
    } else if worker.stage == Stage::Pending(None) {
        let settings = &sim.config.worker;
        let deadline = settings.pending_timeout_seconds + settings.timeout_seconds + SPARE_SECONDS;
        let after = sim.rng.between(300, 3_000);
        sim.at(after, Event::Actor(ActorEvent::WorkerStarts(id.clone())));
        sim.at(after + 1_000 * u64::from(deadline), Event::Actor(ActorEvent::WorkerDeadline(id)));
    }
}

/// The deadline of a worker's pod has passed. It counts from when the kubelet saw the pod, whether its node was Ready or
/// not.
pub(super) fn deadline(sim: &mut Sim, id: &WorkerRef) {
    let Some(worker) = sim.api.worker(&id.name).filter(|worker| worker.id == *id && !worker.leaving).cloned()
    else {
        return;
    };
    let ending = match &worker.stage {
        Stage::Ended(_) => return,
        Stage::Pending(Some(why)) => Ending::CouldNotStart(why.clone()),
        Stage::Pending(None) | Stage::Running => Ending::Killed("the deadline of its pod passed".to_owned()),
    };
    if machine(sim, &worker).is_some_and(|machine| !machine.up) {
        soon(sim, 1_000, 5_000, ActorEvent::WorkerDeadline(id.clone()));
        return;
    }
    sim.note(
        worker.stamp.node.name.as_str(),
        format_args!("worker {} is past its deadline", worker.stamp.serial),
    );
    sim.stats.count(match worker.stage {
        Stage::Running => "deadline of a worker that runs",
        _ => "deadline of a worker that was not started",
    });
    sim.api.change_worker(id, |worker| worker.stage = Stage::Ended(ending));
}

pub(super) fn start_worker(sim: &mut Sim, id: &WorkerRef) {
    let Some(worker) = sim.api.worker(&id.name).filter(|worker| worker.id == *id && !worker.leaving).cloned()
    else {
        return;
    };
    let Some(machine) = machine(sim, &worker) else {
        // The pod garbage collector removes pods whose node is gone.
        soon(sim, 3_000, 20_000, ActorEvent::WorkerRemoved(id.clone()));
        return;
    };
    if !machine.up || !readiness::is_ready(sim, &worker) {
        sim.stats.count("worker waits for a node that is not Ready");
        soon(sim, 1_000, 5_000, ActorEvent::WorkerStarts(id.clone()));
        return;
    }
    let (uid, boot, has_image) = (machine.uid.clone(), machine.boot, machine.has_image);
    if !has_image && sim.outages.stop_pulls(sim.now) {
        let waiting = Waiting {
            reason: "ImagePullBackOff".to_owned(),
            message: "the registry does not answer".to_owned(),
        };
        if worker.stage == Stage::Pending(None) {
            sim.note(worker.stamp.node.name.as_str(), "the image of the worker cannot be pulled");
            sim.stats.count("image not pulled");
            sim.api.change_worker(id, |worker| worker.stage = Stage::Pending(Some(waiting)));
        }
        soon(sim, 5_000, 15_000, ActorEvent::WorkerStarts(id.clone()));
        return;
    }
    let is_fit = machine.is_fit(sim.now);
    let passes = is_fit && sim.outages.fail_checks(sim.now).is_none();
    if let Some(machine) = sim.actors.machines.get_mut(worker.stamp.node.name.as_str()) {
        machine.has_image = true;
    }
    sim.api.change_worker(id, |worker| worker.stage = Stage::Running);
    sim.monitor.run_began(&id.uid, sim.now);
    // Where the checks do not pass, the worker may also hang.
    if passes || !sim.rng.permille(150) {
        soon(sim, 500, 9_000, ActorEvent::WorkerEnds(id.clone(), uid, boot));
    } else {
        sim.monitor.run_hangs(&id.uid, is_fit);
    }
}

pub(super) fn end_worker(sim: &mut Sim, id: &WorkerRef, uid: &Uid, boot: u32) {
    let Some(worker) = sim.api.worker(&id.name).filter(|worker| worker.id == *id).cloned() else { return };
    let Some(machine) = machine(sim, &worker) else { return };
    if machine.uid != *uid || machine.boot != boot || !machine.up || worker.stage != Stage::Running {
        return;
    }
    let is_fit = machine.is_fit(sim.now);
    let passes = match sim.outages.fail_checks(sim.now) {
        None => is_fit,
        // The worker was started before the outage, and may have been done with the API server by then.
        Some(OutageKind::ApiServer) => is_fit && sim.rng.permille(500),
        Some(_) => false,
    };
    let ending = if is_by_chance(sim) && sim.rng.permille(60) {
        sim.monitor.touched(Some(worker.stamp.node.name.as_str()));
        Ending::Killed("Evicted".to_owned())
    } else {
        let Some(ending) = run_ends(sim, worker.stamp.node.name.as_str(), &id.uid, passes) else { return };
        ending
    };
    sim.note(
        worker.stamp.node.name.as_str(),
        format_args!("worker {} ends: {}", worker.stamp.serial, short(&ending)),
    );
    if let Some(back) = sim.outages.stop_everybody_until(sim.now) {
        // The kubelet reports it as soon as it can.
        let after = sim.rng.between(100, 10_000);
        let posted = ActorEvent::WorkerEndPosted(id.clone(), uid.clone(), boot, ending);
        sim.push(back + millis(after), Event::Actor(posted));
    } else {
        sim.api.change_worker(id, |worker| worker.stage = Stage::Ended(ending));
    }
}

/// Returns whether the checks pass on a node now.
pub(crate) fn checks_pass(actors: &Actors, outages: &Outages, name: &str, now: Timestamp) -> bool {
    let machine = actors.machines.get(name);
    machine.is_some_and(|machine| machine.up && machine.is_fit(now)) && outages.fail_checks(now).is_none()
}

/// Returns whether things may go wrong by chance.
fn is_by_chance(sim: &Sim) -> bool {
    !sim.actors.calm && sim.actors.fit.is_none()
}

/// A run of the checks on a node ends. Returns how.
pub(crate) fn run_ends(sim: &mut Sim, name: &str, worker: &Uid, passes: bool) -> Option<Ending> {
    let machine = sim.actors.machines.get(name)?;
    let (uid, boot) = (machine.uid.clone(), machine.boot_id(machine.boot));
    let (is_fit, outage) = (machine.is_fit(sim.now), sim.outages.fail_checks(sim.now));
    let is_odd = is_by_chance(sim) && sim.rng.permille(20);
    if passes && !is_odd {
        sim.monitor.run_passed(worker, &uid, &boot, sim.now);
        let message = if sim.rng.permille(100) { "no report" } else { PASSED };
        return Some(Ending::Exited { code: 0, message: message.to_owned() });
    }
    // Where the checks fail although the machine is healthy, the next attempt has to make up for it.
    sim.monitor.touched(Some(name));
    if sim.rng.permille(100) {
        return Some(Ending::Killed("deadline".to_owned()));
    }
    let cause = match outage {
        _ if is_odd => Cause::Chance,
        Some(outage) => Cause::Outage(outage),
        None => Cause::Machine,
    };
    let report = Report::draw(cause, &mut sim.rng);
    // Where there is no report, nothing shows that it is not the fault of the node.
    let is_garbled = cause != Cause::Chance && sim.rng.permille(100);
    let blame = if is_garbled { Blame::Node } else { report.blame };
    sim.stats.count(if is_garbled { "report: not readable" } else { report.what });
    sim.monitor.run_failed(worker, (&uid, &boot), (blame, is_fit), sim.now);
    let message = if is_garbled { "{\"checks\":".to_owned() } else { report.text() };
    Some(Ending::Exited { code: 1, message })
}

/// The kubelet reports the end of a worker, which it could not report during an outage.
pub(super) fn post_end(sim: &mut Sim, id: &WorkerRef, uid: &Uid, boot: u32, ending: Ending) {
    let Some(worker) = sim.api.worker(&id.name).filter(|worker| worker.id == *id).cloned() else { return };
    let is_there = machine(sim, &worker)
        .is_some_and(|machine| machine.uid == *uid && machine.boot == boot && machine.up);
    if is_there && worker.stage == Stage::Running {
        sim.api.change_worker(id, |worker| worker.stage = Stage::Ended(ending));
    }
}

pub(super) fn evict(sim: &mut Sim, name: &str) {
    let worker = sim.api.workers().find(|worker| worker.stamp.node.name.as_str() == name).cloned();
    if let Some(worker) = worker.filter(|worker| !matches!(worker.stage, Stage::Ended(_))) {
        sim.note(name, "the worker is evicted");
        sim.monitor.touched(Some(name));
        let ending = Ending::Killed("Evicted".to_owned());
        sim.api.change_worker(&worker.id, |worker| worker.stage = Stage::Ended(ending));
    }
}

fn short(ending: &Ending) -> String {
    match ending {
        Ending::Exited { code: 0, .. } => "exit code 0".to_owned(),
        Ending::Exited { code, message } => format!("exit code {code}: {message}"),
        Ending::CouldNotStart(why) => why.to_string(),
        Ending::Killed(why) => why.clone(),
    }
}

/// A worker that is deleted while it runs is told to stop, and its end is reported before it is removed.
pub(super) fn remove_worker(sim: &mut Sim, id: &WorkerRef) {
    let Some(worker) = sim.api.worker(&id.name).filter(|worker| worker.id == *id).cloned() else { return };
    match machine(sim, &worker) {
        Some(machine) if !machine.up => {
            soon(sim, 1_000, 5_000, ActorEvent::WorkerRemoved(id.clone()));
        }
        Some(_) if worker.stage == Stage::Running => {
            let code = i32::from(!sim.rng.permille(300));
            let ending = Ending::Exited { code, message: String::new() };
            sim.api.change_worker(id, |worker| worker.stage = Stage::Ended(ending));
            soon(sim, 10, 500, ActorEvent::WorkerRemoved(id.clone()));
        }
        _ => {
            sim.note(worker.stamp.node.name.as_str(), format_args!("worker {} is gone", worker.stamp.serial));
            sim.api.remove_worker(id);
        }
    }
}

/// A machine dies for good. Nobody reports that to the API server.
pub(super) fn die(sim: &mut Sim, name: &str) {
    if let Some(machine) = sim.actors.machines.get_mut(name) {
        machine.up = false;
        machine.dead = true;
        machine.boot += 1;
        machine.fit = Fit::Never;
        let uid = machine.uid.clone();
        sim.note(name, "the machine dies");
        sim.end_keeper(name);
        sim.at(50_000, Event::Actor(ActorEvent::Unreachable(name.to_owned(), uid)));
    }
}

/// The checks no longer pass on a machine, for a while or for good.
pub(super) fn breaks(sim: &mut Sim, name: &str) {
    let for_good = sim.rng.permille(300);
    let heals = i64::try_from(sim.rng.between(20, 300)).unwrap_or(0);
    let fit = if for_good { Fit::Never } else { Fit::From(sim.now + SignedDuration::from_secs(heals)) };
    if let Some(machine) = sim.actors.machines.get_mut(name).filter(|machine| machine.fit != Fit::Never) {
        machine.fit = fit;
        sim.note(name, format_args!("the machine breaks, fit: {fit:?}"));
    }
}

/// The kubelet updates its node every few minutes even if nothing has changed.
pub(super) fn heartbeat(sim: &mut Sim, name: &str, uid: &Uid) {
    let Some(machine) = sim.actors.machines.get(name).filter(|machine| machine.uid == *uid && !machine.dead)
    else {
        return;
    };
    if machine.up {
        let now = sim.now.to_string();
        sim.api.edit_node(name, |node| node["status"]["heartbeat"] = json!(now));
    }
    soon(sim, 270_000, 300_000, ActorEvent::Heartbeat(name.to_owned(), uid.clone()));
}

/// The node controller has not heard from a kubelet for too long: neither its node nor its pods are ready.
pub(super) fn unreachable(sim: &mut Sim, name: &str, uid: &Uid) {
    if !sim.actors.is_machine(name, uid) {
        return;
    }
    readiness::report(sim, name, "Unknown");
    init_pods::not_ready(sim, name);
}

pub(super) fn reboot(sim: &mut Sim, name: &str) {
    let Some(machine) = sim.actors.machines.get_mut(name).filter(|machine| !machine.dead) else { return };
    machine.boot += 1;
    machine.up = false;
    let (uid, boot) = (machine.uid.clone(), machine.boot);
    sim.note(name, format_args!("the machine is restarted, boot {boot}"));
    sim.end_keeper(name);
    soon(sim, 500, 15_000, ActorEvent::KubeletBack(name.to_owned(), uid, boot));
}

/// A third of the machines, or all of them, are restarted at once.
pub(super) fn power_fails(sim: &mut Sim) {
    let share = if sim.rng.permille(500) { 1000 } else { 333 };
    sim.stats.count("power failure");
    let names: Vec<String> = sim.actors.machines.keys().cloned().collect();
    if share == 1000 && names.len() >= 10 {
        sim.stats.count("ten or more nodes on probation at once");
    }
    for name in names {
        if sim.rng.permille(share) {
            reboot(sim, &name);
        }
    }
}

/// The kubelet posts the node with its boot ID first, and gets to its pods a little later.
pub(super) fn back(sim: &mut Sim, name: &str, uid: &Uid, boot: u32) {
    if !sim.actors.is_in_boot(name, uid, boot) {
        return;
    }
    let Some(machine) = sim.actors.machines.get_mut(name) else { return };
    machine.up = true;
    let boot_id = machine.boot_id(boot);
    let ready = if sim.actors.fit.is_some() || sim.rng.permille(500) { "True" } else { "False" };
    sim.note(name, format_args!("the kubelet is back in boot {boot}, Ready: {ready}"));
    sim.api.edit_node(name, |node| {
        node["status"]["nodeInfo"]["bootID"] = json!(boot_id);
        readiness::set(node, ready);
    });
    if ready == "False" {
        soon(sim, 500, 20_000, ActorEvent::Ready(name.to_owned(), uid.clone(), boot));
    }
    soon(sim, 50, 2_000, ActorEvent::PodsPosted(name.to_owned(), uid.clone(), boot));
}

pub(super) fn post_pods(sim: &mut Sim, name: &str, uid: &Uid, boot: u32) {
    if !sim.actors.is_in_boot(name, uid, boot) {
        return;
    }
    let on_this_host = |host: &NodeName| host.as_str() == name;
    let workers: Vec<WorkerRef> = sim
        .api
        .workers()
        .filter(|worker| worker.host.as_ref().is_some_and(on_this_host) && worker.stage == Stage::Running)
        .map(|worker| worker.id.clone())
        .collect();
    for id in workers {
        let ending = Ending::Killed("the node was restarted".to_owned());
        sim.api.change_worker(&id, |worker| worker.stage = Stage::Ended(ending));
    }
    init_pods::start_again(sim, name, boot);
}

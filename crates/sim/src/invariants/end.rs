//! The rules for the end of a run, when there were no faults for a while: every node has reached its final state, and
//! nothing is left over.

use jiff::SignedDuration;
use knr_core::config::{OnReboot, StartupGate};
use knr_core::names;
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{Condition, ConditionStatus, NodeView, Purpose, WorkerView};
use knr_core::world::SeenInitPod;

use super::{Rule, is_closed, is_excluded, is_labelled, is_managed, is_paused, our_taints, state_of};
use crate::actors::{Fit, Machine};
use crate::refusals::Refused;
use crate::run::Sim;
use crate::scenario::Mode;

/// A run that is due may end this much later.
const LATE: SignedDuration = SignedDuration::from_mins(1);

type Verdict = Result<(), (Rule, String)>;

fn broken(rule: Rule, how: impl Into<String>) -> Verdict {
    Err((rule, how.into()))
}

/// Checks the end of a run against L1 and L2.
pub(crate) fn at_end(sim: &Sim) -> Result<(), String> {
    for (name, node) in sim.api.nodes() {
        accept(sim, name, node_at_end(sim, &node.view))?;
    }
    for worker in sim.api.workers() {
        accept(sim, worker.stamp.node.name.as_str(), worker_at_end(sim, worker))?;
    }
    Ok(())
}

fn accept(sim: &Sim, name: &str, verdict: Verdict) -> Result<(), String> {
    let Err((rule, how)) = verdict else { return Ok(()) };
    let said = said_of(sim, name);
    Err(sim.story_of(name, &format!("{rule}: {how}\n  what is said of it: {said}")))
}

/// Returns what the process that looks after a node says of it.
pub(super) fn said_of(sim: &Sim, name: &str) -> String {
    let shown = sim.engine_of(name).and_then(|engine| {
        let mut shown = engine.explanations().filter(|(node, _)| node.as_str() == name);
        shown.next().map(|(_, explanation)| explanation.to_string())
    });
    shown.unwrap_or_else(|| "nothing".to_owned())
}

fn machine<'a>(sim: &'a Sim, name: &str) -> Option<&'a Machine> {
    sim.actors.machines.get(name)
}

fn is_fit(sim: &Sim, name: &str) -> bool {
    machine(sim, name).is_some_and(|machine| machine.up && machine.is_fit(sim.now))
}

/// Returns the rule that a healthy node breaks if it is not in its final state: [`Rule::L1`] if it was always healthy
/// and there was no outage, [`Rule::Recovered`] otherwise.
fn rule_of_recovery(sim: &Sim, name: &str) -> Rule {
    let was_always_fit = machine(sim, name).is_some_and(|machine| machine.fit == Fit::Always);
    if was_always_fit && sim.outages.all().is_empty() { Rule::L1 } else { Rule::Recovered }
}

/// A worker may be left only on a node that still has to be verified, where a dead kubelet cannot end it, and for a
/// reference run.
fn worker_at_end(sim: &Sim, worker: &WorkerView) -> Verdict {
    let name = worker.stamp.node.name.as_str();
    if is_reference_under_way(sim, worker) || machine(sim, name).is_some_and(|machine| !machine.up) {
        return Ok(());
    }
    let node = sim.api.node(name).map(|node| &node.view);
    let may_be_there = |node: &NodeView| {
        let is_held = match sim.refusals.now(sim.now) {
            Some(Refused::Verification) => true,
            Some(Refused::Startup) => waits_for_startup_gate(sim, node),
            Some(Refused::Worker | Refused::Condition) | None => waits_for_proof(sim, node),
        };
        let is_tried = is_managed(node, &sim.config) && (is_held || !is_fit(sim, name));
        !is_excluded(node, &sim.config) && (is_tried || is_paused(node))
    };
    if node.is_some_and(may_be_there) {
        return Ok(());
    }
    broken(Rule::L1, format!("a worker of {} is left over", worker.stamp.node))
}

/// A node that fails may ask for a reference run on another node, and such a run ends in time.
fn is_reference_under_way(sim: &Sim, worker: &WorkerView) -> bool {
    let limits = &sim.config.worker;
    let is_recent =
        |made| sim.now.duration_since(made) < limits.pending_timeout() + limits.runs_within() + LATE;
    let host = worker.stamp.node.name.as_str();
    worker.stamp.purpose == Purpose::Reference
        && sim.monitor.runs.made_at(&worker.id.uid).is_some_and(is_recent)
        && sim.api.nodes().any(|(name, _)| name != host && !is_fit(sim, name))
}

fn node_at_end(sim: &Sim, node: &NodeView) -> Verdict {
    let (name, state) = (node.id.name.as_str(), state_of(node));
    let is_dead = machine(sim, name).is_some_and(|machine| !machine.up);
    let has_no_pod = match sim.mode {
        Mode::Controllers => false,
        Mode::OnNodes(None) => is_dead || is_labelled(node, &sim.config),
        Mode::OnNodes(Some(_)) => is_dead,
    };
    if node.leaving || has_no_pod || is_excluded(node, &sim.config) {
        return Ok(());
    }
    let refused = sim.refusals.now(sim.now);
    if is_paused(node) {
        let is_closed = our_taints(&sim.config).any(|taint| node.position(taint).is_some());
        let must_say = is_closed && refused != Some(Refused::Condition);
        return if must_say { says_why(node) } else { Ok(()) };
    }
    if !is_dead && refused != Some(Refused::Startup) {
        startup_gates(sim, node)?;
    }
    let is_closed = is_closed(node, &sim.config.node_management.taints);
    if refused == Some(Refused::Verification) {
        return Ok(());
    }
    if is_closed && refused != Some(Refused::Condition) && (is_dead || refused == Some(Refused::Worker)) {
        return says_why(node);
    }
    let waits = refused == Some(Refused::Startup) && waits_for_startup_gate(sim, node);
    let cannot_say = refused == Some(Refused::Condition);
    if is_closed && !is_dead && (waits || waits_for_proof(sim, node)) {
        return if cannot_say { Ok(()) } else { says_why(node) };
    }
    if is_closed && !is_dead {
        closed(sim, node, state.as_ref())?;
    } else if is_fit(sim, name) && refused != Some(Refused::Worker) {
        open(sim, node, state.as_ref())?;
    }
    match state {
        Some(state) if matches!(refused, None | Some(Refused::Startup)) => condition(sim, node, &state),
        _ => Ok(()),
    }
}

/// A startup gate is open once the gates that it waits for are open.
fn startup_gates(sim: &Sim, node: &NodeView) -> Verdict {
    let config = &sim.config;
    let is_closed = |name: &str| match name {
        names::VERIFICATION_GATE => is_closed(node, &config.node_management.taints),
        name => config.gates.iter().any(|gate| gate.name == name && node.position(&gate.taint).is_some()),
    };
    let is_stuck = |name: &str| is_closed(name) && !config.opens_after(name).into_iter().any(is_closed);
    match config.gates.iter().find(|gate| is_stuck(&gate.name) && !lacks_proof(sim, node, gate)) {
        Some(gate) => broken(Rule::L1, format!("gate {} is still closed", gate.name)),
        None => Ok(()),
    }
}

/// Returns whether nothing can open a startup gate, because only an annotation counts that may be older than a restart.
fn lacks_proof(sim: &Sim, node: &NodeView, gate: &StartupGate) -> bool {
    let name = node.id.name.as_str();
    let entry = sim.engine_of(name).and_then(|engine| engine.world().entry(&node.id.name));
    let is_old = |pod: &SeenInitPod| pod.outlived.contains_key(&gate.ready_annotation);
    gate.annotation_only && entry.is_some_and(|entry| entry.init_pods.values().any(is_old))
}

/// Returns whether the verification gate waits for a startup gate that nothing can open.
fn waits_for_proof(sim: &Sim, node: &NodeView) -> bool {
    let is_stuck = |gate: &StartupGate| node.position(&gate.taint).is_some() && lacks_proof(sim, node, gate);
    waits_for_startup_gate(sim, node) && sim.config.gates.iter().any(is_stuck)
}

/// Returns whether the verification gate waits for a startup gate that is closed.
fn waits_for_startup_gate(sim: &Sim, node: &NodeView) -> bool {
    let first = sim.config.opens_after(names::VERIFICATION_GATE);
    let mut gates = sim.config.gates.iter().filter(|gate| first.contains(&gate.name.as_str()));
    gates.any(|gate| node.position(&gate.taint).is_some())
}

/// A node that cannot be verified says so in its condition.
fn says_why(node: &NodeView) -> Verdict {
    let says =
        |condition: &Condition| condition.status != ConditionStatus::True && !condition.message.is_empty();
    if node.condition.as_ref().is_some_and(says) {
        return Ok(());
    }
    broken(Rule::L1, format!("still closed, and the condition says {:?}", node.condition))
}

fn closed(sim: &Sim, node: &NodeView, state: Option<&NodeState>) -> Verdict {
    let (settings, name) = (&sim.config.reconciliation, node.id.name.as_str());
    if is_fit(sim, name) {
        return broken(rule_of_recovery(sim, name), "a node that is fit is still closed");
    }
    let is_of_this_boot = |state: &&NodeState| *state.run_boot.as_ref().unwrap_or(&state.boot) == node.boot;
    let Some(state) = state.filter(is_of_this_boot) else {
        return broken(Rule::L1, "still closed, and no verdict says why");
    };
    if state.next_try.is_none() {
        return broken(Rule::L1, "still closed, and nobody tries it again");
    }
    let used_up = state.phase == StatePhase::Failed
        && (state.attempt >= settings.max_retries || state.inconclusive >= settings.max_inconclusive_runs);
    // If the cluster or the installation is at fault, or was until recently, the node may have attempts left.
    if !used_up
        && state.blame.is_none()
        && failing(sim).count() < 2
        && verified(sim).all(|node| is_fit(sim, node.id.name.as_str()))
    {
        return broken(Rule::L1, "still closed although attempts are left");
    }
    if state.reason.as_deref().is_none_or(str::is_empty) {
        return broken(Rule::L1, "closed without a reason");
    }
    if node.annotations.contains_key(names::RETRY_ANNOTATION) {
        return broken(Rule::L1, "an attempt was asked for, and never made");
    }
    if is_to_be_replaced(sim, node, state) {
        return broken(Rule::Replaced, "a node that is never fit is still there");
    }
    Ok(())
}

/// Returns the managed nodes that have a state and are neither paused nor excluded.
fn looked_after(sim: &Sim) -> impl Iterator<Item = &NodeView> {
    let nodes = sim.api.nodes().map(|(_, node)| &node.view);
    let is_ours = |node: &&NodeView| is_managed(node, &sim.config) && !is_paused(node);
    nodes.filter(is_ours).filter(|node| state_of(node).is_some())
}

/// Returns the failing ones among these nodes. A node that somebody opened by hand does not count.
fn failing(sim: &Sim) -> impl Iterator<Item = &NodeView> {
    let taints = &sim.config.node_management.taints;
    looked_after(sim).filter(|node| {
        state_of(node)
            .is_some_and(|state| state.is_failing() && (state.stays_open || is_closed(node, taints)))
    })
}

/// Returns whether a node must be deleted by now: deletion is enabled, nothing was deleted yet, the brake is off, and
/// the checks pass on all verified nodes.
fn is_to_be_replaced(sim: &Sim, node: &NodeView, state: &NodeState) -> bool {
    let (managed, failing) = (looked_after(sim).count(), failing(sim).count());
    let control_plane = names::CONTROL_PLANE_LABELS.iter().any(|label| node.labels.contains_key(label));
    sim.mode == Mode::Controllers
        && !control_plane
        && sim.refusals.now(sim.now).is_none()
        && sim.config.node_management.delete_failed_nodes
        && state.attempt >= sim.config.reconciliation.max_retries
        && machine(sim, node.id.name.as_str()).is_some_and(|machine| machine.up && machine.fit == Fit::Never)
        && sim.api.ledger().entries.is_empty()
        && !sim.config.limits.deletion.too_many_failing(failing, managed)
        && verified(sim).next().is_some()
        && verified(sim).all(|node| is_fit(sim, node.id.name.as_str()))
}

/// Returns the verified nodes that can do a reference run.
fn verified(sim: &Sim) -> impl Iterator<Item = &NodeView> {
    looked_after(sim).filter(|node| {
        state_of(node).is_some_and(|state| state.phase == StatePhase::Verified)
            && !is_closed(node, &sim.config.node_management.taints)
            && machine(sim, node.id.name.as_str()).is_some_and(|machine| machine.up)
    })
}

fn open(sim: &Sim, node: &NodeView, state: Option<&NodeState>) -> Verdict {
    let name = node.id.name.as_str();
    let Some(state) = state.filter(|_| !sim.monitor.by_hand.contains(&node.id.uid)) else { return Ok(()) };
    let rebooted = state.boot != node.boot;
    match state.phase {
        // The verification gate may have to wait for a startup gate that cannot be opened.
        StatePhase::Verified
            if sim.refusals.now(sim.now) == Some(Refused::Startup) || waits_for_proof(sim, node) =>
        {
            Ok(())
        }
        StatePhase::Verified if !is_labelled(node, &sim.config) => {
            broken(rule_of_recovery(sim, name), "verified, but the label was not put back")
        }
        StatePhase::Verified if rebooted && sim.config.node_management.on_reboot != OnReboot::Ignore => {
            broken(rule_of_recovery(sim, name), "restarted, but not verified again")
        }
        StatePhase::Verified => Ok(()),
        StatePhase::Failed | StatePhase::Unverified => {
            broken(Rule::Recovered, "a node that is fit and open was never verified again")
        }
    }
}

fn condition(sim: &Sim, node: &NodeView, state: &NodeState) -> Verdict {
    // The condition shows no verdict about another boot.
    if state.boot != node.boot {
        return Ok(());
    }
    let expected = match state.phase {
        StatePhase::Verified if state.inconclusive > 0 && !is_fit(sim, node.id.name.as_str()) => {
            ConditionStatus::Unknown
        }
        // The status depends on whether its attempts were used up before.
        StatePhase::Failed if state.inconclusive > 0 => return Ok(()),
        StatePhase::Verified if sim.config.gates.iter().any(|gate| node.position(&gate.taint).is_some()) => {
            ConditionStatus::Unknown
        }
        StatePhase::Verified => ConditionStatus::True,
        StatePhase::Failed => ConditionStatus::False,
        StatePhase::Unverified => return Ok(()),
    };
    match &node.condition {
        Some(condition) if condition.status == expected => Ok(()),
        other => broken(Rule::L1, format!("the condition says {other:?}, the state {:?}", state.phase)),
    }
}

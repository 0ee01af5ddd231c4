//! What must be so once nothing has gone wrong for a while: every node has come to its end, and nothing is left over.

use knr_core::config::OnReboot;
use knr_core::names;
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{Condition, ConditionStatus, NodeView, Purpose, WorkerView};

use super::{Rule, is_closed, is_excluded, is_labelled, is_managed, is_paused, state_of};
use crate::actors::{Fit, Machine};
use crate::refusals::Refused;
use crate::run::Sim;
use crate::scenario::Mode;

type Verdict = Result<(), (Rule, String)>;

fn broken(rule: Rule, how: impl Into<String>) -> Verdict {
    Err((rule, how.into()))
}

/// L1 and L2: holds the end of a run against what was promised.
pub(crate) fn at_end(sim: &Sim) -> Result<(), String> {
    for (name, node) in sim.api.nodes() {
        tell(sim, name, node_at_end(sim, &node.view))?;
    }
    for worker in sim.api.workers() {
        tell(sim, worker.stamp.node.name.as_str(), worker_at_end(sim, worker))?;
    }
    Ok(())
}

fn tell(sim: &Sim, name: &str, verdict: Verdict) -> Result<(), String> {
    let Err((rule, how)) = verdict else { return Ok(()) };
    let told = sim.engine_of(name).and_then(|engine| {
        let mut told = engine.explanations().filter(|(told, _)| told.as_str() == name);
        told.next().map(|(_, explanation)| explanation.to_string())
    });
    let said = told.unwrap_or_else(|| "nothing".to_owned());
    Err(sim.tell(name, &format!("{rule}: {how}\n  what is said of it: {said}")))
}

fn machine<'a>(sim: &'a Sim, name: &str) -> Option<&'a Machine> {
    sim.actors.machines.get(name)
}

fn is_fit(sim: &Sim, name: &str) -> bool {
    machine(sim, name).is_some_and(|machine| machine.up && machine.is_fit(sim.now))
}

/// Whatever keeps a node from its end has to do with an outage, or the machine was broken for a while. It is fit now.
fn rule_of_recovery(sim: &Sim, name: &str) -> Rule {
    let was_always_fit = machine(sim, name).is_some_and(|machine| machine.fit == Fit::Always);
    if was_always_fit && sim.outages.all().is_empty() { Rule::L1 } else { Rule::Recovered }
}

/// Workers are there only for those that still have something to prove, and where a dead kubelet ends nothing.
fn worker_at_end(sim: &Sim, worker: &WorkerView) -> Verdict {
    let name = worker.stamp.node.name.as_str();
    let is_comparison =
        worker.stamp.purpose == Purpose::Reference && sim.config.node_management.delete_failed_nodes;
    if is_comparison || machine(sim, name).is_some_and(|machine| !machine.up) {
        return Ok(());
    }
    let node = sim.api.node(name).map(|node| &node.view);
    let may_be_there = |node: &NodeView| {
        let is_held = sim.refusals.now(sim.now) == Some(Refused::Verification);
        let is_tried = is_managed(node, &sim.config) && (is_held || !is_fit(sim, name));
        !is_excluded(node, &sim.config) && (is_tried || is_paused(node))
    };
    if node.is_some_and(may_be_there) {
        return Ok(());
    }
    broken(Rule::L1, format!("a worker of {} is left over", worker.stamp.node))
}

fn node_at_end(sim: &Sim, node: &NodeView) -> Verdict {
    let (name, state) = (node.id.name.as_str(), state_of(node));
    let is_dead = machine(sim, name).is_some_and(|machine| !machine.up);
    let has_no_pod = match sim.mode {
        Mode::Controllers => false,
        Mode::OnNodes(None) => is_dead || is_labelled(node, &sim.config),
        Mode::OnNodes(Some(_)) => is_dead,
    };
    if node.leaving || has_no_pod || is_excluded(node, &sim.config) || is_paused(node) {
        return Ok(());
    }
    if !is_dead {
        startup_gates(sim, node)?;
    }
    let is_closed = is_closed(node, &sim.config.node_management.taints);
    let refused = sim.refusals.now(sim.now);
    if refused == Some(Refused::Verification) {
        return Ok(());
    }
    if is_closed && refused != Some(Refused::Condition) && (is_dead || refused == Some(Refused::Worker)) {
        return says_why(node);
    }
    if is_closed && !is_dead {
        closed(sim, node, state.as_ref())?;
    } else if is_fit(sim, name) && refused != Some(Refused::Worker) {
        open(sim, node, state.as_ref())?;
    }
    match state {
        Some(state) if refused.is_none() => condition(sim, node, &state),
        _ => Ok(()),
    }
}

/// A gate is open once those that it waits for are.
fn startup_gates(sim: &Sim, node: &NodeView) -> Verdict {
    let config = &sim.config;
    let is_closed = |name: &str| match name {
        names::VERIFICATION_GATE => is_closed(node, &config.node_management.taints),
        name => config.gates.iter().any(|gate| gate.name == name && node.position(&gate.taint).is_some()),
    };
    let is_stuck = |name: &str| is_closed(name) && !config.opens_after(name).into_iter().any(is_closed);
    match config.gates.iter().find(|gate| is_stuck(&gate.name)) {
        Some(gate) => broken(Rule::L1, format!("gate {} is still closed", gate.name)),
        None => Ok(()),
    }
}

/// Nothing more can be found out about a node, and it says so.
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
    // Where others are at fault, or were until a moment ago, the node has all its attempts left.
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

/// Nodes with a state that the controller looks after, not those that are paused or excluded.
fn looked_after(sim: &Sim) -> impl Iterator<Item = &NodeView> {
    let nodes = sim.api.nodes().map(|(_, node)| &node.view);
    let is_ours = |node: &&NodeView| is_managed(node, &sim.config) && !is_paused(node);
    nodes.filter(is_ours).filter(|node| state_of(node).is_some())
}

/// Of these, the ones that fail. Who opened a node by hand does not want to hear of that.
fn failing(sim: &Sim) -> impl Iterator<Item = &NodeView> {
    let taints = &sim.config.node_management.taints;
    looked_after(sim).filter(|node| {
        state_of(node)
            .is_some_and(|state| state.is_failing() && (state.stays_open || is_closed(node, taints)))
    })
}

/// Deletion was asked for, nothing was deleted yet, the brake is off, and the checks pass on all verified nodes.
fn is_to_be_replaced(sim: &Sim, node: &NodeView, state: &NodeState) -> bool {
    let (managed, failing) = (looked_after(sim).count(), failing(sim).count());
    sim.mode == Mode::Controllers
        && sim.refusals.now(sim.now).is_none()
        && sim.config.node_management.delete_failed_nodes
        && state.attempt >= sim.config.reconciliation.max_retries
        && machine(sim, node.id.name.as_str()).is_some_and(|machine| machine.up && machine.fit == Fit::Never)
        && sim.api.ledger().entries.is_empty()
        && !sim.config.limits.deletion.too_many_failing(failing, managed)
        && verified(sim).next().is_some()
        && verified(sim).all(|node| is_fit(sim, node.id.name.as_str()))
}

/// Verified nodes on which the checks can be run for comparison.
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
    // A verdict about another boot is no longer shown, or not yet.
    if state.boot != node.boot {
        return Ok(());
    }
    let expected = match state.phase {
        StatePhase::Verified if state.inconclusive > 0 => ConditionStatus::Unknown,
        // It depends on whether its attempts were used up before.
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

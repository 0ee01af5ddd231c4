//! What must be so once nothing has gone wrong for a while: every node has come to its end, and nothing is left over.

use knr_core::config::OnReboot;
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{ConditionStatus, NodeView};

use super::{is_closed, is_excluded, is_labelled, state_of};
use crate::actors::Fit;
use crate::observe;
use crate::run::Sim;

/// L1 and L2: holds the end of a run against what was promised.
pub(crate) fn at_end(sim: &Sim) -> Result<(), String> {
    for (name, node) in sim.api.nodes() {
        let node = observe::node(node);
        if let Err(rule) = node_at_end(sim, &node) {
            let told = sim.leading_engine().and_then(|engine| {
                let mut told = engine.explanations().filter(|(told, _)| told.as_str() == name);
                told.next().map(|(_, explanation)| explanation.to_string())
            });
            let said = told.unwrap_or_else(|| "nothing".to_owned());
            return Err(sim.tell(name, &format!("{rule}\n  what is said of it: {said}")));
        }
    }
    // A kubelet that is dead ends nothing.
    let is_stuck = |name: &str| sim.actors.machines.get(name).is_some_and(|machine| !machine.up);
    let is_tried = |name: &str| {
        let state = sim.api.node(name).and_then(|node| state_of(&observe::node(node)));
        state.is_some_and(|state| state.phase == StatePhase::Failed && state.next_try.is_some())
    };
    let mut left = sim.api.workers().filter(|worker| {
        let name = worker.stamp.node.name.as_str();
        !is_stuck(name) && !is_tried(name)
    });
    if let Some(worker) = left.next() {
        let name = worker.stamp.node.name.as_str();
        return Err(sim.tell(name, &format!("L1: a worker of {} is left over", worker.stamp.node)));
    }
    Ok(())
}

fn node_at_end(sim: &Sim, node: &NodeView) -> Result<(), String> {
    if node.leaving || is_excluded(node, &sim.config) {
        return Ok(());
    }
    let state = state_of(node);
    let machine = sim.actors.machines.get(node.id.name.as_str());
    let is_dead = machine.is_some_and(|machine| !machine.up);
    let waits_for_pods =
        is_dead && sim.config.gates.iter().any(|gate| is_closed(node, std::slice::from_ref(&gate.taint)));
    if waits_for_pods {
        return Ok(());
    }
    if is_closed(node, &sim.config.node_management.taints) {
        closed(sim, node, state.as_ref())?;
    } else if let Some(state) = state.as_ref().filter(|state| state.phase == StatePhase::Verified && !is_dead)
    {
        open(sim, node, state)?;
    }
    for gate in &sim.config.gates {
        if !is_dead && is_closed(node, std::slice::from_ref(&gate.taint)) {
            return Err(format!("L1: gate {} is still closed", gate.name));
        }
    }
    match state {
        Some(state) => condition(node, &state),
        None => Ok(()),
    }
}

fn closed(sim: &Sim, node: &NodeView, state: Option<&NodeState>) -> Result<(), String> {
    let settings = &sim.config.reconciliation;
    let Some(state) = state.filter(|state| state.phase == StatePhase::Failed && state.boot == node.boot)
    else {
        return Err("L1: still closed, and no verdict says why".to_owned());
    };
    // Where many fail at once, the cluster is suspected and the node is tried again and again.
    let used_up =
        state.attempt >= settings.max_retries || state.inconclusive >= settings.max_inconclusive_runs;
    if !used_up {
        return Err("L1: still closed although attempts are left".to_owned());
    }
    if state.reason.as_deref().is_none_or(str::is_empty) {
        return Err("L1: closed for good without a reason".to_owned());
    }
    let machine = sim.actors.machines.get(node.id.name.as_str());
    if machine.is_some_and(|machine| machine.fit == Fit::Always) {
        return Err("L1: a node that was always fit is closed for good".to_owned());
    }
    Ok(())
}

fn open(sim: &Sim, node: &NodeView, state: &NodeState) -> Result<(), String> {
    if !is_labelled(node, &sim.config) {
        return Err("L1: verified, but the label was not put back".to_owned());
    }
    let rebooted = state.boot != node.boot;
    if rebooted && sim.config.node_management.on_reboot != OnReboot::Ignore {
        return Err("L1: restarted, but not verified again".to_owned());
    }
    Ok(())
}

fn condition(node: &NodeView, state: &NodeState) -> Result<(), String> {
    let expected = match state.phase {
        StatePhase::Verified => ConditionStatus::True,
        StatePhase::Failed => ConditionStatus::False,
        StatePhase::Unverified => return Ok(()),
    };
    match &node.condition {
        Some(condition) if condition.status == expected => Ok(()),
        other => Err(format!("L1: the condition says {other:?}, the state {:?}", state.phase)),
    }
}

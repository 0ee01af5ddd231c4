//! L4: a node that becomes healthy is open within one longest retry delay and one run of the checks.
//!
//! Looked at every ten seconds, while other things go wrong, for every closed node that nothing has touched for long
//! enough. What touches a node: anything that keeps it from being verified, such as an unfit machine, a node that is not
//! Ready, a pause, or a startup gate that comes first; a fault of one of its writes or events; a worker that was evicted or deleted. What touches
//! all nodes: an outage, a crash, a change of the leader or of the configuration, a watch that breaks, a disturbance.
//!
//! Slack on top of the promise: a run that began before the node was healthy has to end, its failure may have to wait for
//! a reference run, workers of other nodes may hold the slots, and every step takes time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use knr_core::config::Config;
use knr_core::ids::{BootId, Uid};
use knr_core::names;
use knr_core::view::NodeView;

use super::{Rule, end, is_closed, is_in_scope};
use crate::refusals::Refused;
use crate::run::Sim;
use crate::scenario::Mode;

/// The time between two looks.
const INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// Steps that take time: requests, events, pauses after a write that failed.
const STEPS: SignedDuration = SignedDuration::from_mins(1);

/// Since when each closed node must be on its way to being open.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    since: BTreeMap<String, (Uid, BootId, Timestamp)>,
    /// Nodes of which an event was lost, until it must have been made up for.
    blind: BTreeMap<String, Timestamp>,
    next: Timestamp,
}

impl Recovery {
    /// Something happened to a node, or to all.
    pub(super) fn touched(&mut self, node: Option<&str>) {
        match node {
            Some(name) => drop(self.since.remove(name)),
            None => self.since.clear(),
        }
    }

    /// An event about a node was lost.
    pub(super) fn lost(&mut self, node: &str, until: Timestamp) {
        self.touched(Some(node));
        self.blind.insert(node.to_owned(), until);
    }

    fn is_blind(&self, node: &str, now: Timestamp) -> bool {
        self.blind.get(node).is_some_and(|until| now < *until)
    }

    /// Returns since when a node must be on its way to being open.
    fn since(&mut self, node: &NodeView, now: Timestamp) -> Timestamp {
        let (name, uid, boot) = (node.id.name.to_string(), node.id.uid.clone(), node.boot.clone());
        let known = self.since.entry(name).or_insert_with(|| (uid.clone(), boot.clone(), now));
        if (&known.0, &known.1) != (&uid, &boot) {
            *known = (uid, boot, now);
        }
        known.2
    }

    /// The time in which a node must be open.
    fn limit(config: &Config, nodes: usize) -> SignedDuration {
        let worker = &config.worker;
        let slots = usize::try_from(config.limits.max_concurrent_workers).unwrap_or(1);
        let turns = i32::try_from(nodes.div_ceil(slots)).unwrap_or(i32::MAX);
        let run = worker.runs_within();
        let reference = worker.pending_timeout() + run;
        let delay = SignedDuration::from_secs(config.reconciliation.max_retry_delay_seconds.into());
        delay + run + reference + run * turns + STEPS
    }
}

/// Checks L4 for all nodes, if it is time for it.
pub(crate) fn look(sim: &mut Sim) {
    let recovery = &mut sim.monitor.recovery;
    if sim.now < recovery.next {
        return;
    }
    recovery.next = sim.now + INTERVAL;
    if sim.mode != Mode::Controllers || is_stopped(sim) {
        sim.monitor.recovery.touched(None);
        return;
    }
    let nodes: Vec<(String, NodeView)> =
        sim.api.nodes().map(|(name, node)| (name.clone(), node.view.clone())).collect();
    let limit = Recovery::limit(&sim.config, nodes.len());
    for (name, node) in nodes {
        if !must_open(sim, &name, &node) || sim.monitor.recovery.is_blind(&name, sim.now) {
            sim.monitor.recovery.touched(Some(&name));
            continue;
        }
        let since = sim.monitor.recovery.since(&node, sim.now);
        if sim.now.duration_since(since) > limit {
            let said = end::said_of(sim, &name);
            let how = format!(
                "a node is healthy and undisturbed, and still closed after {} s\n  what is said of it: {said}",
                limit.as_secs()
            );
            sim.monitor.violate(&name, Rule::L4, how);
        }
    }
}

/// Returns whether nothing can be verified now.
fn is_stopped(sim: &Sim) -> bool {
    let pace = &sim.config.reconciliation;
    let is_refused = matches!(sim.refusals.now(sim.now), Some(Refused::Worker | Refused::Verification));
    pace.paused || pace.dry_run || is_refused || sim.leader().is_none() || sim.outages.is_any(sim.now)
}

/// Returns whether nothing stands between a closed node and its verification.
fn must_open(sim: &Sim, name: &str, node: &NodeView) -> bool {
    let config = &sim.config;
    let is_healthy = sim.actors.machines.get(name).is_some_and(|machine| {
        machine.uid == node.id.uid && machine.up && machine.is_fit(sim.now) && node.ready
    });
    let first = config.opens_after(names::VERIFICATION_GATE);
    let waits = config
        .gates
        .iter()
        .any(|gate| first.contains(&gate.name.as_str()) && node.position(&gate.taint).is_some());
    let labels = &node.labels;
    let is_registered = !labels.contains_key(names::KARPENTER_POOL_LABEL)
        || labels.get(names::KARPENTER_REGISTERED_LABEL) == Some("true");
    let is_gated = is_closed(node, &config.node_management.taints);
    is_gated && is_in_scope(node, config) && is_healthy && is_registered && !waits
}

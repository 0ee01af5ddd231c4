//! Policies: what is required of a node before it opens, and what happens to a node that fails.
//!
//! A policy belongs to nodes, not to the process: [`Policies::of`] resolves it from the labels of a node, and all
//! decisions about the node follow from that policy alone. The configuration file describes one policy, which applies
//! to every node.

mod gate;
mod retry;

use std::sync::Arc;

use crate::config::{Config, DeletionLimits, Label, OnReboot, Selector, Taint, Worker};
use crate::ids::{PolicyName, Requires, short_hash};
use crate::texts::Texts;

pub use gate::{Gate, PodRequirement, Requirement};
pub use retry::Retry;

/// The name of the policy in the configuration file.
pub const DEFAULT: &str = "default";

/// The requirements for a node, and what happens to a node that fails them.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own for operators")]
pub struct Policy {
    pub name: PolicyName,
    pub gates: Vec<Gate>,
    /// The settings of workers: what they check, and how they run.
    pub worker: Worker,
    /// A fingerprint of what workers check.
    pub requires: Requires,
    pub verified_label: Label,
    pub retry: Retry,
    pub delete_failed_nodes: bool,
    pub limits: DeletionLimits,
    pub exclude: Vec<Selector>,
    pub include_control_plane: bool,
    pub on_reboot: OnReboot,
    pub backfill: bool,
    pub paused: bool,
}

impl Policy {
    /// The gate that opens when the checks pass, if there is one.
    #[must_use]
    pub fn checks_gate(&self) -> Option<&Gate> {
        self.gates.iter().find(|gate| gate.requirement == Requirement::Checks)
    }

    #[must_use]
    pub fn gate(&self, name: &str) -> Option<&Gate> {
        self.gates.iter().find(|gate| gate.name == name)
    }

    /// The taints of all gates.
    pub fn taints(&self) -> impl Iterator<Item = &Taint> {
        self.gates.iter().flat_map(|gate| &gate.taints)
    }

    /// The pods that gates wait for.
    pub fn pod_requirements(&self) -> impl Iterator<Item = &PodRequirement> {
        self.gates.iter().filter_map(|gate| match &gate.requirement {
            Requirement::Pods(pods) => Some(pods),
            Requirement::Checks => None,
        })
    }
}

impl From<&Config> for Policy {
    fn from(config: &Config) -> Self {
        let (nodes, worker) = (&config.node_management, &config.worker);
        Self {
            name: DEFAULT.into(),
            gates: gate::all(config),
            worker: worker.clone(),
            requires: fingerprint(worker),
            verified_label: nodes.verified_label.clone(),
            retry: Retry::from(&config.reconciliation),
            delete_failed_nodes: nodes.delete_failed_nodes,
            limits: config.limits.deletion.clone(),
            exclude: nodes.exclude.clone(),
            include_control_plane: nodes.include_control_plane,
            on_reboot: nodes.on_reboot,
            backfill: nodes.backfill,
            paused: config.reconciliation.paused,
        }
    }
}

/// The fingerprint covers what a worker runs and what it checks. How the pod is scheduled and how long it may wait do
/// not affect the result.
fn fingerprint(worker: &Worker) -> Requires {
    let Worker { image, command, init_containers, volumes, volume_mounts, .. } = worker;
    let runs = (image, command, init_containers, volumes, volume_mounts, worker.check_plan());
    let text = serde_json::to_vec(&runs).unwrap_or_default();
    format!("{:016x}", short_hash(&text)).into()
}

/// All policies.
#[derive(Debug, Clone, PartialEq)]
pub struct Policies {
    default: Arc<Policy>,
}

impl Policies {
    /// The policy that applies to a node with these labels.
    #[must_use]
    pub fn of(&self, _labels: &Texts) -> &Arc<Policy> {
        &self.default
    }

    /// The policy that applies where there is no node, such as to a worker whose node is gone.
    #[must_use]
    pub fn fallback(&self) -> &Arc<Policy> {
        &self.default
    }

    #[must_use]
    pub fn named(&self, name: &PolicyName) -> Option<&Arc<Policy>> {
        self.iter().find(|policy| policy.name == *name)
    }

    /// Returns whether any policy deletes failed nodes.
    #[must_use]
    pub fn delete_nodes(&self) -> bool {
        self.iter().any(|policy| policy.delete_failed_nodes)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Policy>> {
        std::iter::once(&self.default)
    }
}

impl From<&Config> for Policies {
    fn from(config: &Config) -> Self {
        Self { default: Arc::new(Policy::from(config)) }
    }
}

#[cfg(test)]
mod tests;

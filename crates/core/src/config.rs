//! The configuration: its keys, their defaults and the rules that a file has to follow.
//!
//! [`Config::parse`] reads a file and reports all problems at once, each with its line and column. The JSON Schema and
//! the reference in `docs/config.md` are generated from the doc comments and limits on the types here, so the three
//! cannot disagree.

mod check;
mod checks;
mod env;
mod format;
mod nodes;
mod path;
mod problem;
mod retry;
mod rules;
mod schema;
mod selector;
mod service;
mod suggest;
mod tree;
mod worker;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

pub use self::checks::{BuiltInCheck, CheckKind, CheckPlan, CheckSpec, FileSpec, HttpSpec, MtuSpec, TcpSpec};
pub use self::env::{Variable, variables};
pub use self::nodes::{Effect, Label, NodeManagement, OnReboot, StartupGate, Taint};
pub use self::problem::{Location, Problem, Problems};
pub use self::retry::{Reconciliation, RetryBackoff};
pub use self::selector::{Selector, SelectorError};
pub use self::service::{
    DeletionLimits, Health, Kubernetes, LeaderElection, Level, Limits, LogFormat, Logging, Metrics,
};
pub use self::worker::{
    Image, Placement, PullPolicy, RawObject, Resources, Toleration, TolerationOperator, Worker,
};

/// Everything that can be set. Every key is optional; an empty file is the default configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The worker: the pod that runs the checks on a node.
    pub worker: Worker,
    /// When nodes are looked at and how failed checks are tried again.
    pub reconciliation: Reconciliation,
    /// Which nodes are gated, by what, and what becomes of them.
    pub node_management: NodeManagement,
    /// Startup gates: further taints, each kept on a node until the init pods on that node are ready.
    pub gates: Vec<StartupGate>,
    /// Bounds on what the controller does to a cluster.
    pub limits: Limits,
    /// How one of several controllers becomes the one that acts.
    pub leader_election: LeaderElection,
    /// The Prometheus endpoint.
    pub metrics: Metrics,
    /// The health endpoint.
    pub health: Health,
    /// What is logged and how.
    pub logging: Logging,
    /// How the Kubernetes API is reached.
    pub kubernetes: Kubernetes,
}

impl Config {
    /// Reads a YAML file and reports all problems at once, in file order.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let tree = tree::read(text)?;
        let (config, findings) = check::config(&tree);
        Problems::none_or(config, findings.into_iter().map(|finding| finding.in_file(&tree)))
    }

    /// The names of the gates that must be open before the named one may open, in the order of the file. A startup gate
    /// without `after` waits for the gate listed before it. An unknown gate waits for nothing.
    #[must_use]
    pub fn opens_after(&self, gate: &str) -> Vec<&str> {
        if gate == names::VERIFICATION_GATE {
            return self.node_management.after.iter().map(String::as_str).collect();
        }
        let Some(position) = self.gates.iter().position(|candidate| candidate.name == gate) else {
            return Vec::new();
        };
        match &self.gates[position].after {
            Some(named) => named.iter().map(String::as_str).collect(),
            None => {
                self.gates[..position].last().map(|previous| previous.name.as_str()).into_iter().collect()
            }
        }
    }
}

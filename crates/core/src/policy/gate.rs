//! Gates: the taints that keep a node closed, and the requirements that open it.

use jiff::SignedDuration;

use crate::config::{Config, Selector, StartupGate, Taint};
use crate::names;

/// Taints that keep a node closed until a requirement is met.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    pub name: String,
    pub taints: Vec<Taint>,
    /// Gates that have to be open before this one opens.
    pub after: Vec<String>,
    pub requirement: Requirement,
}

/// What has to hold for a node before a gate opens.
#[derive(Debug, Clone, PartialEq)]
pub enum Requirement {
    /// The checks of the policy pass in a worker on the node.
    Checks,
    /// Pods on the node are ready.
    Pods(PodRequirement),
}

/// Pods that have to be ready on a node. There has to be at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRequirement {
    pub namespaces: Vec<String>,
    pub selector: Selector,
    /// A pod with this annotation set to `true` counts as ready.
    pub ready_annotation: String,
    /// Only the annotation counts, not the readiness of the pod.
    pub annotation_only: bool,
    /// The gate stays closed for at least this long.
    pub minimum_hold: SignedDuration,
    /// The annotation that records on the node when the gate was opened.
    pub completed_annotation: String,
}

impl PodRequirement {
    #[must_use]
    pub fn selects(&self, namespace: &str, labels: &crate::texts::Texts) -> bool {
        self.namespaces.iter().any(|own| own == namespace) && self.selector.matches(labels)
    }
}

/// The gates of the configuration file, the verification gate first.
pub(super) fn all(config: &Config) -> Vec<Gate> {
    let nodes = &config.node_management;
    let checks = Gate {
        name: names::VERIFICATION_GATE.to_owned(),
        taints: nodes.taints.clone(),
        after: nodes.after.clone(),
        requirement: Requirement::Checks,
    };
    let startup = config.gates.iter().map(|gate| {
        let after = config.opens_after(&gate.name).into_iter().map(str::to_owned).collect();
        startup(gate, after)
    });
    std::iter::once(checks).chain(startup).collect()
}

fn startup(gate: &StartupGate, after: Vec<String>) -> Gate {
    Gate {
        name: gate.name.clone(),
        taints: vec![gate.taint.clone()],
        after,
        requirement: Requirement::Pods(PodRequirement {
            namespaces: gate.namespaces.clone(),
            selector: gate.pod_selector.clone(),
            ready_annotation: gate.ready_annotation.clone(),
            annotation_only: gate.annotation_only,
            minimum_hold: SignedDuration::from_secs(gate.minimum_hold_seconds.into()),
            completed_annotation: gate.completed_annotation.clone(),
        }),
    }
}

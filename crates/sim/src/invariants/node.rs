//! What a node is under a configuration, as the monitor sees it.

use knr_core::config::{Config, Taint};
use knr_core::names;
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::NodeView;

/// Returns whether a node is a control plane node or excluded by the configuration.
pub(super) fn is_excluded(node: &NodeView, config: &Config) -> bool {
    let settings = &config.node_management;
    let control_plane = names::CONTROL_PLANE_LABELS.iter().any(|label| node.labels.contains_key(label));
    (control_plane && !settings.include_control_plane)
        || settings.exclude.iter().any(|selector| selector.matches(&node.labels))
}

/// Returns whether the controller manages a node.
pub(super) fn is_managed(node: &NodeView, config: &Config) -> bool {
    !node.leaving
        && !is_excluded(node, config)
        && (is_closed(node, &config.node_management.taints)
            || node.annotations.contains_key(names::STATE_ANNOTATION))
}

pub(super) fn is_paused(node: &NodeView) -> bool {
    node.annotations.get(names::PAUSED_ANNOTATION).is_some_and(|value| value != "false")
}

pub(super) fn our_taints(config: &Config) -> impl Iterator<Item = &Taint> {
    config.node_management.taints.iter().chain(config.gates.iter().map(|gate| &gate.taint))
}

pub(super) fn is_closed(node: &NodeView, taints: &[Taint]) -> bool {
    taints.iter().any(|taint| node.position(taint).is_some())
}

pub(super) fn is_labelled(node: &NodeView, config: &Config) -> bool {
    let label = &config.node_management.verified_label;
    node.labels.get(&label.key) == Some(&label.value)
}

pub(super) fn state_of(node: &NodeView) -> Option<NodeState> {
    let text = node.annotations.get(names::STATE_ANNOTATION)?;
    NodeState::parse(text).filter(|state| state.uid == node.id.uid)
}

/// Returns whether the controller looks after a node, gated or not.
pub(super) fn is_in_scope(node: &NodeView, config: &Config) -> bool {
    !node.leaving && !is_excluded(node, config) && !is_paused(node)
}

/// Returns whether none of the gates is closed.
pub(super) fn is_open(node: &NodeView, config: &Config) -> bool {
    our_taints(config).all(|taint| node.position(taint).is_none())
}

/// Returns whether a node is closed, and was tried or closed again without being verified since.
pub(super) fn is_unproven(node: &NodeView, config: &Config) -> bool {
    let is_proven = |state: &NodeState| {
        state.phase == StatePhase::Verified && state.boot == node.boot && is_labelled(node, config)
    };
    is_closed(node, &config.node_management.taints) && state_of(node).is_some_and(|state| !is_proven(&state))
}

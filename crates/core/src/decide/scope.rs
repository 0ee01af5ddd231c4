//! Which nodes we look after.

use super::subject::Subject;
use crate::names;

/// Whether a node is ours to look after.
pub(super) enum Scope {
    Ours,
    Deleting,
    Paused(String),
    Excluded(String),
}

pub(super) fn of(subject: &Subject<'_>) -> Scope {
    let view = subject.view;
    let settings = &subject.cx.config.node_management;
    if view.leaving {
        return Scope::Deleting;
    }
    if is_control_plane(subject) && !settings.include_control_plane {
        return Scope::Excluded("it is a control plane node".to_owned());
    }
    if let Some(os) = view.labels.get(names::OS_LABEL).filter(|os| *os != names::LINUX) {
        return Scope::Excluded(format!(
            "workers run on Linux only, and the node's operating system is {os}"
        ));
    }
    if let Some(selector) = settings.exclude.iter().find(|selector| selector.matches(&view.labels)) {
        return Scope::Excluded(format!("its labels match the exclusion {selector}"));
    }
    if subject.cx.config.reconciliation.paused {
        return Scope::Paused("reconciliation.paused is set in the configuration".to_owned());
    }
    match view.annotations.get(names::PAUSED_ANNOTATION) {
        Some(value) if value != "false" => {
            Scope::Paused(format!("the node carries the annotation {}", names::PAUSED_ANNOTATION))
        }
        _ => Scope::Ours,
    }
}

pub(super) fn is_control_plane(subject: &Subject<'_>) -> bool {
    names::CONTROL_PLANE_LABELS.iter().any(|label| subject.view.labels.contains_key(label))
}

/// Whether a node may be closed.
pub(super) enum MayClose {
    Yes,
    No(String),
    NotYetKnown(String),
}

/// Karpenter counts pods that wait behind a taint which it does not know to be temporary, and buys nodes for them
/// without end.
pub(super) fn may_close<'t>(
    subject: &Subject<'_>,
    mut taints: impl Iterator<Item = &'t crate::config::Taint>,
) -> MayClose {
    let Some(pool) = subject.view.labels.get(names::KARPENTER_POOL_LABEL) else { return MayClose::Yes };
    let Some(pools) = subject.cx.world.pools() else {
        return MayClose::NotYetKnown(format!("NodePool {pool} has not been read yet"));
    };
    let known = pools.get(pool);
    let unknown = taints.find(|taint| !known.is_some_and(|pool| pool.startup_taints.contains(&taint.key)));
    unknown.map_or(MayClose::Yes, |taint| {
        MayClose::No(format!("NodePool {pool} does not list {} in startupTaints", taint.key))
    })
}

/// Karpenter puts startup taints on again that were taken off before it has registered the node.
pub(super) fn awaits_karpenter(subject: &Subject<'_>) -> bool {
    let labels = &subject.view.labels;
    labels.contains_key(names::KARPENTER_POOL_LABEL)
        && labels.get(names::KARPENTER_REGISTERED_LABEL).is_none_or(|value| value != "true")
}

//! Which nodes the controller manages.

use super::subject::Subject;
use crate::config::Taint;
use crate::explain::{Excluded, KeptOpen, PausedBy};
use crate::names;

pub(super) enum Scope {
    Managed,
    Deleting,
    Paused(PausedBy),
    Excluded(Excluded),
}

pub(super) fn of(subject: &Subject<'_>) -> Scope {
    let (view, policy) = (subject.view, subject.cx.policy);
    if view.leaving {
        return Scope::Deleting;
    }
    if is_control_plane(subject) && !policy.include_control_plane {
        return Scope::Excluded(Excluded::ControlPlane);
    }
    if let Some(os) = view.labels.get(names::OS_LABEL).filter(|os| *os != names::LINUX) {
        return Scope::Excluded(Excluded::OperatingSystem(os.to_owned()));
    }
    if let Some(selector) = policy.exclude.iter().find(|selector| selector.matches(&view.labels)) {
        return Scope::Excluded(Excluded::Labels(selector.to_string()));
    }
    if policy.paused {
        return Scope::Paused(PausedBy::Configuration);
    }
    match view.annotations.get(names::PAUSED_ANNOTATION) {
        Some(value) if value != "false" => Scope::Paused(PausedBy::Annotation),
        _ => Scope::Managed,
    }
}

pub(super) fn is_control_plane(subject: &Subject<'_>) -> bool {
    names::CONTROL_PLANE_LABELS.iter().any(|label| subject.view.labels.contains_key(label))
}

/// Whether a node may be closed.
pub(super) enum MayClose {
    Yes,
    No(KeptOpen),
    NotYetKnown(KeptOpen),
}

/// Karpenter provisions nodes for pods that wait behind a taint unless it knows the taint to be temporary. It would
/// keep doing so without end, so such a taint must not be added.
pub(super) fn may_close(subject: &Subject<'_>, taints: &[Taint]) -> MayClose {
    let Some(pool) = subject.view.labels.get(names::KARPENTER_POOL_LABEL) else { return MayClose::Yes };
    let Some(pools) = subject.cx.world.pools() else {
        return MayClose::NotYetKnown(KeptOpen::PoolUnread { pool: pool.to_owned() });
    };
    let known = pools.get(pool);
    let is_unknown = |taint: &&Taint| !known.is_some_and(|pool| pool.startup_taints.contains(&taint.key));
    taints.iter().find(is_unknown).map_or(MayClose::Yes, |taint| {
        MayClose::No(KeptOpen::NotAStartupTaint { pool: pool.to_owned(), taint: taint.key.clone() })
    })
}

/// Karpenter restores startup taints that were removed before it registered the node.
pub(super) fn awaits_karpenter(subject: &Subject<'_>) -> bool {
    let labels = &subject.view.labels;
    labels.contains_key(names::KARPENTER_POOL_LABEL)
        && labels.get(names::KARPENTER_REGISTERED_LABEL).is_none_or(|value| value != "true")
}

//! Everything that the controller can ever do to a cluster.

use std::fmt;

use crate::ids::{NodeRef, Uid, Version, WorkerRef, short_hash};
use crate::names;
use crate::patch::NodePatch;
use crate::view::{ClaimRef, Condition, ConditionStatus, LedgerEntry, Purpose, Stamp};

/// One write: exactly one call to the API server. Nothing else writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Create a worker. Its name is derived from the node's UID, so there can never be two of them at once.
    StartWorker { stamp: Stamp },
    /// Delete a worker, if it is still the same pod.
    RemoveWorker { node: NodeRef, worker: WorkerRef, why: Removal },
    /// Remove the taint, set the label and record the state, in one patch.
    OpenGate { node: NodeRef, gate: String, patch: NodePatch, event: EventText },
    /// Add the taint, remove the label and record the state, in one patch.
    CloseGate {
        node: NodeRef,
        gate: String,
        /// No node is closed without a reason.
        because: Closing,
        patch: NodePatch,
        event: EventText,
    },
    /// Record the result of a worker without opening or closing a gate.
    Record { node: NodeRef, what: Recorded, patch: NodePatch, event: Option<EventText> },
    /// Show the verdict as a condition of the node.
    SetCondition {
        node: NodeRef,
        condition: Condition,
        /// The status before this write, if the node had the condition.
        before: Option<ConditionStatus>,
        /// The node only waits: the condition has no result, and nothing that an operator has to act on.
        only_waits: bool,
    },
    /// Send an event.
    SendEvent {
        node: NodeRef,
        /// The NodeClaim that the event is about, if it is not about the node itself.
        claim: Option<ClaimRef>,
        event: EventText,
    },
    /// Reserve the deletion of one node, before deleting it.
    ReserveDeletion {
        node: NodeRef,
        /// The version of the ledger that the decision was based on. The write fails if the ledger has changed since.
        version: Version,
        /// The new content of the ledger.
        entries: Vec<LedgerEntry>,
    },
    /// Delete a node, if it has not changed since the decision.
    DeleteNode {
        node: NodeRef,
        /// Its version at the time of the decision. After any later change, the engine has to decide again.
        version: Version,
        /// The NodeClaim to delete instead of the node, so that Karpenter terminates the instance too.
        claim: Option<ClaimRef>,
        event: EventText,
    },
}

/// The result of a worker that neither opens nor closes a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recorded {
    /// The checks failed.
    Failure,
    /// There was no verdict.
    NoVerdict,
    /// The result of a reference run.
    Reference,
}

/// Why a worker is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Removal {
    /// Its node is verified, and no other worker follows.
    Spent,
    /// Its result is recorded, and it may block the next worker, which has the same name.
    Heard,
    /// Its result does not apply to the node as it is now, and another worker is waiting for its name.
    Outdated,
    /// Its node is gone.
    NodeGone,
}

/// Why a node is closed. There is no other reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Closing {
    /// It was verified, had to be verified again, and failed.
    FailedAgain,
    /// It was restarted, and the policy closes restarted nodes.
    Rebooted,
    /// It never had the gate and is idle, and the policy closes such nodes.
    Backfill,
}

/// The content of a Kubernetes event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventText {
    pub reason: EventReason,
    pub message: String,
    /// Whether the event is of type `Warning` rather than `Normal`.
    pub warning: bool,
}

/// The reason of a Kubernetes event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventReason {
    /// The checks passed.
    Verified,
    /// The checks failed.
    VerificationFailed,
    /// Too many runs gave no verdict.
    NoVerdict,
    /// The checks failed, and the cluster rather than the node is to blame.
    ClusterSuspected,
    /// The checks cannot run, and the installation is to blame.
    VerificationBlocked,
    /// The node was deleted.
    NodeDeleted,
    /// A verified node was closed.
    Closed,
    /// Somebody put the taint back on a verified node, and the controller removed it.
    TaintRemovedAgain,
    /// A node that never had a gate was closed.
    Backfilled,
    /// A startup gate opened.
    StartupCompleted,
}

impl EventReason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "Verified",
            Self::VerificationFailed => "VerificationFailed",
            Self::NoVerdict => "NoVerdict",
            Self::ClusterSuspected => "ClusterSuspected",
            Self::VerificationBlocked => "VerificationBlocked",
            Self::NodeDeleted => "NodeDeleted",
            Self::Closed => "Closed",
            Self::TaintRemovedAgain => "TaintRemovedAgain",
            Self::Backfilled => "Backfilled",
            Self::StartupCompleted => "StartupCompleted",
        }
    }
}

impl Action {
    /// The node that this action is about.
    #[must_use]
    pub fn node(&self) -> &NodeRef {
        match self {
            Self::StartWorker { stamp } => &stamp.node,
            Self::RemoveWorker { node, .. }
            | Self::OpenGate { node, .. }
            | Self::CloseGate { node, .. }
            | Self::Record { node, .. }
            | Self::SetCondition { node, .. }
            | Self::SendEvent { node, .. }
            | Self::ReserveDeletion { node, .. }
            | Self::DeleteNode { node, .. } => node,
        }
    }

    /// Returns whether both are the same kind of action on the same node and gate, regardless of the details.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && self.node() == other.node()
            && self.gate() == other.gate()
    }

    fn gate(&self) -> Option<&str> {
        match self {
            Self::OpenGate { gate, .. } | Self::CloseGate { gate, .. } => Some(gate),
            _ => None,
        }
    }

    /// The events to send once this is done. The deletion of a node is also reported on its claim, because the node
    /// itself is soon gone.
    #[must_use]
    pub fn events(&self) -> Vec<Self> {
        let Some(event) = self.event() else { return Vec::new() };
        let event = |claim| Self::SendEvent { node: self.node().clone(), claim, event: event.clone() };
        let claim = match self {
            Self::DeleteNode { claim, .. } => claim.clone(),
            _ => None,
        };
        [event(None)].into_iter().chain(claim.map(|claim| event(Some(claim)))).collect()
    }

    /// Returns whether this is an event that reports the deletion of a node.
    #[must_use]
    pub fn reports_deletion(&self) -> bool {
        matches!(self, Self::SendEvent { event, .. } if event.reason == EventReason::NodeDeleted)
    }

    /// The event that reports this once it is done.
    #[must_use]
    pub fn event(&self) -> Option<&EventText> {
        match self {
            Self::OpenGate { event, .. } | Self::CloseGate { event, .. } | Self::DeleteNode { event, .. } => {
                Some(event)
            }
            Self::Record { event, .. } => event.as_ref(),
            Self::StartWorker { .. }
            | Self::RemoveWorker { .. }
            | Self::SetCondition { .. }
            | Self::SendEvent { .. }
            | Self::ReserveDeletion { .. } => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartWorker { stamp } => {
                let Stamp { node, serial, attempt, purpose, .. } = stamp;
                match purpose {
                    Purpose::Verify => write!(f, "start worker {serial} of {node}, attempt {attempt}"),
                    Purpose::Reference => write!(f, "start worker {serial} of {node} for reference"),
                }
            }
            Self::RemoveWorker { node, why, .. } => write!(f, "remove worker of {node}: {why}"),
            Self::OpenGate { node, gate, .. } => write!(f, "open {gate} of {node}"),
            Self::CloseGate { node, gate, because, .. } => {
                write!(f, "close {gate} of {node}: {because}")
            }
            Self::Record { node, event: Some(event), .. } => write!(f, "record on {node}: {}", event.message),
            Self::Record { node, event: None, .. } => write!(f, "record on {node}"),
            Self::SetCondition { node, condition, .. } => {
                write!(f, "set condition of {node}: {:?} {}", condition.status, condition.reason)
            }
            Self::SendEvent { node, claim: None, event } => write!(f, "report on {node}: {}", event.message),
            Self::SendEvent { node, claim: Some(claim), event } => {
                write!(f, "report on {node} on its claim {}: {}", claim.name, event.message)
            }
            Self::ReserveDeletion { node, .. } => write!(f, "reserve the deletion of {node}"),
            Self::DeleteNode { node, claim: None, .. } => write!(f, "delete {node}"),
            Self::DeleteNode { node, claim: Some(claim), .. } => {
                write!(f, "delete {node} by its claim {}", claim.name)
            }
        }
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spent | Self::Heard => "it is no longer needed",
            Self::Outdated => "its result is not about the node as it is now",
            Self::NodeGone => "its node is gone",
        })
    }
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FailedAgain => "failed when verified again",
            Self::Rebooted => "restarted",
            Self::Backfill => "never had the gate and is idle",
        })
    }
}

/// The name of the worker of a node. It does not contain the node's name, which can have up to 253 characters.
#[must_use]
pub fn worker_name(node: &Uid) -> String {
    format!("{}{:016x}", names::WORKER_PREFIX, short_hash(node.as_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_reported_on_the_node_and_on_its_claim() {
        let event =
            EventText { reason: EventReason::NodeDeleted, message: "deleted".to_owned(), warning: true };
        let node = NodeRef { name: "n1".into(), uid: "u1".into() };
        let deletion = |claim| {
            let (node, event) = (node.clone(), event.clone());
            Action::DeleteNode { node, version: Version(1), claim, event }
        };
        let claim = Some(ClaimRef { name: "c1".into(), uid: "cu".into() });
        let event = |claim| Action::SendEvent { node: node.clone(), claim, event: event.clone() };
        assert_eq!(deletion(claim.clone()).events(), [event(None), event(claim)]);
        assert_eq!(deletion(None).events(), [event(None)]);
        assert!(event(None).events().is_empty());
    }

    #[test]
    fn the_name_of_a_worker_depends_on_the_uid_alone() {
        let name = worker_name(&"0c9f0a3e-7c0d-4a0e-9e55-4f4f4e1b6a11".into());
        assert_eq!(name, worker_name(&"0c9f0a3e-7c0d-4a0e-9e55-4f4f4e1b6a11".into()));
        assert_ne!(name, worker_name(&"0c9f0a3e-7c0d-4a0e-9e55-4f4f4e1b6a12".into()));
        assert_eq!(name, "node-ready-worker-257e14276a87d4a2", "other releases must derive the same name");
    }
}

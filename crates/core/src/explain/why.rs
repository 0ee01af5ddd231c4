//! Every reason that an explanation can give.

use std::borrow::Cow;

use super::Reason;
use crate::fault::{Blame, WorkerFailure};
use crate::ids::NodeName;
use crate::view::Waiting;

/// The main reason for the status of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    Gone,
    Deleting,
    Paused(PausedBy),
    Excluded {
        by: Excluded,
        /// It carries a gate taint, which the controller does not remove.
        is_closed: bool,
    },
    LeftAlone(LeftAlone),
    /// Open although it failed.
    FailedOpen {
        reason: String,
        because: Option<LeftAlone>,
    },
    NeverGated(NeverGated),
    Verified {
        /// The attempt that passed, if the controller knows it.
        attempt: Option<u32>,
    },
    /// Verified, and the taint was put back by somebody else.
    TaintCameBack,
    /// Closed because it was restarted.
    Rebooted,
    LastResult(LastResult),
    Wait(Wait),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PausedBy {
    Configuration,
    Annotation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excluded {
    ControlPlane,
    OperatingSystem(String),
    /// The selector that matches.
    Labels(String),
}

/// Why an open node is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftAlone {
    TaintRemoved,
    VerifiedBefore,
}

/// What happens to a node that never had the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NeverGated {
    Left,
    Kept(KeptOpen),
    Busy { pod: String },
    Closing,
}

/// Why a node must not be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptOpen {
    PoolUnread {
        pool: String,
    },
    NotAStartupTaint {
        pool: String,
        taint: String,
    },
    Trouble(Trouble),
    /// Many nodes are closed and unproven already.
    ManyClosed {
        closed: usize,
        of: usize,
    },
}

/// Why an open node has to prove itself again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbationReason {
    Rebooted,
    LabelRemoved,
    ChecksFailed,
    NoVerdict,
    FailedOpen,
    NoTaint,
    NeverGated,
}

/// The last recorded result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastResult {
    /// The check and the kind of failure as one word: `DnsTimeout`.
    pub cause: String,
    pub reason: String,
    pub failed: Option<Attempt>,
    /// The latest run, if it cost no attempt.
    pub run: Option<FreeRun>,
    /// Set if the node counts as failed: an operator can request an immediate attempt.
    pub retry: Option<NodeName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub number: u32,
    pub of: u32,
}

/// A run that cost no attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeRun {
    pub number: u32,
    pub kind: RunKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    /// The cluster is at fault.
    Cluster,
    /// The installation is at fault.
    Blocked,
    NoVerdict,
    /// No verdict, too many times in a row.
    OutOfRuns,
}

/// What verification waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    OutdatedWorker,
    RefusedWorker(String),
    Ready,
    /// For an API server that can create the worker.
    ApiServer,
    /// Another pod has the name of the worker, which is this.
    NameTaken(String),
    Slot,
    Worker {
        attempt: Attempt,
        stage: WorkerStage,
    },
    LastLook,
    WorkerEnd,
    Registration,
    Gate(String),
    Opening,
    Pool,
    /// The checks failed. A reference run shows whose fault that is.
    Reference,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerStage {
    NodeNotReady,
    Pending { waiting: Option<Waiting>, failure: WorkerFailure },
    Running,
}

/// A closed gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedGate {
    pub gate: String,
    pub wait: GateWait,
}

/// What a closed gate waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateWait {
    /// The checks: the rest of the explanation is about them.
    Checks,
    Gate(String),
    Registration,
    Pod {
        namespace: String,
        name: String,
    },
    /// Any pod that matches this selector.
    AnyPod(String),
    MinimumHold,
    /// The status of the pods may still predate the last restart of the node.
    RestartedPods,
    Opening,
    /// The API server refused to open it, and said why.
    Refused(String),
}

/// Additional remarks on the explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    NotDeleted(NotDeleted),
    DeletionReserved,
    Deleting,
    Refused {
        order: String,
        why: String,
    },
    Contradicted {
        order: String,
    },
    DryRun {
        order: String,
    },
    /// The last result of a node that is paused.
    LastResult(LastResult),
}

/// Why a failed node is not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDeleted {
    ControlPlane,
    NoVerdict,
    Trouble(Trouble),
    TriedFirst,
    LedgerUnread,
    /// Another deletion is being reserved.
    Reserving,
    /// The remaining budget is taken by the final attempts of other nodes.
    OthersFirst,
    Budget {
        used: usize,
        allowed: usize,
    },
    ReferenceFirst,
    ReferenceAgain,
}

/// Why the cluster rather than a node is suspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    ManyFail { failing: usize, managed: usize },
    ReferenceFailed,
}

impl Why {
    /// The reason as one word, for the condition of a node without a verdict.
    #[must_use]
    pub fn word(&self) -> Cow<'static, str> {
        match self {
            Self::LastResult(result) => Cow::Owned(result.cause.clone()),
            Self::Wait(wait) => Cow::Borrowed(wait.word()),
            Self::Paused(_) => Cow::Borrowed(Reason::Paused.word()),
            Self::Gone
            | Self::Deleting
            | Self::Excluded { .. }
            | Self::LeftAlone(_)
            | Self::FailedOpen { .. }
            | Self::NeverGated(_)
            | Self::Verified { .. }
            | Self::TaintCameBack
            | Self::Rebooted => Cow::Borrowed(Reason::Unverified.word()),
        }
    }
}

impl Wait {
    /// The fault of the installation that verification waits for: nothing changes until somebody acts.
    pub(super) fn installation_fault(&self) -> Option<WorkerFailure> {
        match self {
            Self::RefusedWorker(_) => Some(WorkerFailure::Refused),
            Self::Worker { stage: WorkerStage::Pending { failure, .. }, .. } => {
                Some(*failure).filter(|failure| failure.blame() == Blame::Installation)
            }
            _ => None,
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::OutdatedWorker => Reason::WorkerOutdated.word(),
            Self::RefusedWorker(_) => WorkerFailure::Refused.word(),
            Self::Ready | Self::Worker { stage: WorkerStage::NodeNotReady, .. } => {
                Reason::WaitingForReady.word()
            }
            Self::Slot => Reason::WaitingForSlot.word(),
            Self::ApiServer => Reason::ApiUnavailable.word(),
            Self::NameTaken(_) => Reason::NameTaken.word(),
            Self::Worker { stage: WorkerStage::Pending { failure, .. }, .. } => failure.word(),
            Self::Worker { stage: WorkerStage::Running, .. } | Self::LastLook | Self::Reference => {
                Reason::Verifying.word()
            }
            Self::Opening => Reason::Opening.word(),
            Self::WorkerEnd => WorkerFailure::NotEnded.word(),
            Self::Registration | Self::Pool => Reason::WaitingForKarpenter.word(),
            Self::Gate(_) => Reason::WaitingForGate.word(),
        }
    }
}

impl ClosedGate {
    /// The API server refused to open it.
    pub(crate) const fn is_refused(&self) -> bool {
        matches!(self.wait, GateWait::Refused(_))
    }
}

impl GateWait {
    pub(super) const fn reason(&self) -> Reason {
        match self {
            Self::Checks => Reason::Unverified,
            Self::Gate(_) => Reason::WaitingForGate,
            Self::Registration => Reason::WaitingForKarpenter,
            Self::Pod { .. } | Self::AnyPod(_) | Self::RestartedPods => Reason::WaitingForInitPods,
            Self::MinimumHold => Reason::MinimumHold,
            Self::Opening => Reason::Opening,
            Self::Refused(_) => Reason::WriteRefused,
        }
    }
}

impl From<Wait> for Why {
    fn from(wait: Wait) -> Self {
        Self::Wait(wait)
    }
}

impl From<LastResult> for Why {
    fn from(result: LastResult) -> Self {
        Self::LastResult(result)
    }
}

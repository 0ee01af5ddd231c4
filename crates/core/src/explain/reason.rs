//! The condition reasons of a node without a verdict.

/// Why a node has no verdict, as the reason of its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    WaitingForReady,
    WaitingForSlot,
    ApiUnavailable,
    NameTaken,
    WaitingForKarpenter,
    WaitingForGate,
    WaitingForInitPods,
    MinimumHold,
    Verifying,
    WorkerOutdated,
    Opening,
    WriteRefused,
    Paused,
    Unverified,
}

impl Reason {
    pub const ALL: [Self; 14] = [
        Self::WaitingForReady,
        Self::WaitingForSlot,
        Self::ApiUnavailable,
        Self::NameTaken,
        Self::WaitingForKarpenter,
        Self::WaitingForGate,
        Self::WaitingForInitPods,
        Self::MinimumHold,
        Self::Verifying,
        Self::WorkerOutdated,
        Self::Opening,
        Self::WriteRefused,
        Self::Paused,
        Self::Unverified,
    ];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::WaitingForReady => "WaitingForReady",
            Self::WaitingForSlot => "WaitingForSlot",
            Self::ApiUnavailable => "ApiUnavailable",
            Self::NameTaken => "NameTaken",
            Self::WaitingForKarpenter => "WaitingForKarpenter",
            Self::WaitingForGate => "WaitingForGate",
            Self::WaitingForInitPods => "WaitingForInitPods",
            Self::MinimumHold => "MinimumHold",
            Self::Verifying => "Verifying",
            Self::WorkerOutdated => "WorkerOutdated",
            Self::Opening => "Opening",
            Self::WriteRefused => "WriteRefused",
            Self::Paused => "Paused",
            Self::Unverified => "Unverified",
        }
    }

    /// The meaning of the reason, and where to look if the node waits for long.
    #[must_use]
    pub const fn meaning(self) -> (&'static str, &'static str) {
        match self {
            Self::WaitingForReady => {
                ("The node is not Ready yet.", "the kubelet and the CNI plugin of the node")
            }
            Self::WaitingForSlot => (
                "All worker slots are in use.",
                "`limits.maxConcurrentWorkers`, and why other workers take so long",
            ),
            Self::ApiUnavailable => (
                "The API server could not create the worker: it is overloaded or out of reach (429, 503).",
                "the load and the log of the API server; the controller tries again by itself",
            ),
            Self::NameTaken => (
                "The worker could not be created several times in a row, because a pod has its name.",
                "the pod that the message names: if it is not a worker, delete it",
            ),
            Self::WaitingForKarpenter => (
                "Karpenter has not registered the node yet, or its NodePool has not been read.",
                "Karpenter's log, and the NodeClaim of the node",
            ),
            Self::WaitingForGate => {
                ("Another gate has to open first.", "the gates of the configuration, and the message")
            }
            Self::WaitingForInitPods => (
                "An init pod of a startup gate is missing, or not ready.",
                "the pod that the message names, or the DaemonSet that should create it",
            ),
            Self::MinimumHold => {
                ("A startup gate is held for `minimumHoldSeconds`.", "nothing: it opens by itself")
            }
            Self::Verifying => ("The worker runs the checks.", "the worker's log"),
            Self::WorkerOutdated => {
                ("A worker from before a change is removed first.", "the kubelet, if the worker stays")
            }
            Self::Opening => (
                "Everything is met, and the gate is about to open.",
                "the controller's log, if it stays closed",
            ),
            Self::WriteRefused => (
                "The API server refuses to change the node.",
                "the message: an admission policy, a webhook, or missing permissions",
            ),
            Self::Paused => (
                "An operator has paused the node.",
                "the annotation `node-ready/paused`: the controller goes on when it is removed",
            ),
            Self::Unverified => (
                "The node has not been verified. If it is open, the controller leaves it alone.",
                "the message",
            ),
        }
    }
}

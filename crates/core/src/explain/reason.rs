//! The reasons of the condition of a node that carries no verdict.

/// Why a node carries no verdict, as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    WaitingForReady,
    WaitingForSlot,
    WaitingForKarpenter,
    WaitingForGate,
    WaitingForInitPods,
    MinimumHold,
    Verifying,
    WorkerOutdated,
    Opening,
    WriteRefused,
    Unverified,
}

impl Reason {
    pub const ALL: [Self; 11] = [
        Self::WaitingForReady,
        Self::WaitingForSlot,
        Self::WaitingForKarpenter,
        Self::WaitingForGate,
        Self::WaitingForInitPods,
        Self::MinimumHold,
        Self::Verifying,
        Self::WorkerOutdated,
        Self::Opening,
        Self::WriteRefused,
        Self::Unverified,
    ];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::WaitingForReady => "WaitingForReady",
            Self::WaitingForSlot => "WaitingForSlot",
            Self::WaitingForKarpenter => "WaitingForKarpenter",
            Self::WaitingForGate => "WaitingForGate",
            Self::WaitingForInitPods => "WaitingForInitPods",
            Self::MinimumHold => "MinimumHold",
            Self::Verifying => "Verifying",
            Self::WorkerOutdated => "WorkerOutdated",
            Self::Opening => "Opening",
            Self::WriteRefused => "WriteRefused",
            Self::Unverified => "Unverified",
        }
    }

    /// What the node waits for, and what to look at if it waits for long.
    #[must_use]
    pub const fn meaning(self) -> (&'static str, &'static str) {
        match self {
            Self::WaitingForReady => {
                ("The node is not Ready yet.", "the kubelet and the CNI plugin of the node")
            }
            Self::WaitingForSlot => (
                "As many workers run as may run at once.",
                "`limits.maxConcurrentWorkers`, and why other workers take so long",
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
            Self::Unverified => (
                "The node has not been verified. If it is open, the controller leaves it alone.",
                "the message",
            ),
        }
    }
}

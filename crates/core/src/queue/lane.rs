//! Kinds of writes, by how much depends on them.

use jiff::SignedDuration;

use crate::action::{Action, Removal};
use crate::view::ConditionStatus;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Opens or closes a node.
    Gate,
    /// An event that reports the deletion of a node. It is never dropped under load.
    Deletion,
    /// Leads to the next step in the life of a node.
    Step,
    /// Shows on the node why it is not verified: a result, or something that an operator has to act on. There may be one
    /// for each closed node at the same time.
    Unverified,
    /// Shows on the node what it waits for. It may open before that.
    Waiting,
    /// Shows on the node that it was verified.
    Verified,
    /// Removes a worker that nothing waits for.
    Removal,
    /// An event.
    Event,
}

impl Lane {
    pub(super) fn of(action: &Action) -> Self {
        match action {
            Action::OpenGate { .. } | Action::CloseGate { .. } => Self::Gate,
            Action::StartWorker { .. }
            | Action::Record { .. }
            | Action::ReserveDeletion { .. }
            | Action::DeleteNode { .. }
            | Action::RemoveWorker { why: Removal::Heard | Removal::Outdated | Removal::NodeGone, .. } => {
                Self::Step
            }
            Action::SetCondition { only_waits: true, .. } => Self::Waiting,
            Action::SetCondition { condition, .. } => match condition.status {
                ConditionStatus::True => Self::Verified,
                ConditionStatus::False | ConditionStatus::Unknown => Self::Unverified,
            },
            Action::RemoveWorker { why: Removal::Spent, .. } => Self::Removal,
            Action::SendEvent { .. } if action.reports_deletion() => Self::Deletion,
            Action::SendEvent { .. } => Self::Event,
        }
    }

    pub(super) const fn is_foreground(self) -> bool {
        matches!(self, Self::Gate | Self::Deletion | Self::Step)
    }

    /// How long a write gives way to gates and steps. A condition that says why a node is not verified may be sent
    /// before that, while no gate or step waits. Nothing needs the slot that a worker occupies after its end, so
    /// its removal waits longest.
    pub(super) const fn yields_for(self) -> SignedDuration {
        match self {
            Self::Gate | Self::Deletion | Self::Step => SignedDuration::ZERO,
            Self::Unverified | Self::Waiting | Self::Verified | Self::Event => SignedDuration::from_secs(20),
            Self::Removal => SignedDuration::from_mins(1),
        }
    }
}

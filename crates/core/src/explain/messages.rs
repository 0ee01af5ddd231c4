//! Sentences that outlive a decision: messages of events, and reasons that are recorded on the node.

use std::fmt::{self, Display, Formatter};

use jiff::SignedDuration;

use super::{Attempt, Trouble, Why, WorkerStage, seconds};
use crate::ids::NodeName;

/// What an event reports, where that is not the explanation itself.
pub(crate) enum Message<'a> {
    /// A taint that was put back on a verified node is removed again.
    TaintRemovedAgain,
    StartupCompleted {
        gate: &'a str,
    },
    Backfilled {
        gate: &'a str,
    },
    Closed(&'a Why),
    Deleted {
        attempt: Attempt,
        reason: &'a str,
        /// The node on which the checks passed in between.
        passed_on: Option<&'a NodeName>,
    },
}

impl Display for Message<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::TaintRemovedAgain => {
                f.write_str("open: the node is verified, and its taint had been put back")
            }
            Self::StartupCompleted { gate } => write!(f, "gate {gate} opens: all its init pods are ready"),
            Self::Backfilled { gate } => {
                write!(f, "gate {gate} is closed: the node never had it and is idle")
            }
            Self::Closed(why) => write!(f, "closed: {why}"),
            Self::Deleted { attempt, reason, passed_on } => {
                write!(f, "deleted: {attempt} failed: {reason}")?;
                passed_on.map_or(Ok(()), |node| write!(f, "; the same checks passed on {node}"))
            }
        }
    }
}

/// What is added to the reason of a failure when it is recorded.
pub(crate) enum Remark<'a> {
    NoReference,
    Trouble(&'a Trouble),
    StaysOpen(&'a dyn Display),
    MayNotClose(&'a dyn Display),
}

impl Remark<'_> {
    /// Adds the remark to a reason.
    pub(crate) fn on(&self, reason: &str) -> String {
        match self {
            Self::NoReference => format!("{reason}; no verified node shows whose fault it is"),
            Self::Trouble(trouble) => format!("{reason}; {trouble}"),
            Self::StaysOpen(why) => format!("{reason}; it stays open: {why}"),
            Self::MayNotClose(why) => format!("{reason}; {why}"),
        }
    }
}

/// Why a run failed or gave no verdict, where no report of a worker says so.
pub(crate) enum WithoutReport<'a> {
    NotEnded { after: SignedDuration },
    TimedOut { stage: &'a WorkerStage, after: SignedDuration },
    Vanished,
    RanElsewhere,
}

impl Display for WithoutReport<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEnded { after } => {
                write!(f, "after {} a worker that was deleted is still there", seconds(*after))
            }
            Self::TimedOut { stage, after } => write!(f, "after {} {stage}", seconds(*after)),
            Self::Vanished => f.write_str("the worker vanished"),
            Self::RanElsewhere => f.write_str("the worker did not run on this node"),
        }
    }
}

//! Renders explanations as sentences.

use std::fmt::{self, Display, Formatter};

use jiff::Timestamp;

use super::{
    Access, Attempt, ClosedGate, Excluded, Explanation, FreeRun, GateWait, KeptOpen, LastResult, LeftAlone,
    NeverGated, NotDeleted, Note, PausedBy, Phase, ProbationReason, RunKind, Trouble, Wait, Why, WorkerStage,
    seconds,
};
use crate::names;

const NEXT_ATTEMPT: &str = "; next try at ";

impl Explanation {
    /// The sentence for a reader now: the next attempt is given as a duration.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> String {
        let next = self.next_attempt.map(|at| format!("; next try in {}", seconds(at.duration_since(now))));
        format!("{}: {}{}", self.access, Reasons(self), next.unwrap_or_default())
    }

    /// Returns whether a message says the same. The time of the next attempt does not matter, nor what others reword
    /// over and over: why a kubelet does not start a container, and which pod keeps a node busy.
    pub(crate) fn is_said_by(&self, message: &str) -> bool {
        match self.why {
            Why::Wait(Wait::Worker { .. }) | Why::NeverGated(NeverGated::Busy { .. }) => true,
            _ => {
                let said = format!("{}: {}", self.access, Reasons(self));
                let rest = message.strip_prefix(&said);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(NEXT_ATTEMPT))
            }
        }
    }
}

/// The sentence for a reader at any later time: the next attempt is given as a timestamp.
impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.access, Reasons(self))?;
        match self.next_attempt {
            None => Ok(()),
            Some(at) => {
                write!(f, "{NEXT_ATTEMPT}{}", Timestamp::from_second(at.as_second()).unwrap_or(at))
            }
        }
    }
}

/// The sentence without the leading access and the next attempt.
struct Reasons<'a>(&'a Explanation);

impl Display for Reasons<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Explanation { phase, probation, why, gates, notes, .. } = self.0;
        let mut closed = gates.iter().filter(|closed| closed.wait != GateWait::Checks).peekable();
        // A node that the controller does not verify is closed only by its other gates.
        if *phase == Phase::OutOfScope
            && let Some(first) = closed.next_if(|_| true)
        {
            write!(f, "{first}")?;
        } else {
            if let Some(probation) = probation {
                write!(f, "{probation}; ")?;
            }
            write!(f, "{why}")?;
        }
        closed.try_for_each(|closed| write!(f, "; {closed}"))?;
        notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

impl Display for Access {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Closed => "closed",
        })
    }
}

impl Display for Phase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfScope => "out-of-scope",
            Self::Unverified => "unverified",
            Self::Pending => "pending",
            Self::InProgress => "in-progress",
            Self::Verified => "verified",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
        })
    }
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the node is not there"),
            Self::Deleting => f.write_str("the node is being deleted"),
            Self::Paused(by) => write!(f, "paused: {by}"),
            Self::Excluded { by, is_closed: false } => write!(f, "left alone: {by}"),
            Self::Excluded { by, is_closed: true } => {
                write!(f, "left alone: {by}; it still carries a gate taint, which is yours to remove")
            }
            Self::LeftAlone(why) => write!(f, "left alone: {why}"),
            Self::FailedOpen { reason, because: None } => {
                write!(f, "left alone although it failed: {reason}")
            }
            Self::FailedOpen { reason, because: Some(why) } => {
                write!(f, "left alone although it failed: {reason}; {why}")
            }
            Self::NeverGated(what) => write!(f, "left alone: it never had the gate{what}"),
            Self::Verified { attempt: None } => f.write_str("verified"),
            Self::Verified { attempt: Some(attempt) } => write!(f, "verified on attempt {attempt}"),
            Self::TaintCameBack => f.write_str("verified, but its taint was put back; it is removed again"),
            Self::Rebooted => f.write_str("the node was restarted and has to be verified again"),
            Self::LastResult(result) => write!(f, "{result}"),
            Self::Wait(wait) => write!(f, "{wait}"),
        }
    }
}

impl Display for PausedBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("reconciliation.paused is set in the configuration"),
            Self::Annotation => write!(f, "the node carries the annotation {}", names::PAUSED_ANNOTATION),
        }
    }
}

impl Display for Excluded {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlPlane => f.write_str("it is a control plane node"),
            Self::OperatingSystem(os) => {
                write!(f, "workers run on Linux only, and the node's operating system is {os}")
            }
            Self::Labels(selector) => write!(f, "its labels match the exclusion {selector}"),
        }
    }
}

impl Display for LeftAlone {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TaintRemoved => "someone else removed the taint",
            Self::VerifiedBefore => "it was verified before the controller saw it",
        })
    }
}

impl Display for NeverGated {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => Ok(()),
            Self::Kept(why) => write!(f, ", and {why}"),
            Self::Busy { pod } => write!(f, ", and {pod} runs there"),
            Self::Closing => f.write_str(", and is closed now"),
        }
    }
}

impl Display for KeptOpen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolUnread { pool } => write!(f, "NodePool {pool} has not been read yet"),
            Self::NotAStartupTaint { pool, taint } => {
                write!(f, "NodePool {pool} does not list {taint} in startupTaints")
            }
            Self::Trouble(trouble) => write!(f, "{trouble}"),
            Self::ManyClosed { closed, of } => {
                write!(f, "{closed} of {of} nodes are closed and have to open first")
            }
        }
    }
}

impl Display for ProbationReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rebooted => "the node was restarted",
            Self::LabelRemoved => "the verified label was removed",
            Self::ChecksFailed => "the checks failed again and again",
            Self::NoVerdict => "the last run gave no verdict",
            Self::FailedOpen => "it failed and was not closed",
            Self::NoTaint => "it carries no gate taint",
            Self::NeverGated => "it never had the gate",
        })
    }
}

impl Display for LastResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let reason = &self.reason;
        match (&self.failed, &self.run) {
            (None, None) => f.write_str(reason)?,
            (Some(attempt), None) => write!(f, "{attempt} failed: {reason}")?,
            (None, Some(run)) => write!(f, "{run}: {reason}")?,
            (Some(attempt), Some(run)) => write!(f, "{attempt} failed, then {run}: {reason}")?,
        }
        match &self.retry {
            None => Ok(()),
            Some(node) => {
                let annotation = names::RETRY_ANNOTATION;
                write!(f, "; to try again at once: kubectl annotate node {node} {annotation}=now")
            }
        }
    }
}

/// A node that counts as failed is tried beyond its maximum number of attempts.
impl Display for Attempt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { number, of } = self;
        if number > of { write!(f, "attempt {number}") } else { write!(f, "attempt {number} of {of}") }
    }
}

impl Display for FreeRun {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let number = self.number;
        match self.kind {
            RunKind::Cluster => write!(f, "run {number} failed by no fault of the node"),
            RunKind::Blocked => f.write_str("verification is blocked"),
            RunKind::NoVerdict => write!(f, "run {number} gave no verdict"),
            RunKind::OutOfRuns => write!(f, "no verdict in {number} runs"),
        }
    }
}

impl Display for Wait {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutdatedWorker => f.write_str("an earlier worker is removed first"),
            Self::RefusedWorker(why) => write!(f, "the API server refused the worker: {why}"),
            Self::Ready => f.write_str("waiting for the node to be Ready"),
            Self::ApiServer => {
                f.write_str("the API server is overloaded or unavailable, so the worker could not be created")
            }
            Self::NameTaken(name) => write!(
                f,
                "the worker could not be created several times in a row: another pod may have its name, {name}"
            ),
            Self::Slot => f.write_str("waiting for a free verification slot"),
            Self::Worker { attempt, stage } => write!(f, "{attempt}: {stage}"),
            Self::LastLook => f.write_str("the worker has had its time; its result is read once more"),
            Self::WorkerEnd => f.write_str("a worker that is being deleted has to be gone first"),
            Self::Registration => f.write_str("the checks passed; Karpenter has not registered the node yet"),
            Self::Gate(gate) => write!(f, "the checks passed; gate {gate} has to open first"),
            Self::Opening => f.write_str("the checks passed; the gate opens"),
            Self::Reference => {
                f.write_str("the checks failed; a reference run on a verified node shows whose fault it is")
            }
            Self::Pool => f.write_str(
                "the checks failed; whether the node may be closed is known once its NodePool is read",
            ),
        }
    }
}

impl Display for WorkerStage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeNotReady => f.write_str("waiting for the node to be Ready"),
            Self::Pending { waiting: None, .. } => f.write_str("the worker is not running yet"),
            Self::Pending { waiting: Some(waiting), .. } => {
                write!(f, "the worker is not running yet: {waiting}")
            }
            Self::Running => f.write_str("the worker runs the checks"),
        }
    }
}

impl Display for ClosedGate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "gate {} {}", self.gate, self.wait)
    }
}

impl Display for GateWait {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checks => f.write_str("waits for the checks to pass"),
            Self::Gate(gate) => write!(f, "waits for gate {gate} to open"),
            Self::Registration => f.write_str("waits for Karpenter to register the node"),
            Self::Pod { namespace, name } => write!(f, "waits for pod {namespace}/{name} to be ready"),
            Self::AnyPod(selector) => write!(f, "waits for an init pod ({selector}) on the node"),
            Self::MinimumHold => f.write_str("is held for its minimum time"),
            Self::RestartedPods => {
                f.write_str("waits to be sure that its pods were started after the last restart of the node")
            }
            Self::Opening => f.write_str("opens"),
            Self::Refused(why) => write!(f, "stays closed: the API server refused to open it: {why}"),
        }
    }
}

impl Display for Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDeleted(why) => write!(f, "not deleted: {why}"),
            Self::DeletionReserved => f.write_str("its deletion is being reserved"),
            Self::Deleting => f.write_str("its deletion is under way"),
            Self::Refused { order, why } => write!(f, "the API server refused to {order}: {why}"),
            Self::Contradicted { order } => {
                write!(f, "could not {order}: the node was not as last seen, several times in a row")
            }
            Self::DryRun { order } => write!(f, "dry run, would {order}"),
            Self::LastResult(result) => write!(f, "last result: {result}"),
        }
    }
}

impl Display for NotDeleted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlPlane => f.write_str("it is a control plane node"),
            Self::NoVerdict => f.write_str("there was no verdict, so it may not be its own fault"),
            Self::Trouble(trouble) => write!(f, "{trouble}"),
            Self::TriedFirst => f.write_str("it is tried again first, since the cluster was in trouble"),
            Self::LedgerUnread => f.write_str("the ledger of deletions could not be read yet"),
            Self::Reserving => f.write_str("another deletion is being reserved"),
            Self::OthersFirst => f.write_str("other nodes have their final attempt first"),
            Self::Budget { used, allowed } => {
                write!(f, "{used} of {allowed} deletions in an hour are used up")
            }
            Self::ReferenceFirst => f.write_str("first the checks are run on a verified node"),
            Self::ReferenceAgain => f.write_str("first the checks are run on a verified node once more"),
        }
    }
}

impl Display for Trouble {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManyFail { failing, managed } => {
                write!(f, "{failing} of {managed} nodes fail at once, the cluster itself is suspected")
            }
            Self::ReferenceFailed => {
                f.write_str("the checks fail on a verified node too, the cluster itself is suspected")
            }
        }
    }
}

#[cfg(test)]
mod tests;

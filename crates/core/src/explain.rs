//! Why a node is open or closed, as data. Logs, events, the condition and the command line show the same sentence. Only
//! the module [`text`](self) renders it.

mod messages;
mod reason;
mod text;
mod why;

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use crate::fault::{self, WorkerFailure};
pub(crate) use messages::{Message, Remark, WithoutReport};
pub use reason::Reason;
pub use why::{
    Attempt, ClosedGate, Excluded, FreeRun, GateWait, KeptOpen, LastResult, LeftAlone, NeverGated,
    NotDeleted, Note, PausedBy, ProbationReason, RunKind, Trouble, Wait, Why, WorkerStage,
};

/// The status of a node, and the reasons for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub phase: Phase,
    pub access: Access,
    /// Why an open node has to prove itself again, if it is on probation.
    pub probation: Option<ProbationReason>,
    pub why: Why,
    /// Gates that are closed, and what each of them waits for.
    pub gates: Vec<ClosedGate>,
    pub notes: Vec<Note>,
    pub next_attempt: Option<Timestamp>,
}

/// The phases in the life of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not managed by the controller.
    OutOfScope,
    /// To be verified; there is no worker yet.
    Unverified,
    /// Its worker is not running yet.
    Pending,
    /// Its worker runs the checks.
    InProgress,
    Verified,
    Failed,
    Deleting,
}

/// Whether the gates of a node allow workloads to be scheduled to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Open,
    Closed,
}

impl Explanation {
    #[must_use]
    pub fn new(phase: Phase, access: Access, why: impl Into<Why>) -> Self {
        Self {
            phase,
            access,
            probation: None,
            why: why.into(),
            gates: Vec::new(),
            notes: Vec::new(),
            next_attempt: None,
        }
    }

    #[must_use]
    pub fn on_probation(mut self, probation: Option<ProbationReason>) -> Self {
        self.probation = probation;
        self
    }

    #[must_use]
    pub fn tried_again_at(mut self, at: Timestamp) -> Self {
        self.next_attempt = Some(at);
        self
    }

    /// The reason as one word, for the condition. If other gates but not the verification gate keep the node closed,
    /// this is the reason of the first of them. What nobody but an operator can change comes before everything else.
    #[must_use]
    pub fn word(&self) -> Cow<'static, str> {
        let waits_for_checks = self.gates.iter().any(|closed| closed.wait == GateWait::Checks);
        let is_about_gates = !waits_for_checks && self.probation.is_none();
        let refused = self.gates.iter().find(|closed| closed.is_refused());
        match refused.or(self.gates.first().filter(|_| is_about_gates)) {
            Some(closed) if !self.is_blocked() => Cow::Borrowed(closed.wait.reason().word()),
            _ => self.why.word(),
        }
    }

    /// Verification waits for something that is the fault of the installation.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(&self.why, Why::Wait(wait) if wait.installation_fault().is_some())
    }

    /// Nothing changes until somebody acts: the installation is at fault, or the API server refuses a write.
    pub(crate) fn is_urgent(&self) -> bool {
        self.is_blocked()
            || self.gates.iter().any(ClosedGate::is_refused)
            || self.notes.iter().any(|note| matches!(note, Note::Refused { .. }))
    }

    /// The fault of the installation that keeps the node from being verified, as one word.
    #[must_use]
    pub fn installation_fault(&self) -> Option<&'static str> {
        let is_blocked = |run: FreeRun| run.kind == RunKind::Blocked;
        match &self.why {
            Why::Wait(wait) => wait.installation_fault().map(WorkerFailure::word),
            Why::LastResult(result) if result.run.is_some_and(is_blocked) => {
                fault::installation_fault(&result.cause)
            }
            _ => None,
        }
    }
}

/// Adds a duration to a timestamp. Saturates, because timestamps from other writers may be near the maximum.
#[must_use]
pub fn later(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// Renders a duration for humans, rounded up to whole seconds and never negative.
#[must_use]
pub fn seconds(span: SignedDuration) -> String {
    let whole = span.as_secs() + i64::from(span.subsec_nanos() > 0);
    match whole.max(0) {
        short @ 0..120 => format!("{short} s"),
        long @ 120..7200 => format!("{} min", long.div_euclid(60)),
        longer => format!("{} h", longer.div_euclid(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installation_is_at_fault_if_it_is_to_blame_and_not_by_the_look_of_a_cause() {
        let explained = |why: Why| Explanation::new(Phase::Pending, Access::Closed, why);
        let run = |kind| Some(FreeRun { number: 1, kind });
        let result = |cause: &str, run| LastResult {
            cause: cause.to_owned(),
            reason: String::new(),
            failed: None,
            run,
            retry: None,
        };
        let attempt = Attempt { number: 1, of: 5 };
        let pending =
            |failure| Wait::Worker { attempt, stage: WorkerStage::Pending { waiting: None, failure } };
        for (why, fault) in [
            (result("KubernetesForbidden", run(RunKind::Blocked)).into(), Some("Forbidden")),
            (result("MyForbidden", None).into(), None),
            (result("MyForbidden", run(RunKind::Cluster)).into(), None),
            (Wait::RefusedWorker("quota".to_owned()).into(), Some("WorkerRefused")),
            (pending(WorkerFailure::ImagePull).into(), Some("ImagePullFailed")),
            (pending(WorkerFailure::Pending).into(), None),
        ] {
            let explained = explained(why);
            assert_eq!(explained.installation_fault(), fault, "{explained:?}");
        }
    }

    #[test]
    fn spans_are_short() {
        let text = |secs| seconds(SignedDuration::from_secs(secs));
        assert_eq!((text(119), text(120), text(179)), ("119 s".into(), "2 min".into(), "2 min".into()));
        assert_eq!((text(7199), text(7200), text(-3)), ("119 min".into(), "2 h".into(), "0 s".into()));
    }
}

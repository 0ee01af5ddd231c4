//! Why a node is open or closed, as data. Logs, events, the condition and the command line show the same sentence, which
//! [`text`](self) renders; no other module words one.

mod reason;
mod text;
mod why;

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

pub use reason::Reason;
pub use why::{
    Attempt, ClosedGate, Excluded, FreeRun, GateWait, KeptOpen, LastResult, LeftAlone, NeverGated,
    NotDeleted, Note, PausedBy, ProbationReason, RunKind, Trouble, Wait, Why, WorkerStage,
};

/// Where a node stands, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub phase: Phase,
    pub access: Access,
    /// Why an open node has to prove itself again, if it has to.
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

/// Whether workloads may be scheduled to a node, as far as its gates go.
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

    /// The reason as one word, for the condition. Where the checks are not what keeps the node closed, it is that of the
    /// first gate that does.
    #[must_use]
    pub fn word(&self) -> Cow<'static, str> {
        let waits_for_checks = self.gates.iter().any(|closed| closed.wait == GateWait::Checks);
        match self.gates.first() {
            Some(closed) if !waits_for_checks && self.probation.is_none() => {
                Cow::Borrowed(closed.wait.reason().word())
            }
            _ => self.why.word(),
        }
    }
}

/// A point in time so much later. Saturates: timestamps from other writers may be near the maximum.
#[must_use]
pub fn later(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// A span for people, rounded up to whole seconds and never negative.
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
    fn spans_are_short() {
        let text = |secs| seconds(SignedDuration::from_secs(secs));
        assert_eq!((text(119), text(120), text(179)), ("119 s".into(), "2 min".into(), "2 min".into()));
        assert_eq!((text(7199), text(7200), text(-3)), ("119 min".into(), "2 h".into(), "0 s".into()));
    }
}

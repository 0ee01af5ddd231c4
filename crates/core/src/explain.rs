//! One wording for logs, events, the condition, the page and the command line.

use std::borrow::Cow;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

/// Where a node stands, in a sentence that a person can act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The phase it is in.
    pub phase: Phase,
    /// Whether workloads may come.
    pub door: Door,
    /// Why, as one word for the condition of a node without a verdict.
    pub reason: Cow<'static, str>,
    /// Why.
    pub why: String,
    /// What follows, and when.
    pub next: Option<Next>,
}

/// The phases in the life of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not ours to look after.
    OutOfScope,
    /// To be verified; there is no worker yet.
    Unverified,
    /// Its worker is not running yet.
    Pending,
    /// Its worker runs the checks.
    InProgress,
    /// It passed.
    Verified,
    /// It did not.
    Failed,
    /// It is being deleted.
    Deleting,
}

/// Whether workloads may come to a node, as far as our gates go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// They may.
    Open,
    /// They may not.
    Closed,
}

/// What happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// What: `next try`.
    pub what: &'static str,
    /// When.
    pub at: Timestamp,
}

impl Explanation {
    /// An explanation.
    #[must_use]
    pub fn new(phase: Phase, door: Door, why: impl Into<String>) -> Self {
        Self { phase, door, reason: Cow::Borrowed("Unverified"), why: why.into(), next: None }
    }

    /// With the word for the condition.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.reason = reason.into();
        self
    }

    /// With what comes next.
    #[must_use]
    pub fn then(mut self, what: &'static str, at: Timestamp) -> Self {
        self.next = Some(Next { what, at });
        self
    }

    /// The sentence for somebody who reads it now.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> String {
        match &self.next {
            None => self.to_string(),
            Some(Next { what, at }) => {
                format!("{}: {}; {what} in {}", self.door, self.why, seconds(at.duration_since(now)))
            }
        }
    }
}

/// The sentence for somebody who may read it any time later.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.door, self.why)?;
        match &self.next {
            None => Ok(()),
            Some(Next { what, at }) => write!(f, "; {what} at {}", whole_seconds(*at)),
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Closed => "closed",
        })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_now_and_one_for_later() {
        let at = Timestamp::from_millisecond(8_400).unwrap();
        let told =
            Explanation::new(Phase::Failed, Door::Closed, "attempt 3 of 5 failed").then("next try", at);
        assert_eq!(told.at(Timestamp::UNIX_EPOCH), "closed: attempt 3 of 5 failed; next try in 9 s");
        assert_eq!(
            told.at(Timestamp::from_second(60).unwrap()),
            "closed: attempt 3 of 5 failed; next try in 0 s"
        );
        assert_eq!(told.to_string(), "closed: attempt 3 of 5 failed; next try at 1970-01-01T00:00:08Z");
        let plain = Explanation::new(Phase::Verified, Door::Open, "verified");
        assert_eq!((plain.at(at), plain.to_string()), ("open: verified".into(), "open: verified".into()));
    }

    #[test]
    fn spans_are_short() {
        let text = |secs| seconds(SignedDuration::from_secs(secs));
        assert_eq!((text(119), text(120), text(179)), ("119 s".into(), "2 min".into(), "2 min".into()));
        assert_eq!((text(7199), text(7200), text(-3)), ("119 min".into(), "2 h".into(), "0 s".into()));
    }
}

//! The definition of a check, and of its failures.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
pub use knr_core::fault::Kind;
use knr_core::report::Failure;
use tokio::time::Instant;

use crate::api::ApiAccess;

/// One thing that a node must be able to do.
pub(crate) trait Check: Send + Sync {
    /// Its name in the report.
    fn name(&self) -> &str;
    /// The documentation of this kind of check.
    fn about(&self) -> &'static About;
    /// Tries it once. It ends by the deadline, with what it knows by then.
    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome>;
}

/// The context of one attempt of a check.
#[derive(Debug)]
pub(crate) struct Context {
    /// When the attempt must have ended.
    pub(crate) deadline: Instant,
    /// The environment, which all checks share.
    pub(crate) surroundings: Arc<Surroundings>,
}

/// The environment of the checks.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// The name of the node, if it is known.
    pub(crate) node: Option<String>,
    /// The access to the API server.
    pub(crate) api: ApiAccess,
    /// Host and port of the `kubernetes` Service, as given to every pod.
    pub(crate) kubernetes_service: Option<(String, u16)>,
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The node can do this. Carries what was seen.
    Pass(String),
    /// It cannot.
    Fail(Trouble),
    /// Nothing was tried. Carries the reason.
    Skipped(String),
}

impl From<Trouble> for Outcome {
    fn from(trouble: Trouble) -> Self {
        Self::Fail(trouble)
    }
}

impl From<Result<String, Self>> for Outcome {
    fn from(result: Result<String, Self>) -> Self {
        result.map_or_else(|other| other, Self::Pass)
    }
}

/// What went wrong: as a kind, and in detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
}

impl Trouble {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// Changes the kind, and puts words before the detail.
    pub(crate) fn within(self, kind: Kind, words: &str) -> Self {
        Self::new(kind, format!("{words}{}", self.detail))
    }

    /// Combines two. The kind is that of the first, unless only the other can be the fault of the node.
    pub(crate) fn and(self, other: Self) -> Self {
        let (first, second) =
            if other.kind.blame() < self.kind.blame() { (other, self) } else { (self, other) };
        if first.detail == second.detail {
            return first;
        }
        Self::new(first.kind, format!("{}; {}", first.detail, second.detail))
    }

    /// Combines several.
    pub(crate) fn all(troubles: impl IntoIterator<Item = Self>) -> Option<Self> {
        troubles.into_iter().reduce(Self::and)
    }
}

/// The documentation of one kind of check.
#[derive(Debug)]
pub struct About {
    /// The name of a built-in check, or the key that configures one.
    pub name: &'static str,
    /// What it proves.
    pub summary: &'static str,
    /// How it can fail, each kind with a hint for the operator.
    pub kinds: &'static [(Kind, &'static str)],
}

/// How any check can fail.
pub const COMMON: [(Kind, &str); 2] = [
    (Kind::Deadline, "the node is very slow, or worker.timeoutSeconds is too short"),
    (Kind::Crashed, "this is a bug in the check: please report it"),
];

impl About {
    /// Returns the hint for a kind of failure.
    #[must_use]
    pub fn hint(&self, kind: Kind) -> &'static str {
        let known = self.kinds.iter().chain(&COMMON).find(|(known, _)| *known == kind);
        debug_assert!(known.is_some(), "the check {} does not list the failure {}", self.name, kind.word());
        known.map_or("", |(_, hint)| hint)
    }

    /// Returns the failure as it is reported.
    pub(crate) fn failure(&self, trouble: Trouble) -> Failure {
        let hint = self.hint(trouble.kind).to_owned();
        Failure { kind: trouble.kind.into(), detail: trouble.detail, hint }
    }
}

/// Formats a duration for humans: `12 ms`, `0.8 s`, `10 s`.
pub(crate) fn span(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..500 => format!("{millis} ms"),
        millis if millis % 1000 < 50 || millis % 1000 >= 950 => format!("{} s", (millis + 500) / 1000),
        millis => format!("{}.{} s", (millis + 50) / 1000, (millis + 50) % 1000 / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let said = |millis| span(Duration::from_millis(millis));
        assert_eq!([0, 12, 499].map(said), ["0 ms", "12 ms", "499 ms"]);
        assert_eq!(
            [500, 999, 1049, 1050, 9_960, 10_003].map(said),
            ["0.5 s", "1 s", "1 s", "1.1 s", "10 s", "10 s"]
        );
    }

    #[test]
    fn several_troubles_become_one() {
        let of = |kinds: &[Kind]| Trouble::all(kinds.iter().map(|kind| Trouble::new(*kind, kind.word())));
        let one = |kind, detail| Some(Trouble::new(kind, detail));
        assert_eq!(of(&[Kind::Refused, Kind::Timeout]), one(Kind::Refused, "refused; timeout"));
        assert_eq!(
            of(&[Kind::NotFound, Kind::Timeout, Kind::NoEndpoints, Kind::NoNameserver]),
            one(Kind::NoNameserver, "no-nameserver; no-endpoints; timeout; not-found"),
            "the fault that is clear decides, and that of the node before that of the cluster"
        );
        assert_eq!(Trouble::all(Vec::new()), None);
        let same = vec![Trouble::new(Kind::Api, "a"), Trouble::new(Kind::Api, "a")];
        assert_eq!(Trouble::all(same), Some(Trouble::new(Kind::Api, "a")));
    }
}

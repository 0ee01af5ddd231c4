//! What was found, for people.

use knr_core::report::Report;
use serde::Serialize;

/// What a step has found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// A phrase.
    pub detail: String,
    /// One line for each of several things.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// What to do about it; none if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What a worker has reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

impl Finding {
    /// Something that is as it should be.
    #[must_use]
    pub fn fine(name: &'static str, detail: impl Into<String>) -> Self {
        Self::good(detail).named(name)
    }

    /// Whether all is well.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.next.is_none()
    }

    pub(super) fn good(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::default() }
    }

    pub(super) fn failed(detail: impl Into<String>) -> Failure {
        Failure(Self::good(detail))
    }

    pub(super) fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(super) fn reporting(self, report: Option<Report>) -> Self {
        Self { report, ..self }
    }
}

/// Something that is not as it should be, and nobody has said yet what to do about it.
#[derive(Debug)]
pub(super) struct Failure(Finding);

impl Failure {
    pub(super) fn lines(self, lines: Vec<String>) -> Self {
        Self(Finding { lines, ..self.0 })
    }

    pub(super) fn next(self, next: impl Into<String>) -> Finding {
        Finding { next: Some(next.into()), ..self.0 }
    }
}

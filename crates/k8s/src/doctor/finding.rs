//! The finding of a step, for operators.

use knr_core::report::Report;
use serde::Serialize;

/// The finding of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The name of the step.
    pub name: &'static str,
    /// A short description.
    pub detail: String,
    /// One line for each item, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// What to do about it; `None` if there is no problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The report of a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

impl Finding {
    /// Creates a finding without a problem.
    #[must_use]
    pub fn fine(name: &'static str, detail: impl Into<String>) -> Self {
        Self::good(detail).named(name)
    }

    /// Returns whether there is no problem.
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

/// A problem for which the next step for the operator is still missing.
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

//! The report of a worker about its node.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::ReportedKind;

/// The kubelet truncates termination messages at this many bytes.
pub const MAX_REPORT_BYTES: usize = 4096;

/// The report of one worker, written as JSON into its termination message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The checks in the order of the configuration.
    #[serde(default)]
    pub checks: Vec<CheckResult>,
    /// Why no check could be run at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The worker received a signal to stop before the checks were done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The name of the check: `dns`, `kubernetes`, `network`, `services`, ..
    pub name: String,
    pub outcome: CheckOutcome,
    /// The duration of the try that decided the outcome.
    #[serde(default)]
    pub millis: u64,
    /// Details of a check that passed, such as addresses or a version. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckOutcome {
    /// The node passed.
    Pass,
    /// The node failed.
    Fail(Failure),
    /// Not run, with the reason.
    Skipped(String),
}

/// A failure, in a form that an operator can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One word: `timeout`, `refused`, `nxdomain`, ..
    pub kind: ReportedKind,
    /// The exact failure, with address and time.
    #[serde(default)]
    pub detail: String,
    /// Where to look for the cause.
    #[serde(default)]
    pub hint: String,
}

impl Report {
    /// Reads a report; `None` if the text is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_REPORT_BYTES {
            return None;
        }
        serde_json::from_str(text).ok()
    }

    /// The checks that failed.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &Failure)> {
        self.checks.iter().filter_map(|check| match &check.outcome {
            CheckOutcome::Fail(failure) => Some((check.name.as_str(), failure)),
            CheckOutcome::Pass | CheckOutcome::Skipped(_) => None,
        })
    }

    /// The first check that failed.
    #[must_use]
    pub fn first_failure(&self) -> Option<(&str, &Failure)> {
        self.failed().next()
    }

    /// The number of checks that failed.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.failed().count()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.detail.is_empty() { self.kind.word() } else { &self.detail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;

    #[test]
    fn a_report_is_read_back_as_it_was_written() {
        let report = Report {
            checks: vec![
                CheckResult {
                    name: "kubernetes".into(),
                    outcome: CheckOutcome::Pass,
                    millis: 3,
                    note: "v1.36.3".into(),
                },
                CheckResult {
                    name: "dns".into(),
                    outcome: CheckOutcome::Fail(Failure {
                        kind: Kind::Timeout.into(),
                        detail: "no answer from 10.96.0.10 in 5 s".into(),
                        hint: "look at kube-proxy".into(),
                    }),
                    millis: 5000,
                    note: String::new(),
                },
            ],
            ..Report::default()
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(Report::parse(&text).unwrap(), report);
        assert_eq!(report.failures(), 1);
        let (name, failure) = report.first_failure().unwrap();
        assert_eq!(format!("{name}: {failure}"), "dns: no answer from 10.96.0.10 in 5 s");
    }

    #[test]
    fn what_is_not_a_report_is_none() {
        let long = format!("{{\"error\":\"{}\"}}", "x".repeat(MAX_REPORT_BYTES));
        for text in ["", "ok", "[1]", "{\"checks\":7}", "{\"checks\":[{\"name\":\"dns\"}]}", long.as_str()] {
            assert_eq!(Report::parse(text), None, "{text}");
        }
        assert!(Report::parse("{}").is_some());
    }

    #[test]
    fn the_limit_itself_still_fits() {
        let frame = "{\"error\":\"\"}".len();
        let text = format!("{{\"error\":\"{}\"}}", "x".repeat(MAX_REPORT_BYTES - frame));
        assert_eq!(text.len(), MAX_REPORT_BYTES);
        assert!(Report::parse(&text).is_some());
    }
}

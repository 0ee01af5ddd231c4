//! The metrics of a pod of the `DaemonSet` about its node.

use std::fmt;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use knr_core::report::{CheckOutcome, Report};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Exposition;
use crate::health::Health;

type Labels<const N: usize> = [(&'static str, String); N];
type Seconds = Gauge<f64, AtomicU64>;

/// The metrics about the checks of one node, in the pod that runs them. Share them in an `Arc`.
#[derive(Debug)]
pub struct NodeMetrics {
    node: String,
    registry: Registry,
    status: Family<Labels<1>, Gauge>,
    dns: Family<Labels<1>, Seconds>,
    api: Family<Labels<1>, Seconds>,
    completion: Family<Labels<1>, Gauge>,
    failures: Family<Labels<2>, Counter>,
}

impl NodeMetrics {
    /// Creates the metrics. `checks` are those that will be run.
    #[must_use]
    pub fn new(node: &str, checks: &[String]) -> Self {
        let metrics = Self {
            node: node.to_owned(),
            registry: Registry::with_prefix("node_check"),
            status: Family::default(),
            dns: Family::default(),
            api: Family::default(),
            completion: Family::default(),
            failures: Family::default(),
        }
        .registered();
        metrics.status.get_or_create(&metrics.own()).set(0);
        for check in checks {
            drop(metrics.failures.get_or_create(&metrics.of(check)));
        }
        metrics
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register(
            "status",
            "1 if all checks passed on the node when they were last run, else 0",
            self.status.clone(),
        );
        registry.register_with_unit(
            "dns_duration",
            "Time which the check dns took when it was last run",
            Unit::Seconds,
            self.dns.clone(),
        );
        registry.register_with_unit(
            "api_duration",
            "Time which the check kubernetes took when it was last run",
            Unit::Seconds,
            self.api.clone(),
        );
        registry.register(
            "completion_timestamp",
            "When the checks were last run, in seconds since 1970",
            self.completion.clone(),
        );
        registry.register("failures", "Runs in which the check failed on the node", self.failures.clone());
        self
    }

    /// The checks were run.
    pub fn ran(&self, report: &Report, at: Timestamp) {
        let passed = report.failures() == 0 && report.error.is_none();
        self.status.get_or_create(&self.own()).set(i64::from(passed));
        self.completion.get_or_create(&self.own()).set(at.as_second());
        for check in &report.checks {
            let seconds = match check.outcome {
                CheckOutcome::Skipped(_) => continue,
                CheckOutcome::Pass | CheckOutcome::Fail(_) => {
                    std::time::Duration::from_millis(check.millis).as_secs_f64()
                }
            };
            match check.name.as_str() {
                "dns" => drop(self.dns.get_or_create(&self.own()).set(seconds)),
                "kubernetes" => drop(self.api.get_or_create(&self.own()).set(seconds)),
                _ => {}
            }
        }
        for (check, _) in report.failed() {
            self.failures.get_or_create(&self.of(check)).inc();
        }
    }

    fn own(&self) -> Labels<1> {
        [("node", self.node.clone())]
    }

    fn of(&self, check: &str) -> Labels<2> {
        [("node", self.node.clone()), ("check", check.to_owned())]
    }
}

impl Exposition for NodeMetrics {
    fn text(&self, _health: &Health) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use knr_core::fault::Kind;
    use knr_core::report::{CheckResult, Failure};

    use super::*;

    fn check(name: &str, outcome: CheckOutcome, millis: u64) -> CheckResult {
        CheckResult { name: name.to_owned(), outcome, millis, note: String::new() }
    }

    fn failed() -> CheckOutcome {
        CheckOutcome::Fail(Failure { kind: Kind::Timeout.into(), detail: String::new(), hint: String::new() })
    }

    fn lines(metrics: &NodeMetrics) -> Vec<String> {
        let text = metrics.text(&Health::new()).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn zeros_are_there_before_anything_has_run() {
        let metrics = NodeMetrics::new("n1", &["dns".to_owned(), "mine".to_owned()]);
        let mut lines = lines(&metrics);
        lines.sort();
        assert_eq!(
            lines,
            [
                r#"node_check_failures_total{node="n1",check="dns"} 0"#,
                r#"node_check_failures_total{node="n1",check="mine"} 0"#,
                r#"node_check_status{node="n1"} 0"#,
            ]
        );
    }

    #[test]
    fn a_run_is_reported_under_the_names_that_dashboards_know() {
        let metrics = NodeMetrics::new("n1", &["dns".to_owned(), "kubernetes".to_owned()]);
        let run = |dns, api| Report {
            checks: vec![check("dns", dns, 123), check("kubernetes", api, 456)],
            ..Report::default()
        };
        let at = Timestamp::from_second(1_234_567_890).unwrap();
        metrics.ran(&run(failed(), CheckOutcome::Pass), at);
        metrics.ran(&run(failed(), failed()), at);
        assert!(lines(&metrics).contains(&r#"node_check_status{node="n1"} 0"#.to_owned()));
        metrics.ran(&run(CheckOutcome::Pass, CheckOutcome::Pass), at);
        let mut lines = lines(&metrics);
        lines.sort();
        assert_eq!(
            lines,
            [
                r#"node_check_api_duration_seconds{node="n1"} 0.456"#,
                r#"node_check_completion_timestamp{node="n1"} 1234567890"#,
                r#"node_check_dns_duration_seconds{node="n1"} 0.123"#,
                r#"node_check_failures_total{node="n1",check="dns"} 2"#,
                r#"node_check_failures_total{node="n1",check="kubernetes"} 1"#,
                r#"node_check_status{node="n1"} 1"#,
            ]
        );
    }

    #[test]
    fn a_check_that_was_skipped_took_no_time() {
        let metrics = NodeMetrics::new("n1", &[]);
        let report = Report {
            checks: vec![check("dns", CheckOutcome::Skipped("off".into()), 0)],
            ..Report::default()
        };
        metrics.ran(&report, Timestamp::UNIX_EPOCH);
        assert!(!lines(&metrics).iter().any(|line| line.contains("dns_duration")));
    }
}

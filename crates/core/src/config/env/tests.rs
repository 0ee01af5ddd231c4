use std::time::Duration;

use super::super::{Effect, Level, LogFormat, RetryBackoff};
use super::*;

fn with(vars: &[(&str, &str)]) -> Result<Config, Problems> {
    let vars = vars.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Config::from_environment(Config::default(), &vars)
}

fn said(vars: &[(&str, &str)]) -> String {
    with(vars).unwrap_err().to_string()
}

#[test]
fn nothing_set_changes_nothing() {
    assert_eq!(with(&[]), Ok(Config::default()));
    assert_eq!(with(&[("PATH", "/bin"), ("MAX_RETRIES", ""), ("TAINT_KEY", "  ")]), Ok(Config::default()));
}

#[test]
fn every_variable_sets_its_keys() {
    let config = with(&[
        ("INITIAL_TIMEOUT", "1m30s"),
        ("CHECK_TIMEOUT", "5000ms"),
        ("DNS_TEST_DOMAINS", " example.com , 10.0.0.10,"),
        ("ENABLE_CONNECTIVITY_MATRIX", "FALSE"),
        ("MAX_RETRIES", " 7 "),
        ("RETRY_BACKOFF", "linear"),
        ("TAINT_KEY", "example.com/new"),
        ("TAINT_VALUE", "1"),
        ("TAINT_EFFECT", "PreferNoSchedule"),
        ("VERIFIED_LABEL", "example.com/ok"),
        ("VERIFIED_LABEL_VALUE", "yes"),
        ("STARTUP_BACKFILL", "1"),
        ("ENABLE_METRICS", "0"),
        ("METRICS_PORT", "9090"),
        ("LOG_LEVEL", "debug"),
        ("LOG_FORMAT", "console"),
    ])
    .unwrap();
    let mut expected = Config::default();
    expected.worker.timeout_seconds = 90;
    expected.worker.check_timeout_seconds = 5;
    expected.worker.dns_test_domains = vec!["example.com".to_owned(), "10.0.0.10".to_owned()];
    expected.worker.connectivity_matrix = false;
    expected.reconciliation.max_retries = 7;
    expected.reconciliation.retry_backoff = RetryBackoff::Linear;
    expected.node_management.taints[0].key = "example.com/new".to_owned();
    expected.node_management.taints[0].value = "1".to_owned();
    expected.node_management.taints[0].effect = Effect::PreferNoSchedule;
    expected.node_management.verified_label.key = "example.com/ok".to_owned();
    expected.node_management.verified_label.value = "yes".to_owned();
    expected.node_management.backfill = true;
    expected.metrics.enabled = false;
    expected.metrics.port = 9090;
    expected.health.port = 9090;
    expected.logging.level = Level::Debug;
    expected.logging.format = LogFormat::Console;
    assert_eq!(config, expected);
    assert_eq!(config.leader_election.renew_deadline(), Duration::from_secs(10));
}

#[test]
fn every_variable_names_a_key_that_exists() {
    let json = serde_json::to_value(Config::default()).unwrap();
    for variable in variables() {
        for path in variable.paths() {
            let found = path.follow(&json, |map, key| map.get(key), |list, index| list.get(index));
            assert!(found.is_some(), "{} sets {path}", variable.name);
        }
    }
}

#[test]
fn all_wrong_ones_are_reported_at_once() {
    let problems = said(&[
        ("INITIAL_TIMEOUT", "300"),
        ("CHECK_TIMEOUT", "2h"),
        ("MAX_RETRIES", "many"),
        ("ENABLE_METRICS", "on"),
        ("RETRY_BACKOFF", "exponental"),
        ("METRICS_PORT", "0"),
        ("TAINT_KEY", "a b"),
        ("DNS_TEST_DOMAINS", "ok.example.com,not ok"),
        ("LOG_LEVEL", "INFO"),
    ]);
    assert_eq!(
        problems,
        r#"INITIAL_TIMEOUT: "300" has no unit; expected 300s if seconds are meant
MAX_RETRIES: "many" is not a whole number; expected digits alone
ENABLE_METRICS: "on" is neither yes nor no; expected true, false, 1 or 0
CHECK_TIMEOUT: 7200 is out of range; expected 1 to 3600; CHECK_TIMEOUT=2h sets worker.checkTimeoutSeconds
DNS_TEST_DOMAINS: "not ok" is not valid; expected a DNS name such as example.com, or an IP address
RETRY_BACKOFF: "exponental" is not a retry backoff; expected one of exponential, linear; did you mean exponential?
TAINT_KEY: "a b" is not valid; expected a name of at most 63 letters, digits, '-', '_' and '.', with or without a DNS name and '/' before it
METRICS_PORT: 0 is out of range; expected 1 to 65535
LOG_LEVEL: "INFO" is not a log level; expected one of trace, debug, info, warn, error; did you mean info?"#
    );
}

#[test]
fn a_broken_rule_names_the_variable_that_broke_it() {
    assert_eq!(
        said(&[("INITIAL_TIMEOUT", "5s")]),
        "INITIAL_TIMEOUT: worker.checkTimeoutSeconds is 10 and worker.timeoutSeconds is 5; expected one check to take \
         no longer than the whole run; INITIAL_TIMEOUT=5s sets worker.timeoutSeconds, \
         CHECK_TIMEOUT would set worker.checkTimeoutSeconds"
    );
    assert!(said(&[("INITIAL_TIMEOUT", "5s"), ("CHECK_TIMEOUT", "6s")]).starts_with("CHECK_TIMEOUT: "));
    assert!(
        said(&[("TAINT_KEY", "node.kubernetes.io/not-ready")])
            .starts_with("TAINT_KEY: node.kubernetes.io/not-")
    );
    assert_eq!(
        said(&[("DNS_TEST_DOMAINS", ",")]),
        "DNS_TEST_DOMAINS: the list is empty; expected at least one item"
    );
}

#[test]
fn a_variable_can_clash_with_the_file() {
    let base = Config::parse("gates: [{}]").unwrap();
    let vars = BTreeMap::from([("TAINT_KEY".to_owned(), "startup.k8s.io/initializing".to_owned())]);
    assert_eq!(
        Config::from_environment(base, &vars).unwrap_err().to_string(),
        "TAINT_KEY: startup.k8s.io/initializing:NoSchedule is already the taint of nodeManagement.taints[0]; expected \
         another key or effect; TAINT_KEY=startup.k8s.io/initializing sets nodeManagement.taints[0].key, TAINT_VALUE \
         would set nodeManagement.taints[0].value, TAINT_EFFECT would set nodeManagement.taints[0].effect"
    );
}

#[test]
fn a_variable_that_cannot_be_read_breaks_no_rule() {
    let problems = said(&[("INITIAL_TIMEOUT", "soon"), ("CHECK_TIMEOUT", "400s")]);
    assert_eq!(
        problems,
        "INITIAL_TIMEOUT: \"soon\" is not a duration; expected a duration such as 300s or 1m30s"
    );
}

#[test]
fn the_base_is_kept_and_judged() {
    let mut base = Config::default();
    base.worker.namespace = "elsewhere".to_owned();
    let vars = BTreeMap::from([("MAX_RETRIES".to_owned(), "3".to_owned())]);
    assert_eq!(Config::from_environment(base.clone(), &vars).unwrap().worker.namespace, "elsewhere");
    base.reconciliation.retry_delay_seconds = 400;
    let problems = Config::from_environment(base, &vars).unwrap_err().to_string();
    assert!(problems.starts_with("reconciliation.retryDelaySeconds: "), "{problems}");
}

use std::collections::BTreeSet;

use super::*;

fn lines(metrics: &Metrics, health: &Health) -> Vec<String> {
    metrics.text(health).unwrap().lines().map(str::to_owned).collect()
}

/// Returns the lines whose name begins like this; `nodes{` selects a single family.
fn of(metrics: &Metrics, beginning: &str) -> Vec<String> {
    let beginning = format!("kube_node_ready_{beginning}");
    lines(metrics, &Health::new()).into_iter().filter(|line| line.starts_with(&beginning)).collect()
}

fn counts(metrics: &Metrics) -> Vec<String> {
    of(metrics, "nodes{").into_iter().filter(|line| !line.ends_with(" 0")).collect()
}

#[test]
fn a_node_has_the_status_of_now_alone() {
    let metrics = Metrics::new(true);
    for phase in [Phase::Unverified, Phase::Pending, Phase::InProgress] {
        metrics.node("n1", Some(phase));
    }
    metrics.node("n2", Some(Phase::Deleting));
    assert_eq!(
        of(&metrics, "verification_status"),
        [
            r#"kube_node_ready_verification_status{node="n1",status="in-progress"} 1"#,
            r#"kube_node_ready_verification_status{node="n2",status="deleting"} 1"#,
        ]
    );
    assert_eq!(
        counts(&metrics),
        [r#"kube_node_ready_nodes{phase="in-progress"} 1"#, r#"kube_node_ready_nodes{phase="deleting"} 1"#]
    );
}

#[test]
fn nothing_outlives_its_node() {
    let metrics = Metrics::new(true);
    let fresh = lines(&metrics, &Health::new());
    metrics.node("n1", Some(Phase::Failed));
    metrics.failed("n1");
    metrics.verified("n1", Duration::from_secs(3));
    assert_eq!(mentions(&metrics, "n1"), 3);
    metrics.node("n1", None);
    assert_eq!(mentions(&metrics, "n1"), 0);
    metrics.failed("n1");
    metrics.verified("n1", Duration::from_secs(3));
    metrics.node("n1", None);
    assert_eq!(mentions(&metrics, "n1"), 0, "a report may be late");
    let names = |lines: &[String]| -> BTreeSet<String> {
        lines.iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    assert_eq!(names(&lines(&metrics, &Health::new())), names(&fresh), "no family stays without a series");
    metrics.node("n1", Some(Phase::Unverified));
    assert_eq!(mentions(&metrics, "n1"), 1, "another node of the same name starts over");
}

fn mentions(metrics: &Metrics, node: &str) -> usize {
    let label = format!("node=\"{node}\"");
    lines(metrics, &Health::new()).iter().filter(|line| line.contains(&label)).count()
}

#[test]
fn a_node_that_is_not_ours_is_only_counted() {
    let metrics = Metrics::new(true);
    metrics.node("n1", Some(Phase::Failed));
    metrics.failed("n1");
    metrics.node("n1", Some(Phase::OutOfScope));
    metrics.failed("n1");
    metrics.verified("n1", Duration::from_secs(3));
    assert_eq!(mentions(&metrics, "n1"), 0);
    assert_eq!(counts(&metrics), [r#"kube_node_ready_nodes{phase="out-of-scope"} 1"#]);
    metrics.node("n1", Some(Phase::Verified));
    assert_eq!(mentions(&metrics, "n1"), 1, "what was before is forgotten");
    assert_eq!(counts(&metrics), [r#"kube_node_ready_nodes{phase="verified"} 1"#]);
}

#[test]
fn series_of_nodes_can_be_switched_off_and_on() {
    let metrics = Metrics::new(false);
    metrics.node("n1", Some(Phase::Failed));
    metrics.failed("n1");
    assert_eq!(mentions(&metrics, "n1"), 0);
    assert_eq!(counts(&metrics), [r#"kube_node_ready_nodes{phase="failed"} 1"#]);
    assert_eq!(
        of(&metrics, "verifications_total{status=\"failed\""),
        [r#"kube_node_ready_verifications_total{status="failed"} 1"#]
    );
    metrics.set_per_node(true);
    metrics.failed("n1");
    assert_eq!(of(&metrics, "retry"), [r#"kube_node_ready_retry_attempts_total{node="n1"} 2"#]);
    metrics.set_per_node(false);
    assert_eq!(mentions(&metrics, "n1"), 0);
}

#[test]
fn the_name_of_a_node_cannot_break_a_line() {
    let metrics = Metrics::new(true);
    metrics.node("a\"b\\c\nd", Some(Phase::Verified));
    assert_eq!(
        of(&metrics, "verification_status"),
        [r#"kube_node_ready_verification_status{node="a\"b\\c\nd",status="verified"} 1"#]
    );
}

#[test]
fn everything_that_can_be_known_before_is_there_with_a_zero() {
    let metrics = Metrics::new(true);
    let shown = lines(&metrics, &Health::new());
    for line in [
        r#"kube_node_ready_verifications_total{status="inconclusive"} 0"#,
        r#"kube_node_ready_worker_pods{status="pending"} 0"#,
        r#"kube_node_ready_writes_total{action="delete_node",outcome="refused"} 0"#,
        r#"kube_node_ready_write_duration_seconds_count{action="open_gate"} 0"#,
        r#"kube_node_ready_queue_orders{state="waiting"} 0"#,
        r#"kube_node_ready_config_reloads_total{outcome="rejected"} 0"#,
        r#"kube_node_ready_nodes{phase="unverified"} 0"#,
        "kube_node_ready_controller_reconcile_errors_total 0",
        "kube_node_ready_decisions_total 0",
        "kube_node_ready_events_dropped_total 0",
        "kube_node_ready_nodes_deleted_total 0",
        r#"kube_node_ready_nodes_blocked{reason="ImagePullFailed"} 0"#,
        r#"kube_node_ready_nodes_blocked{reason="Forbidden"} 0"#,
        "kube_node_ready_leader 0",
        "kube_node_ready_controller_healthy 1",
    ] {
        assert!(shown.contains(&line.to_owned()), "{line} in {shown:#?}");
    }
    assert_eq!(of(&metrics, "writes_total").len(), Metrics::ACTIONS.len() * Metrics::OUTCOMES.len());
    assert_eq!(of(&metrics, "build_info").len(), 1);
}

#[test]
fn what_is_reported_is_counted() {
    let metrics = Metrics::new(true);
    metrics.inconclusive();
    metrics.workers(WorkerCounts { pending: 1, running: 2, succeeded: 3, failed: 4 });
    metrics.workers(WorkerCounts { pending: 5, running: 2, succeeded: 3, failed: 0 });
    metrics.write("event", "conflict", Duration::from_millis(7));
    metrics.queue(8, 9);
    metrics.events_dropped(3);
    metrics.events_dropped(0);
    metrics.deleted();
    metrics.decided(10, Duration::from_micros(50));
    metrics.decided(1, Duration::from_secs(5));
    metrics.reconcile_error();
    metrics.config_reload(ConfigReload::Ok);
    metrics.config_reload(ConfigReload::Rejected);
    metrics.config_reload(ConfigReload::Rejected);
    metrics.watch_restarted("nodes");
    metrics.leading(Leader::No);
    metrics.leading(Leader::Yes);
    let shown = lines(&metrics, &Health::new());
    for line in [
        r#"kube_node_ready_verifications_total{status="inconclusive"} 1"#,
        r#"kube_node_ready_worker_pods{status="pending"} 5"#,
        r#"kube_node_ready_worker_pods{status="running"} 2"#,
        r#"kube_node_ready_worker_pods{status="succeeded"} 3"#,
        r#"kube_node_ready_worker_pods{status="failed"} 0"#,
        r#"kube_node_ready_writes_total{action="event",outcome="conflict"} 1"#,
        r#"kube_node_ready_write_duration_seconds_bucket{le="0.005",action="event"} 0"#,
        r#"kube_node_ready_write_duration_seconds_bucket{le="0.01",action="event"} 1"#,
        r#"kube_node_ready_queue_orders{state="waiting"} 8"#,
        r#"kube_node_ready_queue_orders{state="in-flight"} 9"#,
        "kube_node_ready_events_dropped_total 3",
        "kube_node_ready_nodes_deleted_total 1",
        "kube_node_ready_decisions_total 11",
        r#"kube_node_ready_decision_duration_seconds_bucket{le="0.00003"} 0"#,
        r#"kube_node_ready_decision_duration_seconds_bucket{le="0.0001"} 1"#,
        r#"kube_node_ready_decision_duration_seconds_bucket{le="+Inf"} 2"#,
        "kube_node_ready_controller_reconcile_errors_total 1",
        r#"kube_node_ready_config_reloads_total{outcome="ok"} 1"#,
        r#"kube_node_ready_config_reloads_total{outcome="rejected"} 2"#,
        r#"kube_node_ready_watch_restarts_total{resource="nodes"} 1"#,
        "kube_node_ready_leader 1",
    ] {
        assert!(shown.contains(&line.to_owned()), "{line} in {shown:#?}");
    }
}

#[test]
fn a_node_is_blocked_by_one_fault_and_only_while_it_is_there_and_managed() {
    let metrics = Metrics::new(false);
    let blocked = || -> Vec<String> {
        of(&metrics, "nodes_blocked{").into_iter().filter(|line| !line.ends_with(" 0")).collect()
    };
    let line =
        |reason: &str, count: u32| format!(r#"kube_node_ready_nodes_blocked{{reason="{reason}"}} {count}"#);
    for name in ["n1", "n2", "n3"] {
        metrics.node(name, Some(Phase::Pending));
        metrics.blocked(name, Some("ImagePullFailed"));
    }
    metrics.blocked("n1", Some("WorkerRefused"));
    metrics.node("n1", Some(Phase::Unverified));
    assert_eq!(blocked(), [line("ImagePullFailed", 2), line("WorkerRefused", 1)]);
    metrics.node("n2", Some(Phase::OutOfScope));
    metrics.node("n3", None);
    metrics.blocked("n2", Some("ImagePullFailed"));
    metrics.blocked("n3", Some("ImagePullFailed"));
    assert_eq!(blocked(), [line("WorkerRefused", 1)]);
    metrics.blocked("n1", None);
    assert!(blocked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn health_is_read_when_it_is_asked_for() {
    let (metrics, health) = (Metrics::new(true), Health::new());
    let _nodes = health.watch("nodes", Duration::from_secs(10));
    let _turns = health.vital("loop", Duration::from_secs(10));
    let shown = |metrics: &Metrics| -> Vec<String> {
        let wanted = ["kube_node_ready_controller_healthy", "kube_node_ready_watch"];
        let is_wanted = |line: &String| wanted.iter().any(|name| line.starts_with(name));
        lines(metrics, &health).into_iter().filter(is_wanted).collect()
    };
    tokio::time::advance(Duration::from_millis(9500)).await;
    let restarts = r#"kube_node_ready_watch_restarts_total{resource="nodes"} 0"#;
    assert_eq!(
        shown(&metrics),
        [
            restarts,
            "kube_node_ready_controller_healthy 1",
            r#"kube_node_ready_watch_age_seconds{resource="nodes"} 9.5"#,
        ]
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(
        shown(&metrics),
        [
            restarts,
            "kube_node_ready_controller_healthy 0",
            r#"kube_node_ready_watch_age_seconds{resource="nodes"} 10.5"#,
        ]
    );
}

#[test]
fn nothing_is_described_that_is_not_there() {
    let metrics = Metrics::new(true);
    let all_have_series = || {
        let shown = lines(&metrics, &Health::new());
        let described = shown.iter().filter_map(|line| line.strip_prefix("# TYPE "));
        for family in described.map(|line| line.split(' ').next().unwrap()) {
            assert!(shown.iter().any(|line| line.starts_with(family)), "{family} in {shown:#?}");
        }
    };
    all_have_series();
    metrics.node("n1", Some(Phase::Pending));
    all_have_series();
}

#[test]
fn the_text_is_well_formed() {
    let metrics = Metrics::new(true);
    metrics.node("n1", Some(Phase::Verified));
    metrics.verified("n1", Duration::from_secs(3));
    metrics.failed("n1");
    let text = metrics.text(&Health::new()).unwrap();
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    assert_eq!(text.matches("# EOF").count(), 1);
    let described: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# HELP ")).collect();
    let families: BTreeSet<&str> = described.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(families.len(), described.len(), "a family is described twice: {described:#?}");
    for line in &described {
        assert!(line.ends_with('.') && !line.ends_with(".."), "{line}");
    }
    let series: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    assert_eq!(series.iter().collect::<BTreeSet<_>>().len(), series.len(), "a series is there twice");
}

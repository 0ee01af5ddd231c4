use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use knr_core::explain::Phase;
use tokio::time::advance;

use super::*;
use crate::metrics::Metrics;
use crate::metrics::WorkerCounts;

const LIMIT: Duration = Duration::from_secs(90);

async fn ask(router: &Router, method: Method, path: &str) -> (u16, HeaderMap, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = TowerToHyperService::new(router.clone()).call(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn get(router: &Router, path: &str) -> (u16, String) {
    let (status, _, body) = ask(router, Method::GET, path).await;
    (status, body)
}

/// The names and labels that dashboards and alerts rely on.
#[tokio::test]
async fn promised_series_are_served_letter_by_letter() {
    let (metrics, health) = (Arc::new(Metrics::new(true)), Health::new());
    metrics.node("node-1", Some(Phase::Verified));
    metrics.node("node-2", Some(Phase::Failed));
    (0..150).for_each(|_| metrics.verified("node-1", Duration::from_millis(45_200)));
    (0..3).for_each(|_| metrics.failed("node-2"));
    metrics.workers(WorkerCounts { pending: 0, running: 2, succeeded: 148, failed: 0 });
    let (status, headers, body) = ask(&router(Some(metrics), health), Method::GET, "/metrics").await;
    assert_eq!(status, 200);
    assert_eq!(headers[CONTENT_TYPE], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    for line in [
        r#"kube_node_ready_verification_status{node="node-1",status="verified"} 1"#,
        r#"kube_node_ready_verification_status{node="node-2",status="failed"} 1"#,
        r#"kube_node_ready_verification_duration_seconds{node="node-1"} 45.2"#,
        r#"kube_node_ready_verifications_total{status="success"} 150"#,
        r#"kube_node_ready_verifications_total{status="failed"} 3"#,
        r#"kube_node_ready_worker_pods{status="running"} 2"#,
        r#"kube_node_ready_worker_pods{status="succeeded"} 148"#,
        r#"kube_node_ready_retry_attempts_total{node="node-2"} 3"#,
        "kube_node_ready_controller_healthy 1",
        "kube_node_ready_controller_reconcile_errors_total 0",
        r#"kube_node_ready_time_to_verified_seconds_bucket{le="45.0"} 0"#,
        r#"kube_node_ready_time_to_verified_seconds_bucket{le="60.0"} 150"#,
    ] {
        assert!(body.lines().any(|served| served == line), "{line} in\n{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn liveness_names_what_is_overdue_and_by_how_much() {
    let health = Health::new();
    let router = router(None, health.clone());
    let nodes = health.watch("nodes", LIMIT);
    let turns = health.vital("loop", LIMIT);
    for path in ["/livez", "/healthz"] {
        assert_eq!(get(&router, path).await, (200, "ok".to_owned()));
    }
    advance(LIMIT).await;
    turns.beat();
    advance(Duration::from_secs(5)).await;
    let silent = "[-] watch of nodes: silent for 95.0 s, 5.0 s too long\n";
    for path in ["/livez", "/healthz", "/livez?verbos=1"] {
        assert_eq!(get(&router, path).await, (503, silent.to_owned()));
    }
    let beating = "[+] loop: heard 5.0 s ago, 90.0 s allowed\n";
    for path in ["/livez?verbose", "/healthz?a=b&verbose=true"] {
        assert_eq!(get(&router, path).await, (503, format!("{beating}{silent}")));
    }
    nodes.beat();
    assert_eq!(get(&router, "/livez").await, (200, "ok".to_owned()));
    let heard = "[+] watch of nodes: heard 0.0 s ago, 90.0 s allowed\n";
    assert_eq!(get(&router, "/livez?verbose").await, (200, format!("{beating}{heard}ok")));
}

#[tokio::test]
async fn readiness_says_why_not() {
    let health = Health::new();
    let router = router(None, health.clone());
    assert_eq!(get(&router, "/readyz").await, (503, "not ready: starting\n".to_owned()));
    health.ready();
    assert_eq!(get(&router, "/readyz").await, (200, "ok".to_owned()));
    health.not_ready("the cluster is not known yet");
    assert_eq!(get(&router, "/readyz").await, (503, "not ready: the cluster is not known yet\n".to_owned()));
    assert_eq!(get(&router, "/livez").await, (200, "ok".to_owned()), "not ready is no reason to restart");
}

#[tokio::test]
async fn metrics_are_there_only_if_they_are_asked_for() {
    let without = router(None, Health::new());
    assert_eq!(get(&without, "/metrics").await.0, 404);
    assert_eq!(get(&without, "/").await.1, "kube-node-ready\n\n/healthz\n/livez\n/readyz\n");
    let with = router(Some(Arc::new(Metrics::new(true))), Health::new());
    assert_eq!(get(&with, "/").await.1, "kube-node-ready\n\n/healthz\n/livez\n/readyz\n/metrics\n");
    assert_eq!(get(&with, "/livez").await.0, 200);
}

#[tokio::test]
async fn nothing_else_is_answered() {
    let router = router(Some(Arc::new(Metrics::new(true))), Health::new());
    for path in ["/nothing", "/metrics/", "/livez/nodes", "/metrics/../livez"] {
        assert_eq!(get(&router, path).await.0, 404, "{path}");
    }
    for path in ["/", "/metrics", "/livez", "/healthz", "/readyz"] {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(ask(&router, method.clone(), path).await.0, 405, "{method} {path}");
        }
    }
}

//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::health::{Health, is_alive};
use crate::metrics::Exposition;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Routes health, and metrics if there are any. They may be served on one port or on two.
pub fn router(metrics: Option<Arc<dyn Exposition>>, health: Health) -> Router {
    let mut index = String::from("kube-node-ready\n\n/healthz\n/livez\n/readyz\n");
    let mut router = Router::new()
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .with_state(health.clone());
    if let Some(metrics) = metrics {
        index.push_str("/metrics\n");
        router = router.merge(Router::new().route("/metrics", get(scrape)).with_state((metrics, health)));
    }
    router.route("/", get(|| async { index }))
}

async fn alive(State(health): State<Health>, RawQuery(query): RawQuery) -> Response {
    let readings = health.readings();
    let is_verbose = is_verbose(query.as_deref());
    let shown = readings.iter().filter(|reading| is_verbose || reading.is_overdue());
    let lines: String = shown.map(|reading| reading.to_string() + "\n").collect();
    if is_alive(&readings) {
        format!("{lines}ok").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
    }
}

async fn ready(State(health): State<Health>) -> Response {
    match health.why_not_ready() {
        None => "ok".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

/// The text of a large cluster takes a while, which must not block the tasks of the runtime.
async fn scrape(State((metrics, health)): State<(Arc<dyn Exposition>, Health)>) -> Response {
    match tokio::task::spawn_blocking(move || metrics.text(&health)).await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn is_verbose(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| pair.split('=').next() == Some("verbose"))
}

#[cfg(test)]
mod tests;

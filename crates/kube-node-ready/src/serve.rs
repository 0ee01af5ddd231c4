//! Metrics and health, on the configured ports.

use std::sync::Arc;

use anyhow::{Context, Result};
use knr_core::config::Config;
use knr_web::{Exposition, Health};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Serves metrics and health, on one port or on two.
pub(crate) async fn serve(
    config: &Config,
    metrics: Arc<dyn Exposition>,
    health: &Health,
    over: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>> {
    let metrics = config.metrics.enabled.then_some(metrics);
    let (of_metrics, of_health) = (config.metrics.port, config.health.port);
    let routers = match metrics {
        Some(metrics) if of_metrics != of_health => vec![
            (of_metrics, knr_web::router(Some(metrics), health.clone())),
            (of_health, knr_web::router(None, health.clone())),
        ],
        metrics => vec![(of_health, knr_web::router(metrics, health.clone()))],
    };
    let mut servers = Vec::new();
    for (port, router) in routers {
        let address = (std::net::Ipv6Addr::UNSPECIFIED, port);
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener,
            // Machines without IPv6.
            Err(_) => {
                TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, port)).await.with_context(|| {
                    format!("port {port} cannot be opened; metrics.port and health.port choose another one")
                })?
            }
        };
        let over = over.clone();
        servers.push(tokio::spawn(async move {
            knr_web::serve(listener, router, async move { over.cancelled().await }).await;
        }));
    }
    Ok(servers)
}

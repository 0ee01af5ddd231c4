//! Dry run: logs what would be done to the node, without doing it.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use knr_checks::ApiAccess;
use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::{Engine, Outcome, Plan};
use knr_core::ids::Version;
use knr_core::report::Report;
use knr_core::view::NodeView;
use knr_core::world::Fact;
use knr_k8s::api::{Api, Namespaces};
use knr_web::{Health, NodeMetrics};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::runs::Runs;
use super::{Settings, for_one_node, pools};
use crate::exit;
use crate::serve::serve;

/// A dry run in a pod whose configuration asks for one. The process stays afterwards, so that the kubelet does not
/// restart it.
pub(crate) async fn look_on(settings: Settings, stop: CancellationToken) -> Result<ExitCode> {
    let (health, over) = (Health::new(), CancellationToken::new());
    let plan = settings.config.worker.check_plan();
    let metrics = Arc::new(NodeMetrics::new(&settings.node, &knr_checks::names(&plan)));
    let servers = serve(&settings.config, metrics, &health, &over).await?;
    health.ready();
    tokio::select! {
        code = dry_run(settings) => drop(code?),
        () = stop.cancelled() => {}
    }
    stop.cancelled().await;
    over.cancel();
    for server in servers {
        let _ = server.await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs all checks once and logs what would follow. Without access to the API server, only the checks that need it are
/// skipped.
pub(crate) async fn dry_run(settings: Settings) -> Result<ExitCode> {
    let Settings { config, node, namespace, identity: _, kubeconfig, monitoring } = settings;
    let config = for_one_node(config, monitoring);
    let access = ApiAccess::for_person(kubeconfig.as_deref()).await;
    let is_missing = matches!(access, ApiAccess::Missing(_));
    let report = knr_checks::run(
        &config.worker.check_plan(),
        Some(&node).filter(|node| !node.is_empty()).map(String::as_str),
        access,
    )
    .await;
    let failed = report.failures();
    tracing::info!(node, checks = report.checks.len(), failed, "checks done");
    let seen = if is_missing || node.is_empty() {
        tracing::info!("dry run: without a kubeconfig and NODE_NAME nothing is known of the node");
        None
    } else {
        let agent = format!("kube-node-ready/{} (dry run)", knr_core::VERSION);
        let client = knr_k8s::connect::client(kubeconfig.as_deref(), &agent).await?;
        look(&Api::new(client, Namespaces::of(&config, &namespace)), &config, &node).await
    };
    if let Some((view, pools)) = seen {
        log_decision(view, pools, config, report);
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { exit::FAILED.into() })
}

async fn look(api: &Api, config: &Config, node: &str) -> Option<(NodeView, Option<Fact>)> {
    let deadline = || Instant::now() + config.kubernetes.request_timeout();
    match api.own_node(node, deadline()).await {
        Ok(Some(view)) => {
            let pools = pools(api, &view, deadline()).await;
            Some((view, pools))
        }
        Ok(None) => {
            tracing::warn!(node, "there is no such node");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "the node cannot be read");
            None
        }
    }
}

/// Logs what the rules decide about the node, given the report.
fn log_decision(view: NodeView, pools: Option<Fact>, config: Config, report: Report) {
    let now = Timestamp::now();
    // Otherwise the engine would withhold its orders, and these are what is logged.
    let mut config = config;
    config.reconciliation.dry_run = false;
    let (mut engine, name, version) = (Engine::on_its_node(&config), view.id.name.clone(), view.version);
    let known = [Fact::Nodes(vec![view], version), Fact::Workers(Vec::new(), Version::default())];
    for fact in pools.into_iter().chain(known) {
        engine.learn(fact, now);
    }
    engine.lead();
    let mut plan = engine.decide(now);
    if let Some((order, stamp)) = plan.orders.iter().find_map(|order| match &order.action {
        Action::StartWorker { stamp } => Some((order, stamp.clone())),
        _ => None,
    }) {
        let mut runs = Runs::default();
        let (number, began) = runs.begin(stamp);
        engine.settle(order, Outcome::Done(vec![began]), now);
        if let Some(ended) = runs.ended(number, report) {
            engine.learn(ended, now);
        }
        plan = engine.decide(now);
    }
    let Plan { orders, changes, .. } = plan;
    if let Some((_, Some(state))) = changes.last() {
        tracing::info!(node = %name, state = %state, "node");
    }
    let action = orders.first().map_or_else(|| "nothing".to_owned(), |order| order.action.to_string());
    tracing::info!(node = %name, action, "dry run: this would be done");
}

//! What would be done to the node, without doing it.

use std::process::ExitCode;

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
use tokio::time::Instant;

use super::runs::Runs;
use super::{Settings, for_one_node, pools};
use crate::exit;

/// Runs all checks once and says what would follow. Without a way to the API server only those are skipped that need it.
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
        tell(view, pools, config, report);
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

/// Says what the rules make of the node and of the report.
fn tell(view: NodeView, pools: Option<Fact>, config: Config, report: Report) {
    let now = Timestamp::now();
    let (mut engine, name, version) = (Engine::on_its_node(config), view.id.name.clone(), view.version);
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
    let Plan { orders, news, .. } = plan;
    if let Some((_, Some(told))) = news.last() {
        tracing::info!(node = %name, state = %told, "node");
    }
    let action = orders.first().map_or_else(|| "nothing".to_owned(), |order| order.action.to_string());
    tracing::info!(node = %name, action, "dry run: this would be done");
}

//! A pod of the `DaemonSet`: the rules applied to one node, from that node itself.
//!
//! ```text
//!   API server --node--> keeper --writes--> API server
//!                        ^    \--workers--> runs of the checks in this process
//!                        \---- results ----/
//! ```
//!
//! To the rules, a run of the checks in this process is a worker like any other. State, patches and the consequences of
//! a result are therefore the same as with a controller, and either can take over from the other at any time.

mod dry_run;
mod keeper;
mod monitor;
mod runs;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use knr_checks::ApiAccess;
use knr_core::config::{CheckPlan, Config};
use knr_core::names;
use knr_core::policy::Retry;
use knr_core::report::Report;
use knr_core::view::NodeView;
use knr_core::world::Fact;
use knr_k8s::api::{Api, Failed, Namespaces};
use knr_web::{Health, NodeMetrics};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::exit;
use crate::serve::serve;
pub(crate) use dry_run::{dry_run, look_on};
use keeper::Keeper;
pub(crate) use monitor::Monitoring;

/// Monitoring raises the interval between reads of the node to at most this many seconds: a thousand nodes then send
/// seventeen reads a second.
const SELDOM_ENOUGH: u32 = 60;
/// Refusals in a row to read the node that count as a missing permission. An API server that has just started may
/// refuse, too.
const REFUSALS: u32 = 3;

/// The settings that a pod is started with.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The node that the pod runs on.
    pub(crate) node: String,
    pub(crate) namespace: String,
    /// The name of the pod in events.
    pub(crate) identity: String,
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How the node is monitored once it is verified; none if it is not.
    pub(crate) monitoring: Option<Monitoring>,
}

/// Adapts the configuration to a single node: drops everything that only a controller can do, with a warning.
pub(crate) fn for_one_node(mut config: Config, monitoring: Option<Monitoring>) -> Config {
    let nodes = &mut config.node_management;
    if !config.gates.is_empty() || nodes.delete_failed_nodes {
        tracing::warn!(
            "only a controller opens startup gates and deletes nodes; gates and deleteFailedNodes have no effect"
        );
    }
    config.gates.clear();
    nodes.after.clear();
    nodes.delete_failed_nodes = false;
    if let Some(Monitoring { interval, .. }) = monitoring {
        let seconds = u32::try_from(interval.as_secs()).unwrap_or(u32::MAX).max(1);
        let pace = &mut config.reconciliation;
        // There is a pod on every node, and each reads its node this often.
        pace.interval_seconds = pace.interval_seconds.max(seconds.min(SELDOM_ENOUGH));
        // The recovery of a node is noticed as quickly as its failure would be.
        pace.max_retry_delay_seconds = pace.max_retry_delay_seconds.min(seconds);
    }
    config
}

/// Runs until the stop signal.
pub(crate) async fn run(settings: Settings, stop: CancellationToken) -> Result<ExitCode> {
    let Settings { config, node, namespace, identity, kubeconfig, monitoring } = settings;
    let config = for_one_node(config, monitoring);
    let checks = Checks { plan: config.worker.check_plan(), node, kubeconfig };
    let metrics = Arc::new(NodeMetrics::new(&checks.node, &knr_checks::names(&checks.plan)));
    let health = Health::new();
    health.not_ready("reading the node");
    // The servers run until the very end, so that a probe during shutdown is answered with `stopping`.
    let over = CancellationToken::new();
    let servers = serve(&config, metrics.clone(), &health, &over).await?;
    let agent = format!("kube-node-ready/{} ({identity})", knr_core::VERSION);
    let client = knr_k8s::connect::client(checks.kubeconfig.as_deref(), &agent).await?;
    let api = Api::new(client, Namespaces::of(&config, &namespace));
    let code = match first_sight(&api, &config, &checks, &metrics, &stop).await {
        Sight::Node(view) => {
            let keeper =
                Keeper::new(keeper::Parts { api, config, identity, checks, metrics, health, monitoring });
            keeper.run(*view, stop).await;
            ExitCode::SUCCESS
        }
        Sight::Stopped => ExitCode::SUCCESS,
        Sight::Forbidden => exit::FORBIDDEN.into(),
    };
    over.cancel();
    for server in servers {
        let _ = server.await;
    }
    tracing::info!("stopped");
    Ok(code)
}

/// The checks of this node.
#[derive(Debug, Clone)]
struct Checks {
    plan: CheckPlan,
    node: String,
    kubeconfig: Option<PathBuf>,
}

impl Checks {
    /// Runs them once.
    async fn run(self) -> Report {
        let api = ApiAccess::for_worker(self.kubeconfig.as_deref()).await;
        knr_checks::run(&self.plan, Some(&self.node), api).await
    }
}

/// The outcome of the first read of the node.
enum Sight {
    Node(Box<NodeView>),
    Stopped,
    Forbidden,
}

/// Reads the node until it is found. As long as the API server is out of reach nothing can be written, but the checks
/// can show why: they run after each such failure.
async fn first_sight(
    api: &Api,
    config: &Config,
    checks: &Checks,
    metrics: &NodeMetrics,
    stop: &CancellationToken,
) -> Sight {
    let look = async {
        let (mut attempt, mut refusals) = (0_u32, 0);
        loop {
            attempt = attempt.saturating_add(1);
            match api.own_node(&checks.node, Instant::now() + config.kubernetes.request_timeout()).await {
                Ok(Some(view)) => return Sight::Node(Box::new(view)),
                Ok(None) => {
                    tracing::warn!(node = checks.node, "there is no such node yet");
                    refusals = 0;
                }
                Err(error @ Failed::Status(_)) if matches!(error.code(), Some(401 | 403)) => {
                    tracing::error!(%error, permission = "get nodes in the whole cluster", "a permission is missing");
                    refusals += 1;
                    if refusals == REFUSALS {
                        return Sight::Forbidden;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the node cannot be read; the checks show what is wrong");
                    refusals = 0;
                    metrics.ran(&checks.clone().run().await, Timestamp::now());
                }
            }
            let pause = Retry::from(&config.reconciliation).delay_after(attempt);
            sleep(pause.try_into().unwrap_or_default()).await;
        }
    };
    tokio::select! {
        sight = look => sight,
        () = stop.cancelled() => Sight::Stopped,
    }
}

/// Reads Karpenter's pools, if the node is a Karpenter node.
async fn pools(api: &Api, view: &NodeView, deadline: Instant) -> Option<Fact> {
    view.labels.get(names::KARPENTER_POOL_LABEL)?;
    match api.pools(deadline).await {
        Ok(fact) => Some(fact),
        Err(error) => {
            tracing::warn!(%error, "Karpenter's pools cannot be read; the node is not closed as long as they are not known");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_only_a_controller_can_do_is_left_out() {
        let text = "{gates: [{name: cni}], nodeManagement: {deleteFailedNodes: true, after: [cni]}}";
        let config = for_one_node(Config::parse(text).unwrap(), None);
        assert_eq!(config, Config::default());
    }

    #[test]
    fn monitoring_sets_the_pace() {
        let every = |seconds| Some(Monitoring { interval: Duration::from_secs(seconds), failures: 3 });
        let pace = |monitoring| {
            let pace = for_one_node(Config::default(), monitoring).reconciliation;
            (pace.interval_seconds, pace.max_retry_delay_seconds)
        };
        assert_eq!(pace(None), (30, 300));
        assert_eq!(pace(every(60)), (60, 60));
        assert_eq!(pace(every(10)), (30, 10));
        assert_eq!(pace(every(3600)), (60, 300));
    }
}

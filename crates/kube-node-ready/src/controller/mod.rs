//! The controller: watches, rules and writers, wired together.
//!
//! ```text
//!   watches --facts--> driver --orders--> writers --> API server
//!                      ^    \--questions--> readers --> API server
//!   lease, file, clock-/
//! ```

mod driver;
mod readers;
mod recorder;
mod reload;
#[cfg(test)]
mod testing;
mod watches;
mod writers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use knr_core::config::Config;
use knr_core::engine::Engine;
use knr_k8s::access::{self, Mode};
use knr_k8s::act::Actor;
use knr_k8s::api::{Api, Failed, Namespaces};
use knr_k8s::lease::{Elected, Election, Leadership};
use knr_web::{Health, Metrics};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::cmd::Overrides;
use crate::exit;
use crate::serve::serve;
use crate::telemetry::Telemetry;
use driver::{Drained, Driver, Inputs};
use readers::Readers;
use recorder::Recorder;
use reload::{Permits, Reload};
use watches::Watches;
use writers::Writers;

/// Facts that may wait for the loop. Beyond that the watches block, and with them the API server.
const FACTS: usize = 1024;
/// The loop counts as stuck if it does not run for this long.
const LOOP_STANDS_STILL: Duration = Duration::from_mins(1);
const FAR_FUTURE: Duration = Duration::from_hours(24 * 365 * 30);
const PAUSE: Duration = Duration::from_secs(2);

/// The settings that a controller is started with.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The file that the configuration came from, and its content.
    pub(crate) file: Option<(PathBuf, String)>,
    /// Settings that override the file.
    pub(crate) overrides: Overrides,
    pub(crate) namespace: String,
    /// The identity of this replica. No other replica may ever have the same one.
    pub(crate) identity: String,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) lead: Lead,
    pub(crate) telemetry: Telemetry,
}

/// How this replica comes to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// By taking the lease.
    ByLease,
    /// At once: it is the only one.
    Alone,
    /// At once: it never writes, so it does not interfere with a replica that does.
    LookingOn,
}

impl Lead {
    fn mode(self) -> Mode {
        match self {
            Self::ByLease | Self::Alone => Mode::Acting,
            Self::LookingOn => Mode::LookingOn,
        }
    }
}

/// Returns a function that asks which permissions a changed configuration lacks.
fn permits(api: &Api, lead: Lead) -> Permits {
    let api = api.clone();
    Box::new(move |config: Arc<Config>| {
        let api = api.clone();
        Box::pin(async move {
            access::missing(&api, &config, lead.mode(), config.kubernetes.request_timeout()).await
        })
    })
}

/// Runs until the stop signal.
pub(crate) async fn run(settings: Settings, stop: CancellationToken) -> Result<ExitCode> {
    let Settings { config, file, overrides, namespace, identity, kubeconfig, lead, telemetry } = settings;
    let config = Arc::new(config);
    let (health, metrics) = (Health::new(), Arc::new(Metrics::new(config.metrics.per_node)));
    health.not_ready("starting");
    // The servers run until the very end, so that a probe during shutdown is answered with `stopping`.
    let over = CancellationToken::new();
    let servers = serve(&config, metrics.clone(), &health, &over).await?;
    let agent = format!("kube-node-ready/{} ({identity})", knr_core::VERSION);
    let client = knr_k8s::connect::client(kubeconfig.as_deref(), &agent).await?;
    let api = Api::new(client, Namespaces::of(&config, &namespace));
    health.not_ready("asking for permissions");
    if !may_begin(&api, &config, lead, &stop).await {
        return Ok(if stop.is_cancelled() { ExitCode::SUCCESS } else { exit::FORBIDDEN.into() });
    }
    health.not_ready("reading the cluster");
    let (edits, changed) = watch::channel(Arc::clone(&config));
    if let Some((path, text)) = file {
        let set_level = Box::new(move |config: &Config| telemetry.set_level(config.logging.level));
        let metrics = Arc::clone(&metrics);
        let permits = permits(&api, lead);
        let warned = String::new();
        let reload = Reload { path, text, overrides, config: edits, metrics, set_level, permits, warned };
        tokio::spawn(reload.run());
    }
    let (leadership, elected) = match lead {
        Lead::ByLease => elect(&api, &config, &identity, &stop),
        Lead::Alone | Lead::LookingOn => (permanent(), None),
    };
    let drained =
        drive(Parts { api, config, health, metrics, identity, leadership, changed }, stop.clone()).await;
    match (drained, elected) {
        (Drained::All, Some(elected)) => {
            if let Err(error) = elected.release().await {
                tracing::warn!(%error, "the lease was not given back; others wait until it has expired");
            }
        }
        // A write that may still be carried out must not race with another leader.
        (Drained::NotAll, Some(_)) => tracing::warn!("the lease is kept until it expires"),
        (Drained::All | Drained::NotAll, None) => {}
    }
    over.cancel();
    for server in servers {
        let _ = server.await;
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Asks the API server whether this process has the permissions that it is going to need. Logs all missing ones at
/// once.
async fn may_begin(api: &Api, config: &Config, lead: Lead, stop: &CancellationToken) -> bool {
    loop {
        let limit = config.kubernetes.request_timeout();
        let asked = tokio::select! {
            asked = access::missing(api, config, lead.mode(), limit) => asked,
            () = stop.cancelled() => return false,
        };
        match asked {
            Ok(missing) if missing.is_empty() => return true,
            Ok(missing) => {
                for permission in &missing {
                    tracing::error!(%permission, "a permission is missing");
                }
                tracing::error!(
                    missing = missing.len(),
                    "`kube-node-ready manifests rbac` prints the roles that this configuration needs"
                );
                return false;
            }
            Err(error @ Failed::Status(_)) if matches!(error.code(), Some(401 | 403)) => {
                tracing::error!(%error, "the API server does not accept who we are; check the service account or the kubeconfig");
                return false;
            }
            Err(error) => {
                tracing::warn!(%error, "the API server cannot be asked for permissions; trying again");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = stop.cancelled() => return false,
                }
            }
        }
    }
}

/// Leadership that never ends.
fn permanent() -> watch::Receiver<Leadership> {
    watch::channel(Leadership::Leading { until: Instant::now() + FAR_FUTURE }).1
}

/// Starts leader election.
fn elect(
    api: &Api,
    config: &Config,
    identity: &str,
    stop: &CancellationToken,
) -> (watch::Receiver<Leadership>, Option<Elected>) {
    let stopped = stop.clone();
    let elected = Election {
        client: api.client().clone(),
        namespace: api.namespaces().lease.clone(),
        name: config.leader_election.lease_name.clone(),
        identity: identity.to_owned(),
        settings: config.leader_election.clone(),
    }
    .start(async move { stopped.cancelled().await });
    let mut trouble = elected.trouble.clone();
    tokio::spawn(async move {
        while trouble.changed().await.is_ok() {
            let error = trouble.borrow_and_update().clone();
            if let Some(error) = error {
                tracing::warn!(%error, "there is trouble with the lease");
            }
        }
    });
    (elected.leadership.clone(), Some(elected))
}

/// The parts that the loop is made of.
struct Parts {
    api: Api,
    config: Arc<Config>,
    health: Health,
    metrics: Arc<Metrics>,
    identity: String,
    leadership: watch::Receiver<Leadership>,
    changed: watch::Receiver<Arc<Config>>,
}

async fn drive(parts: Parts, stop: CancellationToken) -> Drained {
    let Parts { api, config, health, metrics, identity, mut leadership, changed } = parts;
    let clock = Clock::start();
    let (facts, received) = mpsc::channel(FACTS);
    let engine = Engine::new(&config);
    let watches =
        Watches::start(api.clone(), engine.feeds(), facts.clone(), health.clone(), Arc::clone(&metrics));
    let (writers, ended) = Writers::new(Actor::new(api.clone(), identity), clock);
    let readers = Readers::new(api, facts);
    if engine.policies().delete_nodes() {
        readers.read_ledger(config.kubernetes.request_timeout());
    }
    leadership.mark_changed();
    let pulse = health.vital("loop", LOOP_STANDS_STILL);
    let driver = Driver {
        engine,
        clock,
        config,
        writers,
        readers,
        watches,
        recorder: Recorder::new(Arc::clone(&metrics)),
        metrics,
        health,
        pulse,
        leadership: Leadership::Standby { holder: None },
        wake: None,
    };
    driver.run(Inputs { facts: received, ended, leadership, config: changed, stop }).await
}

//! What a run is made of, drawn from its seed.

use jiff::SignedDuration;
use knr_core::config::{Config, OnReboot, RetryBackoff, StartupGate};
use knr_core::names;
use knr_core::view::PoolView;

use crate::actors::{ActorEvent, Fit};
use crate::faults::{Faults, Weather};
use crate::rng::Rng;

/// What a run is made of.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// From which everything else follows.
    pub(crate) seed: u64,
    /// How many processes of ours there are.
    pub(crate) replicas: usize,
    /// How many nodes join.
    pub(crate) nodes: usize,
    /// How many things others do.
    pub(crate) disturbances: usize,
    /// How long anything may go wrong.
    pub(crate) stormy: SignedDuration,
    /// The configuration at the start.
    pub(crate) config: Config,
    /// Karpenter's pools.
    pub(crate) pools: Vec<PoolView>,
    /// What goes wrong.
    pub(crate) faults: Faults,
    /// Whether the machines are fit, unless that is left to chance.
    pub(crate) fit: Option<Fit>,
    /// What others do, and when, in milliseconds after the start.
    pub(crate) script: Vec<(u64, ActorEvent)>,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub(crate) fn of_seed(seed: u64) -> Self {
        // Another stream of chance than that of the run itself.
        let mut rng = Rng::new(seed ^ 0x5ca1_ab1e);
        let wild = rng.below(4);
        let weather = Weather {
            write: [0, 30, 100, 250][usize::try_from(wild).unwrap_or(0)],
            event: [0, 20, 60, 150][usize::try_from(rng.below(4)).unwrap_or(0)],
            watch_breaks: rng.below(3) * 15,
            stale_list: rng.below(3) * 300,
            delay: [0, 50, 1_000, 8_000][usize::try_from(rng.below(4)).unwrap_or(0)],
        };
        Self {
            seed,
            replicas: usize::try_from(rng.between(1, 2)).unwrap_or(1),
            nodes: usize::try_from(rng.between(1, 6)).unwrap_or(1),
            disturbances: usize::try_from(rng.below(4) * 12).unwrap_or(0),
            stormy: SignedDuration::from_mins(8),
            config: config(&mut rng),
            pools: pools(),
            faults: Faults::Weather(weather),
            fit: None,
            script: Vec::new(),
        }
    }

    /// One node, one process, nothing that goes wrong.
    #[must_use]
    pub(crate) fn plain() -> Self {
        Self {
            seed: 0,
            replicas: 1,
            nodes: 1,
            disturbances: 0,
            stormy: SignedDuration::from_mins(2),
            config: base(),
            pools: pools(),
            faults: Faults::None,
            fit: Some(Fit::Always),
            script: Vec::new(),
        }
    }
}

/// Short spans, so that a life fits into minutes.
fn base() -> Config {
    let mut config = Config::default();
    config.worker.timeout_seconds = 30;
    config.worker.pending_timeout_seconds = 40;
    config
}

fn config(rng: &mut Rng) -> Config {
    let mut config = base();
    config.reconciliation.max_retries = [1, 3, 5][usize::try_from(rng.below(3)).unwrap_or(0)];
    if rng.permille(300) {
        config.reconciliation.retry_backoff = RetryBackoff::Linear;
    }
    config.limits.max_concurrent_workers = [1, 2, 100][usize::try_from(rng.below(3)).unwrap_or(0)];
    let on_reboot = [OnReboot::Verify, OnReboot::Close, OnReboot::Ignore];
    config.node_management.on_reboot = *rng.pick(&on_reboot).unwrap_or(&OnReboot::Verify);
    config.node_management.backfill = rng.permille(250);
    config.node_management.delete_failed_nodes = rng.permille(400);
    config.limits.deletion.max_failing_percent = 60;
    if rng.permille(400) {
        let startup = StartupGate::default();
        if rng.permille(500) {
            config.node_management.after = vec![startup.name.clone()];
        }
        config.gates = vec![startup];
    }
    config
}

/// One pool that knows our gates, and one that does not.
fn pools() -> Vec<PoolView> {
    let keys = [names::UNVERIFIED_TAINT.to_owned(), names::STARTUP_TAINT.to_owned()];
    vec![
        PoolView { name: "aware".to_owned(), startup_taints: keys.into_iter().collect() },
        PoolView { name: "unaware".to_owned(), startup_taints: std::iter::empty().collect() },
    ]
}

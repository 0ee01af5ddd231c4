//! The scenario of a run, drawn from its seed.

mod config;

use jiff::SignedDuration;
use knr_core::config::{Config, Effect, StartupGate};
use knr_core::names;
use knr_core::view::PoolView;

use crate::Shape;
use crate::actors::{ActorEvent, Fit};
use crate::faults::{Faults, Weather};
use crate::keeper::Monitoring;
use crate::outages::Outages;
use crate::refusals::Refusals;
use crate::rng::Rng;
use crate::run::Sim;

use config::base;
pub(crate) use config::{INIT_POD_ANNOTATIONS, INIT_PODS, InitPod, edit, gate_keys, is_valid};

/// Everything that determines a run.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// The seed of all random numbers.
    pub(crate) seed: u64,
    /// Where the nodes are managed from.
    pub(crate) mode: Mode,
    /// The number of controller processes.
    pub(crate) replicas: usize,
    /// The maximum number of important writes that each process has in flight, and of all others.
    pub(crate) places: (usize, usize),
    /// The number of nodes that join.
    pub(crate) nodes: usize,
    /// The number of disturbances by other actors.
    pub(crate) disturbances: usize,
    /// The length of the storm, in which there are faults.
    pub(crate) stormy: SignedDuration,
    /// The configuration at the start.
    pub(crate) config: Config,
    /// Karpenter's pools.
    pub(crate) pools: Vec<PoolView>,
    /// The time in milliseconds after which a controller that starts knows the pools.
    pub(crate) pools_known_after: u64,
    /// The faults of writes and watches.
    pub(crate) faults: Faults,
    /// The outages.
    pub(crate) outages: Outages,
    /// The writes that the API server refuses.
    pub(crate) refusals: Refusals,
    /// Whether the checks pass on the machines. Drawn at random for each of them if `None`.
    pub(crate) fit: Option<Fit>,
    /// If drawn, the number of machines in a thousand on which the checks fail from the start.
    pub(crate) unfit: u64,
    /// Whether init pods run on every node, regardless of whether a gate waits for them.
    pub(crate) has_init_pods: bool,
    /// Events of other actors, each with its time in milliseconds after the start.
    pub(crate) script: Vec<(u64, ActorEvent)>,
}

/// Where the nodes are managed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// From controllers, of which one leads.
    Controllers,
    /// From a pod on each node, which may monitor verified nodes.
    OnNodes(Option<Monitoring>),
}

/// The size of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Small enough to run many of them.
    Small,
    /// Large enough for many nodes to fail at once, and for more than ten candidates for a reference run.
    Large,
}

impl Scenario {
    /// Returns the scenario of a seed.
    #[must_use]
    pub(crate) fn of_seed(seed: u64) -> Self {
        // A different random stream than that of the run itself.
        let mut rng = Rng::new(seed ^ 0x5ca1_ab1e);
        let size = if Shape::of(seed) == Shape::Large { Size::Large } else { Size::Small };
        let (fewest, most) = match size {
            Size::Small => (1, 6),
            Size::Large => (12, 60),
        };
        let unfit = match size {
            Size::Small => 300,
            Size::Large => choose(&mut rng, [20, 80, 250]),
        };
        let outages = choose(&mut rng, [0, 0, 1, 3]);
        let stormy = SignedDuration::from_mins(if outages == 0 { 8 } else { 12 });
        let mut config = config::draw(size, &mut rng);
        let (mode, replicas) = match Shape::of(seed) {
            Shape::Small | Shape::Large => {
                (Mode::Controllers, usize::try_from(rng.between(1, 2)).unwrap_or(1))
            }
            Shape::OnNodes => {
                config.gates.clear();
                config.node_management.after.clear();
                let monitoring = Monitoring::new(SignedDuration::from_secs(30), 3);
                (Mode::OnNodes(rng.permille(600).then_some(monitoring)), 0)
            }
        };
        let refusals = if mode == Mode::Controllers && rng.permille(120) {
            Refusals::draw(&mut rng, Sim::start())
        } else {
            Refusals::default()
        };
        Self {
            seed,
            refusals,
            has_init_pods: mode == Mode::Controllers && (!config.gates.is_empty() || rng.permille(200)),
            mode,
            replicas,
            places: choose(&mut rng, [(42, 8), (42, 8), (3, 1), (1, 1)]),
            nodes: usize::try_from(rng.between(fewest, most)).unwrap_or(1),
            disturbances: usize::try_from(rng.below(4) * 12).unwrap_or(0),
            stormy,
            config,
            pools: config::pools(),
            pools_known_after: choose(&mut rng, [0, 0, 2_000, 120_000]),
            faults: Faults::Weather(weather(&mut rng)),
            outages: Outages::draw(&mut rng, outages, Sim::start(), stormy),
            fit: None,
            unfit,
            script: Vec::new(),
        }
    }

    /// Returns the notable features of this scenario, to count how often each of them was tried.
    pub(crate) fn features(&self) -> impl Iterator<Item = &'static str> {
        let (nodes, gates) = (&self.config.node_management, &self.config.gates);
        let evicts = nodes.taints.iter().any(|taint| taint.effect == Effect::NoExecute);
        let verification = names::VERIFICATION_GATE.to_owned();
        let waits =
            |gate: &StartupGate| gate.after.as_ref().is_some_and(|after| after.contains(&verification));
        let features = [
            (self.nodes >= 40, "40 to 60 nodes"),
            (gates.len() == 2, "two startup gates"),
            (gates.iter().any(waits), "startup gate after verification"),
            (!nodes.after.is_empty(), "verification after startup gates"),
            (nodes.taints.len() > 1, "several verification taints"),
            (evicts, "gate with NoExecute"),
            (self.pools_known_after > 0, "NodePools unknown at first"),
            (self.mode == Mode::OnNodes(None), "DaemonSet"),
            (matches!(self.mode, Mode::OnNodes(Some(_))), "DaemonSet with monitoring"),
        ];
        features.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name)
    }

    /// Returns a scenario with one node, one process and no faults.
    #[must_use]
    pub(crate) fn plain() -> Self {
        Self {
            seed: 0,
            mode: Mode::Controllers,
            replicas: 1,
            places: (42, 8),
            nodes: 1,
            disturbances: 0,
            stormy: SignedDuration::from_mins(2),
            config: base(),
            pools: config::pools(),
            pools_known_after: 0,
            faults: Faults::None,
            outages: Outages::default(),
            refusals: Refusals::default(),
            fit: Some(Fit::Always),
            unfit: 0,
            has_init_pods: false,
            script: Vec::new(),
        }
    }
}

fn weather(rng: &mut Rng) -> Weather {
    Weather {
        write: choose(rng, [0, 30, 100, 250]),
        event: choose(rng, [0, 20, 60, 150]),
        watch_breaks: rng.below(3) * 15,
        stale_list: rng.below(3) * 300,
        delay: choose(rng, [0, 50, 1_000, 8_000]),
        latency: choose(rng, [0, 0, 0, 100, 2_000]),
    }
}

/// Returns one of several values, all equally likely.
fn choose<T: Copy, const N: usize>(rng: &mut Rng, of: [T; N]) -> T {
    of[usize::try_from(rng.below(N as u64)).unwrap_or(0)]
}

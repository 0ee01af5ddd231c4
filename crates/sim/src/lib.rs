//! The rules inside a hostile simulated cluster.
//!
//! Everything is drawn from a seed and happens on a simulated clock: kubelets, workers, an autoscaler, a rude writer
//! and an operator act on a simulated API server, while requests fail, events get lost, controllers crash, two
//! controllers lead at once, and DNS, the API server or the registry are down for minutes. The rules are those of the
//! product. Only the cluster is simulated.
//!
//! ```text
//!   actors ----\                        /--> Engine (replica 0)
//!               >--> Api --> watches --<
//!   orders ----/      |                 \--> Engine (replica 1)
//!                     v
//!                  Monitor: S1 to S6 and L3 at every decision and write, L4 all along, L1 and L2 at the end
//! ```

mod actors;
mod api;
pub mod coverage;
pub mod exhaustive;
mod faults;
mod invariants;
mod keeper;
mod observe;
mod outages;
mod refusals;
mod replica;
mod rng;
mod run;
mod scenario;
pub mod stats;
mod story;
mod writers;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, resume_unwind};

use jiff::SignedDuration;
use serde_json::Value;

use crate::run::Sim;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::story::StoryMode;

/// The time after the last fault in which every node reaches its final state.
const SETTLE: SignedDuration = SignedDuration::from_mins(20);

/// Applies a JSON patch to a node as the simulated API server does, for comparison with a real one.
pub fn patch_node(node: &Value, ops: &Value) -> Result<Value, String> {
    api::patched(node, ops)
}

/// What kind of cluster a seed is. It follows from its number, so that each kind can be run by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// Up to six nodes and one or two controllers.
    Small,
    /// Up to sixty nodes and one or two controllers. It costs as much as a dozen small ones.
    Large,
    /// Up to six nodes, each looked after by a pod of its own.
    OnNodes,
}

impl Shape {
    /// Returns the shape of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        match seed % 25 {
            24 => Self::Large,
            8 | 16 => Self::OnNodes,
            _ => Self::Small,
        }
    }
}

/// Runs a seed. The error is the story of a broken rule, or of a panic.
pub fn run_seed(seed: u64) -> Result<Stats, String> {
    let run = |mode| {
        let scenario = Scenario::of_seed(seed);
        let mut sim = Sim::new(&scenario, mode);
        play(&mut sim, &scenario).map(|()| sim.stats)
    };
    caught(seed, || run(StoryMode::Off).or_else(|_| run(StoryMode::On)))
}

fn caught(
    seed: u64,
    run: impl FnOnce() -> Result<Stats, String> + std::panic::UnwindSafe,
) -> Result<Stats, String> {
    let result = catch_unwind(run).unwrap_or_else(|panic| Err(format!("panicked: {}\n", message(&*panic))));
    result.map_err(|story| {
        format!("seed {seed}: {story}  to see it again: cargo run --release -p knr-sim -- --seed {seed}\n")
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// The results of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    /// The statistics of all runs.
    pub stats: Stats,
    /// The stories of the failed runs, in the order of their seeds.
    pub failures: Vec<String>,
}

/// Runs many seeds in parallel, on all processors.
#[must_use]
pub fn run_seeds(seeds: &[u64]) -> Summary {
    run_all(seeds, run_seed)
}

fn run_all(seeds: &[u64], run: impl Fn(u64) -> Result<Stats, String> + Sync) -> Summary {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let results = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|part| {
                let (seeds, run) = (seeds.iter().copied().skip(part).step_by(threads), &run);
                scope.spawn(move || seeds.map(|seed| (seed, run(seed))).collect::<Vec<_>>())
            })
            .collect();
        // A thread whose seeds are lost must not look like one without failures.
        let joined =
            handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().collect::<BTreeMap<_, _>>()
    });
    let mut summary = Summary::default();
    for result in results.into_values() {
        match result {
            Ok(stats) => summary.stats.add(stats),
            Err(story) => summary.failures.push(story),
        }
    }
    summary
}

fn play(sim: &mut Sim, scenario: &Scenario) -> Result<(), String> {
    sim.run_for(scenario.stormy)?;
    sim.calm_down();
    sim.run_for(scenario.stormy + SETTLE)?;
    invariants::at_end(sim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "seed 5")]
    fn no_panic_is_lost_with_its_thread() {
        let _ = run_all(&[4, 5, 6], |seed| if seed == 5 { panic!("seed 5") } else { Ok(Stats::default()) });
    }

    #[test]
    fn a_run_that_panics_fails_with_its_seed() {
        let story = caught(7, || panic!("at the disco")).unwrap_err();
        assert!(story.starts_with("seed 7: panicked: at the disco\n"), "{story}");
        assert!(story.contains("--seed 7"), "{story}");
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        for seed in [1, 8, 24] {
            let steps = || run_seed(seed).map(|stats| (stats.steps, stats.writes, stats.events));
            assert_eq!(steps(), steps(), "seed {seed}");
        }
    }
}

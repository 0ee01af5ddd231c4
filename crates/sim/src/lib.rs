//! The rules inside a hostile simulated cluster.
//!
//! Everything is drawn from a seed and happens on a clock of its own: kubelets, workers, an autoscaler, a rude
//! writer and a person act on a simulated API server, while requests fail, events get lost and our processes crash,
//! and two of them may lead at once. The rules are the product's own; only the cluster is not real.
//!
//! ```text
//!   actors ----\                        /--> Engine (replica 0)
//!               >--> Api --> watches --<
//!   orders ----/      |                 \--> Engine (replica 1)
//!                     v
//!                  Monitor: S1 to S6 at every write, L1 and L2 at the end
//! ```

mod actors;
mod api;
pub mod exhaustive;
mod faults;
mod invariants;
mod observe;
mod replica;
mod rng;
mod run;
mod scenario;
pub mod stats;
mod story;

use jiff::SignedDuration;
use serde_json::Value;

use crate::run::Sim;
use crate::scenario::Scenario;
use crate::stats::Stats;

/// After the last fault everything has come to its end within this long.
const SETTLE: SignedDuration = SignedDuration::from_mins(20);

/// What the simulated API server makes of a JSON patch for a node, for comparison with a real one.
pub fn patch_node(node: &Value, ops: &Value) -> Result<Value, String> {
    api::patched(node, ops)
}

/// Runs a seed. What went wrong is told as a story.
pub fn run_seed(seed: u64) -> Result<Stats, String> {
    let scenario = Scenario::of_seed(seed);
    let mut sim = Sim::new(&scenario);
    let result = play(&mut sim, &scenario);
    match result {
        Ok(()) => Ok(sim.stats),
        Err(story) => Err(format!(
            "seed {seed}: {story}  to see it again: cargo run --release -p knr-sim -- --seed {seed}\n"
        )),
    }
}

/// What many seeds came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// All runs together.
    pub stats: Stats,
    /// What went wrong, with its story.
    pub failures: Vec<String>,
}

/// Runs many seeds, on all processors.
#[must_use]
pub fn run_seeds(seeds: std::ops::Range<u64>) -> Summary {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let parts = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|part| {
                let seeds = seeds.clone().filter(move |seed| seed % threads == part);
                scope.spawn(move || seeds.map(run_seed).collect::<Vec<_>>())
            })
            .collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    let mut summary = Summary::default();
    for part in parts {
        match part {
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

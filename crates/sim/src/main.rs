//! Runs the simulation: one seed with its story, many seeds, or every plan for short lives of a node.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use knr_sim::exhaustive::{self, LIVES, Life, Matrix};
use knr_sim::{Shape, coverage};

/// The rules of kube-node-ready inside a hostile simulated cluster.
#[derive(Debug, Parser)]
struct Args {
    /// Run this seed only and print its story if a rule is broken.
    #[arg(long)]
    seed: Option<u64>,
    /// Run so many seeds.
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// Begin with this seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Of these seeds, run only those of one kind.
    #[arg(long)]
    only: Option<Shape>,
    /// Say what happened, and how often.
    #[arg(long)]
    coverage: bool,
    /// Try every plan for small lives instead.
    #[arg(long)]
    exhaustive: bool,
    /// Print one line for each run that broke a rule, and no stories.
    #[arg(long)]
    headlines: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let begun = Instant::now();
    let failures = if args.exhaustive { matrix() } else { seeds(&args) };
    println!("{:.1} s", begun.elapsed().as_secs_f64());
    if args.headlines {
        for story in &failures {
            println!("broken: {}", story.lines().next().unwrap_or_default());
        }
    } else {
        for story in failures.iter().take(3) {
            println!("\n{story}");
        }
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn seeds(args: &Args) -> Vec<String> {
    let (from, to) = match args.seed {
        Some(seed) => (seed, seed + 1),
        None => (args.from, args.from + args.seeds),
    };
    let seeds: Vec<u64> =
        (from..to).filter(|seed| args.only.is_none_or(|only| Shape::of(*seed) == only)).collect();
    let summary = knr_sim::run_seeds(&seeds);
    println!(
        "{} seeds, {} steps, {} writes, {} different states of a node, {} failed",
        seeds.len(),
        summary.stats.steps,
        summary.stats.writes,
        summary.stats.states.len(),
        summary.failures.len()
    );
    if args.coverage {
        for (what, times) in &summary.stats.seen {
            println!("  {times:>8} {what}");
        }
        if seeds.len() >= 4_000 {
            for rare in coverage::too_rare(&summary.stats) {
                println!("  too rare: {rare}");
            }
        }
    }
    for (rule, seeds) in by_rule(&summary.failures) {
        let first: Vec<&str> = seeds.iter().take(8).copied().collect();
        println!("  {:>8} times {rule}: seed {}", seeds.len(), first.join(", "));
    }
    summary.failures
}

/// Groups the seeds that failed by the rule that they broke.
fn by_rule(failures: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut rules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for story in failures {
        let headline = story.lines().next().unwrap_or_default();
        let (seed, rule) = headline.split_once(": ").unwrap_or(("", headline));
        let seed = seed.trim_start_matches("seed ");
        let seeds = rules.entry(rule.split(" although ").next().unwrap_or(rule)).or_default();
        seeds.push(seed);
    }
    rules
}

fn matrix() -> Vec<String> {
    let mut failures = Vec::new();
    let mut print = |life: Life, faults: &str, matrix: Matrix| {
        println!(
            "{life:?}: {} writes, {} events; at most {} workers for a node; {} plans with {faults}, {} failed",
            matrix.writes,
            matrix.events,
            matrix.most_workers,
            matrix.plans,
            matrix.failures.len()
        );
        failures.extend(matrix.failures);
    };
    for life in LIVES {
        print(life, "one fault", exhaustive::singles(life));
    }
    print(Life::Sound, "two faults", exhaustive::pairs(Life::Sound));
    failures
}

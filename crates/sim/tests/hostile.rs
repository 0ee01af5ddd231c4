//! The rules hold whatever goes wrong.

#![allow(clippy::panic, reason = "a test ends by panicking")]

use knr_sim::exhaustive::{LIVES, Life, pairs, singles};
use knr_sim::{coverage, run_seeds};

fn assert_none(failures: &[String]) {
    if let Some(story) = failures.first() {
        panic!("{} runs broke a rule; the first one:\n{story}", failures.len());
    }
}

#[test]
fn no_rule_breaks_in_four_thousand_seeds() {
    let summary = run_seeds(&(0..4_000).collect::<Vec<_>>());
    assert_none(&summary.failures);
    assert!(summary.stats.steps > 2_000_000, "only {} steps: is anything happening?", summary.stats.steps);
    assert!(summary.stats.states.len() > 2_000, "only {} states were seen", summary.stats.states.len());
    let rare = coverage::too_rare(&summary.stats);
    assert!(rare.is_empty(), "too rare to show anything:\n{}", rare.join("\n"));
}

#[test]
fn every_single_fault_in_every_small_life_ends_well() {
    for life in LIVES {
        let matrix = singles(life);
        assert_none(&matrix.failures);
        assert!(matrix.plans >= 11 * matrix.writes + 2 * matrix.events, "{life:?} left plans out");
    }
}

#[test]
fn every_two_faults_in_the_life_of_a_sound_node_end_well() {
    assert_none(&pairs(Life::Sound).failures);
}

#[test]
fn a_sound_node_costs_five_writes_and_one_worker_whatever_goes_wrong_once() {
    let matrix = singles(Life::Sound);
    assert_eq!(matrix.writes_per_node, 5, "create worker, patch node, event, condition, delete worker");
    assert_eq!(matrix.most_workers, 1, "a fault must not make a second worker");
}

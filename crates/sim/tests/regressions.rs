//! Seeds that once broke a rule, each with the defect that it exposed. Add any further seed that breaks a rule.

#![allow(clippy::panic, reason = "a test ends by panicking")]

use knr_sim::run_seed;

const SEEDS: [(u64, &str); 14] = [
    (
        580,
        "an annotation that outlived a restart, seen together with the new containers, opened a startup gate",
    ),
    (5209, "a proof of an earlier process, written by a clock that was ahead, let a node be deleted"),
    (5847, "a node whose creation was never reported had been restarted before it was seen"),
    (8343, "a dead machine with a passed worker waited for its startup gate without an end"),
    (8557, "a deletion that was asked for arrived after it was no longer asked for"),
    (
        9957,
        "a pass that was first seen after a controller restart counted as newer than the failure before it",
    ),
    (13448, "a machine that died right after its restart still showed the pods of before as ready"),
    (18723, "a node that was read again under a known name had been restarted before"),
    (1134, "a node on probation waited for a worker that its dead kubelet never ended"),
    (50341, "a pass was taken for as new as the late news that its worker ran, and let a node be deleted"),
    (51952, "an annotation that outlived a restart was believed by a controller that came after it"),
    (62380, "a node whose creation and whose pods were never reported had been restarted before it was seen"),
    (2898, "a failure of other checks, found recorded at the start, was taken for the beginning of a trial"),
    (74314, "a failure recorded by a clock that was behind made an earlier pass a later one"),
];

#[test]
fn what_once_broke_a_rule_breaks_none_now() {
    for (seed, name) in SEEDS {
        if let Err(story) = run_seed(seed) {
            panic!("{name}:\n{story}");
        }
    }
}

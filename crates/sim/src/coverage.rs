//! The minimum number of times that each thing must happen in the 4,000 seeds that the tests run. A simulation in
//! which something no longer happens proves nothing about it, yet keeps passing.

use crate::stats::Stats;

/// The minimum counts: about half of what was measured when the list was made.
const FLOORS: &[(&str, usize)] = &[
    ("40 to 60 nodes", 40),
    ("DaemonSet", 60),
    ("DaemonSet with monitoring", 90),
    ("NodePool added", 600),
    ("NodePool edited", 1_000),
    ("NodePool event lost", 90),
    ("NodePool removed", 400),
    ("NodePools unknown at first", 900),
    ("attempt asked for", 1_000),
    ("clock off by up to two hours", 900),
    ("reference run recorded", 2_000),
    ("reference run with more than ten nodes to choose from", 200),
    ("deadline of a worker that runs", 200),
    ("deadline of a worker that was not started", 450),
    ("deletion reserved", 200),
    ("event dropped: waited for too long", 150),
    ("failure recorded", 19_000),
    ("full list", 3_000),
    ("gate closed: failed again", 80),
    ("gate closed: never had it", 300),
    ("gate closed: restarted", 400),
    ("gate with NoExecute", 300),
    ("image not pulled", 1_200),
    ("leader frozen", 300),
    ("machine joins again in the same boot", 100),
    ("many nodes paused for good", 300),
    ("node deleted", 200),
    ("node deleted by its claim", 100),
    ("node joins before it is Ready", 7_000),
    ("node not Ready for a while", 1_800),
    ("nothing is sent: the lease has ended", 300),
    ("occupancy asked: busy", 300),
    ("occupancy asked: idle", 300),
    ("order dropped: the lease has ended", 200),
    ("order taken back: its node or the configuration has changed", 1_300),
    ("order taken back: waited for too long", 300),
    ("outage of DNS", 500),
    ("outage of the API server", 500),
    ("outage of the registry", 500),
    ("outage of the way to the API server", 400),
    ("power failure", 500),
    ("reload: after", 300),
    ("reload: after of a gate", 24),
    ("reload: annotationOnly", 27),
    ("reload: backfill", 150),
    ("reload: checks", 110),
    ("reload: completedAnnotation", 25),
    ("reload: deleteFailedNodes", 400),
    ("reload: dnsTestDomains", 90),
    ("reload: dryRun", 190),
    ("reload: effect of a gate", 30),
    ("reload: exclude", 200),
    ("reload: gates", 110),
    ("reload: how workers run", 100),
    ("reload: includeControlPlane", 150),
    ("reload: intervalSeconds", 150),
    ("reload: limits.deletion", 180),
    ("reload: maxConcurrentWorkers", 200),
    ("reload: maxInconclusiveRuns", 190),
    ("reload: maxRetries", 190),
    ("reload: minimumHoldSeconds", 28),
    ("reload: namespaces", 28),
    ("reload: onReboot", 200),
    ("reload: paused", 180),
    ("reload: podSelector", 30),
    ("reload: readyAnnotation", 28),
    ("reload: requestTimeoutSeconds", 80),
    ("reload: retry settings", 180),
    ("reload: taint of a gate", 30),
    ("reload: taints", 200),
    ("reload: verifiedLabel", 200),
    ("reload: worker timeouts", 100),
    ("reload: worker.image", 90),
    ("report of a deletion sent again", 4),
    ("report: a kind that is not in the table", 4_500),
    ("report: not readable", 2_000),
    ("report: several failures, one of them the node's own", 4_500),
    ("report: the cluster's fault", 1_100),
    ("report: the installation's fault", 100),
    ("report: the node's own fault", 8_000),
    ("restore", 150),
    ("reference run", 2_000),
    ("run without a verdict recorded", 9_000),
    ("several verification taints", 300),
    ("startup gate after verification", 120),
    ("startup gate opened", 4_000),
    ("startup gate refused by a policy", 1_300),
    ("ten or more nodes on probation at once", 20),
    ("two leaders at once", 190),
    ("two startup gates", 300),
    ("verification after startup gates", 300),
    ("verification gate opened", 9_000),
    ("verified node found broken", 40),
    ("worker waits for a node that is not Ready", 90_000),
    ("write refused by a policy", 14_000),
];

/// Returns what happened too rarely.
#[must_use]
pub fn too_rare(stats: &Stats) -> Vec<String> {
    let times = |what: &str| stats.seen.get(what).copied().unwrap_or(0);
    let rare = FLOORS.iter().filter(|(what, least)| times(what) < *least);
    rare.map(|(what, least)| format!("{what}: {} times, at least {least} are expected", times(what)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_happened_is_reported() {
        let mut stats = Stats::default();
        for (what, least) in &FLOORS[1..] {
            stats.count_many(what, *least);
        }
        let (first, least) = FLOORS[0];
        assert_eq!(too_rare(&stats), [format!("{first}: 0 times, at least {least} are expected")]);
    }
}

//! The cluster's DNS goes away and comes back. That is no node's fault: none is deleted, none that was open is
//! closed, and all end up open without help.

use std::time::{Duration, Instant};

use anyhow::Result;
use knr_e2e::{Cluster, Config, Controller, GateLog, Node};
use lab::Fault;

const MAX_RETRIES: u64 = 3;
const MAX_RETRY_DELAY: u32 = 5;
const MAX_INCONCLUSIVE_RUNS: u64 = 2;
/// A run ends after `worker.timeoutSeconds` at the latest, and the kubelet has ten seconds to act on it.
const RUN: Duration = Duration::from_secs(30);
/// By then a node has had another attempt, however long it has been failing.
const NEXT_ATTEMPT: Duration = Duration::from_secs(MAX_RETRY_DELAY as u64).saturating_add(RUN);

#[test]
fn no_node_suffers_for_an_outage_of_the_dns() -> Result<()> {
    let cluster = Cluster::start("dependencies", 4)?;
    let config = Config::new()
        .set("nodeManagement.deleteFailedNodes", true)
        .set("reconciliation.maxRetries", MAX_RETRIES)
        .set("reconciliation.maxRetryDelaySeconds", MAX_RETRY_DELAY)
        .set("reconciliation.maxInconclusiveRuns", MAX_INCONCLUSIVE_RUNS)
        .set("worker.checkTimeoutSeconds", 2)
        .set("worker.retries", 0)
        // It is the only controller.
        .set("leaderElection.enabled", false);
    let _controller = Controller::start(&cluster, &config, "a")?;
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        let node = cluster.node(name)?;
        node.close()?;
        nodes.push(node);
    }
    nodes.iter().try_for_each(Node::wait_until_open)?;
    let [during, later] = a_node_that_joins_during_the_outage_opens_after_it(&cluster, &nodes)?;
    nodes.extend([during, later]);
    a_node_that_is_closed_while_dns_fails_everywhere_opens_after_it(&cluster, &nodes, &cluster.node("n4")?)?;
    nodes_that_lost_their_label_in_the_outage_stay_open_and_end_verified(&cluster, &nodes)
}

/// Another node joins as soon as DNS is back, and passes: that proves nothing about a node without an attempt since.
fn a_node_that_joins_during_the_outage_opens_after_it<'c>(
    cluster: &'c Cluster,
    verified: &[Node<'c>],
) -> Result<[Node<'c>; 2]> {
    let gates = watch(verified)?;
    cluster.stop_dns()?;
    let during = cluster.join("during")?;
    let during_gate = during.gate_log()?;
    during.wait_for_results(MAX_RETRIES)?;
    assert!(!during.is_open()?, "its checks cannot pass without DNS");
    cluster.start_dns()?;
    let back = Instant::now();
    let later = cluster.join("later")?;
    let left = NEXT_ATTEMPT.saturating_sub(back.elapsed());
    cluster.wait_at_most(left, "the node that failed in the outage to open", || {
        assert!(during.exists()?, "a healthy node was deleted:\n{}", cluster.story());
        Ok(during.is_open()?.then_some(()))
    })?;
    later.wait_until_open()?;
    assert_eq!(during_gate.so_far()?, ["closed", "open"]);
    none_was_closed(cluster, &gates)?;
    drop(during_gate);
    nothing_is_deleted(cluster, verified)?;
    Ok([during, later])
}

/// `CoreDNS` still runs, so each failure by itself could be the fault of its node, until the checks fail on a verified node.
fn a_node_that_is_closed_while_dns_fails_everywhere_opens_after_it(
    cluster: &Cluster,
    verified: &[Node],
    node: &Node,
) -> Result<()> {
    let gates = watch(verified)?;
    let all = verified.iter().chain([node]);
    all.clone().try_for_each(|node| node.machine()?.inject(Fault::Dns))?;
    node.close()?;
    node.wait_for_state("blame", "cluster")?;
    assert!(!node.is_open()?, "its checks cannot pass without DNS");
    all.clone().try_for_each(|node| node.machine()?.heal())?;
    let back = Instant::now();
    // The checks pass on this node, while the other one has had no attempt since the outage.
    verified[0].remove_label()?;
    let left = NEXT_ATTEMPT.saturating_sub(back.elapsed());
    cluster.wait_at_most(left, "the node that failed in the outage to open", || {
        assert!(node.exists()?, "a healthy node was deleted:\n{}", cluster.story());
        Ok(node.is_open()?.then_some(()))
    })?;
    assert_eq!(node.state()?["attempt"], 1, "failures in the outage do not count");
    cluster.eventually("the other node to be verified again", || verified[0].is_verified())?;
    none_was_closed(cluster, &gates)?;
    nothing_is_deleted(cluster, verified)
}

fn nodes_that_lost_their_label_in_the_outage_stay_open_and_end_verified(
    cluster: &Cluster,
    nodes: &[Node],
) -> Result<()> {
    let gates = watch(nodes)?;
    let results: Vec<_> = nodes.iter().map(Node::results).collect::<Result<_>>()?;
    cluster.stop_dns()?;
    nodes.iter().try_for_each(Node::remove_label)?;
    for (node, before) in nodes.iter().zip(results) {
        node.wait_for_results(before + MAX_INCONCLUSIVE_RUNS)?;
    }
    none_was_closed(cluster, &gates)?;
    cluster.start_dns()?;
    for node in nodes {
        cluster.eventually(&format!("{} to be verified again", node.name()), || node.is_verified())?;
    }
    none_was_closed(cluster, &gates)?;
    nothing_is_deleted(cluster, nodes)
}

fn watch<'n, 'c>(nodes: &'n [Node<'c>]) -> Result<Vec<GateLog<'n, 'c>>> {
    nodes.iter().map(Node::gate_log).collect()
}

fn none_was_closed(cluster: &Cluster, gates: &[GateLog]) -> Result<()> {
    for gate in gates {
        assert_eq!(gate.so_far()?, ["open"], "{}", cluster.story());
    }
    Ok(())
}

fn nothing_is_deleted(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    for node in nodes {
        assert!(node.exists()?, "{} was deleted", node.name());
    }
    assert_eq!(cluster.node_deletions()?, []);
    Ok(())
}

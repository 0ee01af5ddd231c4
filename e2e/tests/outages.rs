//! The API server restarts, loses its history, and is out of reach for a minute. Nodes that join in the meantime are
//! verified afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use knr_e2e::{Answer, Cluster, Config, Controller, GATE, Outage};
use lab::Component;

const MINUTE: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(500);

#[test]
fn everything_heals_by_itself() -> Result<()> {
    let cluster = Cluster::start("outages", 1)?;
    let controller = Controller::start(&cluster, &Config::new(), "a")?;
    controller.wait_until_leading()?;
    nodes_are_verified_although_the_api_server_restarts(&cluster)?;
    nodes_that_join_in_a_minute_of_silence_are_verified(&cluster, &controller)?;
    assert_eq!(controller.program().exit_status(), None);
    Ok(())
}

/// One node has just been closed, the other is still joining.
fn nodes_are_verified_although_the_api_server_restarts(cluster: &Cluster) -> Result<()> {
    let joining = cluster.add_node("n2").taint(GATE.parse()?).switch_on()?;
    let node = cluster.node("n1")?;
    node.close()?;
    cluster.restart(Component::ApiServer)?;
    node.wait_until_open()?;
    joining.wait_until_ready()?;
    cluster.node("n2")?.wait_until_open()
}

/// In this minute one node joins, etcd is compacted, and another node joins.
fn nodes_that_join_in_a_minute_of_silence_are_verified(
    cluster: &Cluster,
    controller: &Controller,
) -> Result<()> {
    let end = Instant::now() + MINUTE;
    controller.cut_off(Outage::Silent);
    let (nodes, looks) = while_looking_at(controller, || {
        let heard_last = cluster.version()?;
        let before = cluster.join("n3")?;
        cluster.compact()?;
        // The restart clears the API server's watch cache too.
        cluster.restart(Component::ApiServer)?;
        assert_eq!(cluster.hear_from(heard_last)?["object"]["code"], 410);
        let after = cluster.join("n4")?;
        thread::sleep(end.saturating_duration_since(Instant::now()));
        Ok([before, after])
    })?;
    let unwell: Vec<_> = looks.iter().filter(|answer| answer.status != 200).collect();
    assert!(unwell.is_empty() && looks.len() > 20, "{} looks: {unwell:#?}", looks.len());
    for node in &nodes {
        assert!(node.workers()?.is_empty() && !node.is_open()?, "{}", cluster.story());
    }
    controller.reconnect();
    for node in &nodes {
        node.wait_until_open()?;
    }
    Ok(())
}

/// Collects the answers of the controller's health endpoints while `work` runs.
fn while_looking_at<T>(
    controller: &Controller,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Answer>)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = Vec::new();
            while !over.load(Ordering::Relaxed) {
                looks.extend([controller.get("/livez")?, controller.get("/readyz")?]);
                thread::sleep(LOOK);
            }
            anyhow::Ok(looks)
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        let looks = looking.join().ok().context("whoever looked panicked")??;
        Ok((done?, looks))
    })
}

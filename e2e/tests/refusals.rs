//! Workers that are refused, have no image, or cannot be executed. None of this is their node's fault, even if the same
//! checks pass elsewhere: the node shows what is wrong, loses no attempt, is not deleted, and opens once the worker can
//! run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use knr_e2e::{Cluster, Condition, Config, Controller, LONG_GRACE, Node, Refusal};
use lab::Tool;
use serde_json::json;

const PASSED: &str = r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#;
const EXEC_FORMAT_ERROR: &str = "exec format error";
/// The cause is shown within this long. It usually takes less than three seconds.
const SHOWN: Duration = Duration::from_secs(10);
const PENDING_TIMEOUT_SECONDS: i64 = 6;

#[test]
fn what_keeps_workers_from_running_is_not_charged_to_nodes() -> Result<()> {
    let cluster =
        Cluster::start_with("refusals", |lab| lab.nodes(4).flag(Tool::KubeControllerManager, LONG_GRACE))?;
    let config = Config::new()
        .set("nodeManagement.deleteFailedNodes", true)
        .set("reconciliation.maxRetries", 2)
        .set("worker.pendingTimeoutSeconds", PENDING_TIMEOUT_SECONDS)
        // It is the only controller.
        .set("leaderElection.enabled", false);
    let controller = Controller::start(&cluster, &config, "a")?;
    let sound = cluster.node("n1")?;
    sound.close()?;
    sound.wait_until_open()?;

    cluster.fake_workers_end(0, PASSED)?;
    a_worker_that_is_refused(&cluster, &controller, "quota", Refusal::Quota)?;
    a_worker_that_is_refused(&cluster, &controller, "policy", Refusal::Policy)?;
    a_worker_that_violates_pod_security(&cluster, &controller, &config)?;
    an_image_for_another_processor_than_that_of_a_node(&cluster)?;
    an_image_that_one_node_cannot_get(&cluster, &cluster.node("n2")?)?;
    an_image_that_does_not_exist(&cluster, &controller, &config, &cluster.node("n3")?)?;
    an_image_that_no_node_can_run(&cluster, &controller, &config, &cluster.node("n4")?)?;
    assert_eq!(cluster.node_deletions()?, []);
    Ok(())
}

fn a_worker_that_is_refused(
    cluster: &Cluster,
    controller: &Controller,
    name: &str,
    refusal: Refusal,
) -> Result<()> {
    cluster.refuse_workers(refusal)?;
    let node = Blameless(&cluster.fakes(name, 1)?[0]);
    node.shows(&refusal.answer())?;
    is_counted(cluster, controller, 1, "WorkerRefused")?;
    cluster.allow_workers(refusal)?;
    node.opens_on_its_first_attempt()?;
    is_counted(cluster, controller, 0, "WorkerRefused")
}

fn a_worker_that_violates_pod_security(
    cluster: &Cluster,
    controller: &Controller,
    config: &Config,
) -> Result<()> {
    let host = json!([{ "name": "host", "hostPath": { "path": "/" } }]);
    controller.reload(&config.clone().set("worker.volumes", host))?;
    let node = Blameless(&cluster.fakes("security", 1)?[0]);
    node.shows(&["violates PodSecurity", "hostPath"])?;
    controller.reload(config)?;
    node.opens_on_its_first_attempt()
}

/// The checks pass on the other nodes, whose processors can run the image.
fn an_image_for_another_processor_than_that_of_a_node(cluster: &Cluster) -> Result<()> {
    cluster.fake_workers_end(1, &format!("exec /kube-node-ready: {EXEC_FORMAT_ERROR}"))?;
    let node = Blameless(&cluster.fakes("arm", 1)?[0]);
    node.shows(&[EXEC_FORMAT_ERROR])?;
    cluster.fake_workers_end(0, PASSED)?;
    node.opens_on_its_first_attempt()
}

fn an_image_that_one_node_cannot_get(cluster: &Cluster, node: &Node) -> Result<()> {
    let node = Blameless(node);
    node.0.remove_image()?;
    node.0.close()?;
    let condition = node.shows(&[knr_e2e::product::REPOSITORY])?;
    assert!(condition.reason.contains("Image"), "{condition:?}");
    node.outlasts_the_pending_timeout(cluster)?;
    cluster.restore_image()?;
    node.opens_on_its_first_attempt()
}

fn an_image_that_does_not_exist(
    cluster: &Cluster,
    controller: &Controller,
    config: &Config,
    node: &Node,
) -> Result<()> {
    let node = Blameless(node);
    let nothing = json!({ "repository": "lab.local/nothing", "tag": "1" });
    controller.reload(&config.clone().set("worker.image", nothing))?;
    node.0.close()?;
    let condition = node.shows(&["lab.local/nothing:1"])?;
    assert!(condition.reason.contains("Image"), "{condition:?}");
    is_counted(cluster, controller, 1, "ImagePullFailed")?;
    node.outlasts_the_pending_timeout(cluster)?;
    controller.reload(config)?;
    node.opens_on_its_first_attempt()
}

fn an_image_that_no_node_can_run(
    cluster: &Cluster,
    controller: &Controller,
    config: &Config,
    node: &Node,
) -> Result<()> {
    let node = Blameless(node);
    let foreign = cluster.load_foreign_image()?;
    controller.reload(&config.clone().set("worker.image", foreign))?;
    node.0.close()?;
    node.shows(&[EXEC_FORMAT_ERROR])?;
    controller.reload(config)?;
    node.opens_on_its_first_attempt()
}

/// This many nodes wait for an operator to fix this.
fn is_counted(cluster: &Cluster, controller: &Controller, nodes: u32, reason: &str) -> Result<()> {
    cluster.eventually(&format!("{nodes} nodes to be counted as blocked by {reason}"), || {
        let blocked = controller.metrics()?.value("kube_node_ready_nodes_blocked", &[("reason", reason)]);
        Ok(blocked == Some(f64::from(nodes)))
    })
}

/// A node whose worker cannot run, through no fault of the node.
struct Blameless<'a>(&'a Node<'a>);

impl Blameless<'_> {
    /// Waits until the node's condition shows what is wrong.
    #[track_caller]
    fn shows(&self, parts: &[&str]) -> Result<Condition> {
        let began = Instant::now();
        let condition = self.0.wait_for_condition(SHOWN, "Unknown", parts)?;
        eprintln!("{}: {parts:?} shown after {:.1} s", self.0.name(), began.elapsed().as_secs_f64());
        assert!(!condition.reason.is_empty(), "{condition:?}");
        self.has_lost_no_attempt()?;
        Ok(condition)
    }

    /// Waits until its worker has exceeded the pending timeout, or is gone.
    fn outlasts_the_pending_timeout(&self, cluster: &Cluster) -> Result<()> {
        let limit = SignedDuration::from_secs(PENDING_TIMEOUT_SECONDS);
        cluster.eventually("the worker to use up its time", || {
            self.has_lost_no_attempt()?;
            let Some(worker) = self.0.workers()?.pop() else { return Ok(true) };
            let created: Timestamp =
                worker["metadata"]["creationTimestamp"].as_str().context("no time")?.parse()?;
            Ok(Timestamp::now().duration_since(created) > limit)
        })
    }

    fn has_lost_no_attempt(&self) -> Result<()> {
        let state = self.0.state()?;
        assert_eq!(state["attempt"].as_u64().unwrap_or(0), 0, "{state}");
        Ok(())
    }

    /// It opens by itself, is still the same node, and lost no attempt before.
    fn opens_on_its_first_attempt(&self) -> Result<()> {
        let node = self.0;
        node.wait_until_open()?;
        assert!(node.exists()? && node.is_verified()?);
        let state = node.state()?;
        assert_eq!(state["attempt"], 1, "{state}");
        Ok(())
    }
}

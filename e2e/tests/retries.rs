//! Broken nodes that use up all attempts: they are tried again periodically and on request, and deleted only after a
//! fair trial.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use knr_core::action::worker_name;
use knr_e2e::{Cluster, Config, Controller, LONG_GRACE, NAMESPACE, Node, NodeEvent, RETRY};
use lab::{Fault, Tool};

const MAX_RETRIES: u32 = 3;
const MAX_RETRY_DELAY: u32 = 4;
/// Longer than any test waits.
const HOUR: u32 = 3600;
const CAUSE: &str = "DnsTimeout";
const DNS_FAILED: &str =
    r#"{"checks":[{"name":"dns","outcome":{"fail":{"kind":"timeout","detail":"no answer"}}}]}"#;
/// The longest pause, plus a run that takes as long as it may.
const NEXT_ATTEMPT: Duration = Duration::from_secs(MAX_RETRY_DELAY as u64 + 30);

#[test]
fn broken_nodes_are_tried_on_and_deleted_only_after_a_fair_trial() -> Result<()> {
    let cluster =
        Cluster::start_with("retries", |lab| lab.nodes(4).flag(Tool::KubeControllerManager, LONG_GRACE))?;
    let config = Config::new()
        .set("reconciliation.maxRetries", MAX_RETRIES)
        .set("reconciliation.maxRetryDelaySeconds", MAX_RETRY_DELAY)
        .set("worker.checkTimeoutSeconds", 2)
        .set("worker.retries", 0)
        // It is the only controller.
        .set("leaderElection.enabled", false);
    let controller = Controller::start(&cluster, &config, "a")?;
    let sound = cluster.node("n1")?;
    sound.close()?;
    sound.wait_until_open()?;

    a_node_that_outlasts_all_attempts_opens_once_it_is_fixed(&cluster, &cluster.node("n2")?)?;
    let once_an_hour = config
        .clone()
        .set("reconciliation.maxRetries", 1)
        .set("reconciliation.retryDelaySeconds", HOUR)
        .set("reconciliation.maxRetryDelaySeconds", HOUR);
    controller.reload(&once_an_hour)?;
    an_operator_can_ask_for_an_attempt(&cluster, &cluster.node("n3")?)?;
    let deleting =
        config.clone().set("nodeManagement.deleteFailedNodes", true).set("limits.deletion.maxPercent", 100);
    controller.reload(&deleting)?;
    a_broken_node_is_deleted_after_a_fair_trial(&cluster, &controller, &cluster.node("n4")?)?;
    controller.reload(&once_an_hour)?;
    // Simulated workers fail at once. Between two attempts there must be time for a reference run.
    let slowly = deleting
        .set("reconciliation.maxRetries", 1)
        .set("reconciliation.retryDelaySeconds", 60)
        .set("reconciliation.maxRetryDelaySeconds", 60);
    a_node_of_karpenter_is_deleted_by_its_claim(&cluster, &controller, &slowly)
}

fn a_node_that_outlasts_all_attempts_opens_once_it_is_fixed(cluster: &Cluster, node: &Node) -> Result<()> {
    joins_broken(node)?;
    let gate = node.gate_log()?;
    node.wait_for_results(MAX_RETRIES.into())?;
    counts_as_failed(cluster, node)?;
    node.wait_for_results(u64::from(MAX_RETRIES) + 2)?;
    counts_as_failed(cluster, node)?;
    assert_eq!(gate.so_far()?, ["closed"]);
    node.machine()?.heal()?;
    cluster.wait_at_most(NEXT_ATTEMPT, "the fixed node to open", || Ok(node.is_open()?.then_some(())))?;
    assert!(node.is_verified()?);
    assert_eq!(gate.so_far()?, ["closed", "open"]);
    Ok(())
}

fn an_operator_can_ask_for_an_attempt(cluster: &Cluster, node: &Node) -> Result<()> {
    joins_broken(node)?;
    node.wait_for_results(1)?;
    counts_as_failed(cluster, node)?;
    // By itself, the controller would not try again during this test.
    let state = node.state()?;
    let next_try = state["nextTry"].as_str().with_context(|| format!("no further attempt: {state}"))?;
    let next_try: Timestamp = next_try.parse()?;
    assert!(next_try.duration_since(Timestamp::now()) > SignedDuration::from_mins(30), "{state}");

    node.annotate(RETRY, Some(""))?;
    node.wait_for_results(2)?;
    assert_eq!(node.annotation(RETRY)?, None, "a request is good for one attempt");
    counts_as_failed(cluster, node)?;

    node.machine()?.heal()?;
    node.annotate(RETRY, Some("fixed, see ticket 7"))?;
    node.wait_until_open()?;
    assert!(node.is_verified()?);
    assert_eq!(node.annotation(RETRY)?, None, "a request is good for one attempt");
    Ok(())
}

/// Between the attempts of the broken node the checks pass elsewhere, so the cluster is not to blame.
fn a_broken_node_is_deleted_after_a_fair_trial(
    cluster: &Cluster,
    controller: &Controller,
    node: &Node,
) -> Result<()> {
    let before = cluster.writes()?.len();
    joins_broken(node)?;
    cluster.eventually("the broken node to be deleted", || Ok(!node.exists()?))?;
    let worker = worker_name(&node.uid().into());
    let writes: Vec<_> =
        cluster.writes()?.into_iter().skip(before).filter(knr_e2e::Write::succeeded).collect();
    let deleted = writes.iter().position(|write| {
        (write.verb.as_str(), write.resource.as_str(), write.name.as_str())
            == ("delete", "nodes", node.name())
    });
    let before_deletion = &writes[..deleted.context("the product has not deleted it")?];
    let started = before_deletion.iter().filter(|write| write.verb == "create" && write.resource == "pods");
    let mut tried: Vec<_> =
        started.map(|write| if write.name == worker { "broken" } else { "sound" }).collect();
    tried.dedup();
    assert!(
        tried.join(" ").contains("broken sound broken"),
        "not tried again after the checks passed elsewhere: {tried:?}"
    );

    is_deleted_for_all_to_see(cluster, controller, node)?;
    assert_eq!(deletions(controller)?, Some(1.0));
    Ok(())
}

fn a_node_of_karpenter_is_deleted_by_its_claim(
    cluster: &Cluster,
    controller: &Controller,
    deleting: &Config,
) -> Result<()> {
    cluster.fake_workers_end(1, DNS_FAILED)?;
    let node = &cluster.fakes("karpenter", 1)?[0];
    let claim = cluster.claim(node)?;
    controller.reload(deleting)?;
    cluster.eventually("the claim to be deleted", || claim.is_being_deleted())?;
    is_deleted_for_all_to_see(cluster, controller, node)?;
    cluster.wait_for("an event on the claim to report the deletion", || {
        let events = claim.events()?;
        ensure!(events.iter().any(is_about_a_deletion), "{events:#?}");
        Ok(Some(()))
    })?;
    cluster.eventually(
        "the deletion to be considered again, as long as Karpenter drains the node",
        || {
            let labels = [("action", "delete_node"), ("outcome", "conflict")];
            Ok(controller.metrics()?.value("kube_node_ready_writes_total", &labels) > Some(0.0))
        },
    )?;
    assert!(node.exists()?, "it is for Karpenter to delete it");
    assert_eq!(claim.events()?.iter().filter(|event| is_about_a_deletion(event)).count(), 1);
    assert_eq!(deletions(controller)?, Some(2.0));
    claim.finish()
}

/// An event, the log and the ledger show the deletion.
fn is_deleted_for_all_to_see(cluster: &Cluster, controller: &Controller, node: &Node) -> Result<()> {
    cluster.wait_for("an event to report the deletion", || {
        let events = node.events()?;
        ensure!(events.iter().any(is_about_a_deletion), "{events:#?}");
        Ok(Some(()))
    })?;
    cluster.eventually("the log to report the deletion", || {
        Ok(controller.log()?.iter().any(|line| {
            let is_reported = line.to_string().to_lowercase().contains("delet");
            line["level"] == "info" && line["node"] == node.name() && is_reported
        }))
    })?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/kube-node-ready-deletions");
    let ledger = cluster.api().get(&path)?;
    let entries = ledger["data"]["deletions"].as_str().context("no entries")?;
    assert!(entries.contains(node.uid()), "{entries}");
    Ok(())
}

fn is_about_a_deletion(event: &NodeEvent) -> bool {
    event.reporter == "kube-node-ready" && event.reason == "NodeDeleted" && event.kind == "Warning"
}

fn deletions(controller: &Controller) -> Result<Option<f64>> {
    Ok(controller.metrics()?.value("kube_node_ready_nodes_deleted_total", &[]))
}

/// Closes a node that is broken in a way that its kubelet does not notice.
fn joins_broken(node: &Node) -> Result<()> {
    node.machine()?.inject(Fault::Dns)?;
    node.close()
}

/// The node is closed, and its condition and an event say why.
fn counts_as_failed(cluster: &Cluster, node: &Node) -> Result<()> {
    let condition = node.wait_for_condition(knr_e2e::PATIENCE, "False", &["dns: "])?;
    assert_eq!(condition.reason, CAUSE, "{condition:?}");
    assert!(!node.is_open()?);
    assert_eq!(node.state()?["phase"], "failed");
    cluster.eventually("an event to report the failure", || {
        let events = node.events()?;
        Ok(events.iter().any(|event| event.reason == "VerificationFailed" && event.kind == "Warning"))
    })
}

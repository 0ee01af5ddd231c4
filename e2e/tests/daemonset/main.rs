//! The `DaemonSet` mode on a real cluster, installed by the chart: pods that open their own nodes.

mod guard;
mod pods;

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use knr_e2e::{Cluster, GATE, LONG_GRACE, NAMESPACE, Node, Release, values};
use knr_k8s::calls::Who;
use lab::{Fault, Tool};
use pods::{failures, kill_all_pods, log, metrics, no_pods_are_left, pod_of, wait_for_a_pod_to_be_made};
use serde_json::{Value, json};

const FOREIGN: &str = "others.example/dedicated=batch:NoSchedule";
/// Delays in milliseconds after which the pod is killed during a verification, which takes about a second.
const MOMENTS: [u64; 8] = [0, 150, 300, 500, 700, 900, 1200, 1600];

fn daemonset() -> Value {
    let mut values = values();
    values["deploymentMode"] = json!("daemonset");
    values
}

fn monitoring() -> Value {
    let mut values = daemonset();
    values["daemonset"] = json!({ "monitoring": { "enabled": true, "interval": "2s" } });
    values
}

fn cluster(name: &str) -> Result<Cluster> {
    Cluster::start_bare(name, |lab| lab.nodes(1).flag(Tool::KubeControllerManager, LONG_GRACE))
}

#[test]
fn a_pod_opens_its_node_and_is_gone() -> Result<()> {
    let cluster = cluster("daemonset")?;
    let release = Release::install(&cluster, &daemonset())?;
    let first = cluster.node("n1")?;
    cluster.eventually("a node that never had the gate to be verified", || first.is_verified())?;
    let node = cluster.join_with("n2", &[FOREIGN, GATE])?;
    opens(&cluster, &node)?;
    an_event_says_that_it_is_verified(&cluster, &node)?;
    assert_eq!(node.taints()?, [FOREIGN], "the gate is gone, and nothing else");
    two_writes_were_enough(&cluster)?;
    cluster.permissions_are_those_listed("kube-node-ready", Who::Daemonset)?;
    no_pods_are_left(&cluster)?;
    runs_again_without_its_label(&cluster, &node)?;
    let said = release.test()?;
    ensure!(said.contains("Phase:          Succeeded"), "{said}");
    its_pod_may_die_at_any_moment(&cluster, &node)?;
    let broken = a_broken_node_stays_closed(&cluster)?;
    a_node_without_the_api_server_says_so_and_recovers(&cluster)?;
    a_controller_takes_over_and_hands_back(&cluster, &release, &broken)?;
    release.uninstall().map(drop)
}

#[test]
fn a_node_under_watch_is_closed_after_three_failures() -> Result<()> {
    let cluster = cluster("monitoring")?;
    let release = Release::install(&cluster, &monitoring())?;
    let node = cluster.join("n2")?;
    opens(&cluster, &node)?;
    let pod = pod_of(&cluster, &node)?;
    guard::a_token_is_good_for_its_own_node_alone(&cluster, &pod, &node)?;
    node.machine()?.inject(Fault::Dns)?;
    cluster.eventually("the node to be closed", || Ok(!node.is_open()?))?;
    let warnings: Vec<Value> = log(&cluster, &pod)?
        .into_iter()
        .filter(|line| line["msg"].as_str().is_some_and(|said| said.contains("on a verified node")))
        .map(|line| line["failed"].clone())
        .collect();
    assert_eq!(warnings, [1, 2, 3], "two are warnings, the third closes");
    assert!(failures(&cluster, &pod, "dns")? >= 3.0);
    assert_eq!(node.label("node-ready/verified")?, None);
    let condition = node.condition()?.context("no condition")?;
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "DnsTimeout"));
    node.machine()?.heal()?;
    opens(&cluster, &node)?;
    assert_eq!(pod_of(&cluster, &node)?["metadata"]["uid"], pod["metadata"]["uid"], "it stays");
    assert_eq!(metrics(&cluster, &pod)?.value("node_check_status", &[("node", "n2")]), Some(1.0));
    what_could_not_be_written_in_time_is_not_written_later(&cluster, &node, &pod)?;
    a_pod_that_looks_on_is_ready_and_changes_nothing(&cluster, &release, &node)?;
    release.uninstall()?;
    assert!(node.is_open()?);
    Ok(())
}

/// A node that is healthy again must not be closed for an earlier failure, just because it can be closed now.
fn what_could_not_be_written_in_time_is_not_written_later(
    cluster: &Cluster,
    node: &Node<'_>,
    pod: &Value,
) -> Result<()> {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kube-node-ready-daemonset";
    let all = cluster.api().get(path)?["rules"].clone();
    let mut less = all.clone();
    let rules = less.as_array_mut().context("no rules")?;
    let of_nodes = rules.iter_mut().find(|rule| rule["resources"] == json!(["nodes"]));
    of_nodes.context("no rule for nodes")?["verbs"] = json!(["get"]);
    cluster.api().patch(path, &json!({ "rules": less }))?;
    node.machine()?.inject(Fault::Dns)?;
    cluster.eventually("the closing to be refused", || {
        let refused = |line: &Value| line["msg"] == "the API server refused";
        Ok(log(cluster, pod)?.iter().any(refused))
    })?;
    node.machine()?.heal()?;
    cluster.eventually("the checks to pass", || {
        Ok(metrics(cluster, pod)?.value("node_check_status", &[("node", "n2")]) == Some(1.0))
    })?;
    cluster.api().patch(path, &json!({ "rules": all }))?;
    cluster.eventually("its pod to be content with the node", || {
        ensure!(node.is_open()?, "it was closed");
        let lines = log(cluster, pod)?;
        let last = lines.iter().rfind(|line| line["phase"].is_string());
        Ok(last.is_some_and(|line| line["phase"] == "verified"))
    })?;
    let closed = log(cluster, pod)?.into_iter().filter(|line| line["msg"] == "Node closed");
    assert_eq!(closed.count(), 1, "only the first time");
    opens(cluster, node)
}

/// Helm waits until the pods are ready, and fails if they are not.
fn a_pod_that_looks_on_is_ready_and_changes_nothing(
    cluster: &Cluster,
    release: &Release<'_>,
    node: &Node<'_>,
) -> Result<()> {
    let mut look_on = monitoring();
    look_on["controller"]["config"]["reconciliation"]["dryRun"] = json!(true);
    release.upgrade(&look_on)?;
    node.close()?;
    node.patch(&json!({ "metadata": { "labels": { "node-ready/verified": null } } }))?;
    kill_all_pods(cluster)?;
    let pod = pod_of(cluster, node)?;
    cluster.eventually("the pod to say what it would do", || {
        let said = |line: &Value| line["msg"] == "dry run: this would be done";
        Ok(log(cluster, &pod)?
            .iter()
            .find(|line| said(line))
            .is_some_and(|line| line["action"].as_str().is_some_and(|action| action.contains("of n2/"))))
    })?;
    assert!(!node.is_open()?);
    release.upgrade(&monitoring())?;
    opens(cluster, node)
}

/// Twenty kubelets need some minutes of two cores, so this test is run by hand: see `docs/testing.md`.
#[test]
#[ignore = "takes twenty nodes"]
fn twenty_nodes_may_join_at_once() -> Result<()> {
    let cluster = cluster("twenty")?;
    let release = Release::install(&cluster, &daemonset())?;
    let names: Vec<String> = (1..=20).map(|number| format!("many-{number}")).collect();
    std::thread::scope(|scope| {
        let joining: Vec<_> = names.iter().map(|name| scope.spawn(|| cluster.join(name).map(drop))).collect();
        joining.into_iter().try_for_each(|node| node.join().ok().context("a node panicked")?)
    })?;
    for name in &names {
        opens(&cluster, &cluster.node(name)?)?;
    }
    no_pods_are_left(&cluster)?;
    release.uninstall().map(drop)
}

/// The node is open, has its label, and its condition says so.
fn opens(cluster: &Cluster, node: &Node<'_>) -> Result<()> {
    cluster.eventually(&format!("node {} to be verified", node.name()), || node.is_verified())?;
    let condition = node.condition()?.context("no condition")?;
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", "Verified"));
    assert_eq!(node.state()?["phase"], "verified");
    Ok(())
}

fn an_event_says_that_it_is_verified(cluster: &Cluster, node: &Node<'_>) -> Result<()> {
    cluster.eventually("an event", || {
        Ok(node.events()?.iter().any(|event| event.reason == "Verified" && event.kind == "Normal"))
    })
}

fn two_writes_were_enough(cluster: &Cluster) -> Result<()> {
    let ours = |user: &str| user == format!("system:serviceaccount:{NAMESPACE}:kube-node-ready");
    let writes: Vec<String> = cluster
        .audit()?
        .into_iter()
        .filter(|event| ours(&event.user) && event.is_write() && event.name == "n2")
        .filter(|event| event.resource.starts_with("nodes"))
        .map(|event| format!("{} {}", event.verb, event.resource))
        .collect();
    assert_eq!(writes, ["patch nodes/status", "patch nodes"], "the verdict is shown, then the gate opens");
    Ok(())
}

fn runs_again_without_its_label(cluster: &Cluster, node: &Node<'_>) -> Result<()> {
    let serial = node.state()?["serial"].as_u64().context("no serial")?;
    node.patch(&json!({ "metadata": { "labels": { "node-ready/verified": null } } }))?;
    node.wait_for_state("serial", serial + 1)?;
    opens(cluster, node)?;
    no_pods_are_left(cluster)
}

fn its_pod_may_die_at_any_moment(cluster: &Cluster, node: &Node<'_>) -> Result<()> {
    for moment in MOMENTS {
        node.close()?;
        node.patch(&json!({ "metadata": {
            "labels": { "node-ready/verified": null }, "annotations": { "node-ready/state": null },
        } }))?;
        wait_for_a_pod_to_be_made(cluster, node)?;
        sleep(Duration::from_millis(moment));
        // The pod may have done its work and be gone by now.
        kill_all_pods(cluster)?;
        let object = node.object()?;
        let is_closed = object["spec"]["taints"].to_string().contains("node-ready/unverified");
        let is_labelled = object["metadata"]["labels"]["node-ready/verified"] == "true";
        assert_ne!(is_closed, is_labelled, "open and labelled, or neither: {object}");
        opens(cluster, node)?;
        no_pods_are_left(cluster)?;
    }
    Ok(())
}

fn a_broken_node_stays_closed(cluster: &Cluster) -> Result<Node<'_>> {
    let broken = cluster.add_node("broken").taint(GATE.parse()?).taint(FOREIGN.parse()?).switch_on()?;
    broken.inject(Fault::Dns)?;
    let node = cluster.wait_for("node broken", || Ok(cluster.node("broken").ok()))?;
    let pod = pod_of(cluster, &node)?;
    cluster.eventually("a failure", || Ok(failures(cluster, &pod, "dns")? > 0.0))?;
    let so_far = failures(cluster, &pod, "dns")?;
    cluster.eventually("further failures", || Ok(failures(cluster, &pod, "dns")? > so_far + 1.0))?;
    assert!(!node.is_open()?);
    let condition = node.condition()?.context("no condition")?;
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "DnsTimeout"));
    Ok(node)
}

/// Nothing can be written from there, but the pod's metrics show what is wrong.
fn a_node_without_the_api_server_says_so_and_recovers(cluster: &Cluster) -> Result<()> {
    let machine = cluster.add_node("cut").taint(GATE.parse()?).switch_on()?;
    machine.inject(Fault::Api)?;
    let node = cluster.wait_for("node cut", || Ok(cluster.node("cut").ok()))?;
    let pod = pod_of(cluster, &node)?;
    cluster.eventually("two failures", || Ok(failures(cluster, &pod, "kubernetes")? > 1.0))?;
    assert!(!node.is_open()?);
    machine.heal()?;
    opens(cluster, &node)
}

/// Either mode finishes what the other has begun, and no node is wrongly open or closed in between.
fn a_controller_takes_over_and_hands_back(
    cluster: &Cluster,
    release: &Release<'_>,
    broken: &Node<'_>,
) -> Result<()> {
    let others = [cluster.node("n1")?, cluster.node("n2")?];
    let before = [verdict(&others[0])?, verdict(&others[1])?];
    release.upgrade(&values())?;
    cluster.eventually("the controller to go on from there", || {
        let writes = broken.writes()?;
        Ok(writes.iter().any(|write| write.resource == "nodes" && write.succeeded()))
    })?;
    assert!(!broken.is_open()?);
    release.upgrade(&daemonset())?;
    assert!(!broken.is_open()?);
    broken.machine()?.heal()?;
    opens(cluster, broken)?;
    assert_eq!(broken.taints()?, [FOREIGN]);
    let after = [verdict(&others[0])?, verdict(&others[1])?];
    assert_eq!(after, before, "a reference run changes no verdict");
    Ok(())
}

/// The verdict about a node: its phase, in which boot it was reached, and when.
fn verdict(node: &Node<'_>) -> Result<[serde_json::Value; 3]> {
    let state = node.state()?;
    Ok(["phase", "boot", "at"].map(|key| state[key].clone()))
}

//! Nodes that join: verified, held back by a startup gate, closed afterwards, or left alone.

use std::thread;

use anyhow::{Context, Result, ensure};
use knr_e2e::{ACCOUNT, Cluster, Condition, Config, Controller, GATE, NAMESPACE, Node, Write};
use serde_json::{Value, json};

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const EXCLUDED: &str = "example.com/pool=system";
const STARTUP: &str = "startup.k8s.io/initializing=wait:NoSchedule";
/// Becomes ready only once its readiness gate is set in its status.
const INIT_POD: &str = "apiVersion: v1
kind: Pod
metadata: { name: cni, namespace: kube-system, labels: { startup.k8s.io/component: init } }
spec:
  nodeName: slow
  readinessGates: [{ conditionType: example.com/configured }]
  containers: [{ name: cni, image: 'lab.local/probe:1', imagePullPolicy: Never, args: [pause] }]
  tolerations: [{ operator: Exists }]
";
const USERS_POD: &str = "apiVersion: v1
kind: Pod
metadata: { name: work, namespace: default }
spec:
  nodeName: shy
  terminationGracePeriodSeconds: 0
  containers: [{ name: work, image: 'lab.local/probe:1', imagePullPolicy: Never, args: [pause] }]
  tolerations: [{ operator: Exists }]
";

#[test]
fn nodes_that_join_are_verified_and_others_left_alone() -> Result<()> {
    let cluster = Cluster::start("verification", 1)?;
    // The cluster's DNS runs on this node, so the test does not disturb it.
    let control_plane = cluster.node("n1")?;
    control_plane.patch(&json!({ "spec": { "taints": [taint(GATE)?] } }))?;
    a_dry_run_says_what_it_would_do_and_writes_nothing(&cluster)?;
    control_plane.patch(&json!({ "metadata": { "labels": { CONTROL_PLANE: "" } } }))?;

    let config = Config::new().set("nodeManagement.exclude", json!([EXCLUDED]));
    let with_gate = config.clone().set("gates", json!([{ "name": "startup" }]));
    let controller = Controller::start(&cluster, &with_gate, "a")?;
    controller.wait_until_ready()?;
    let fresh = a_node_that_joins_closed_is_verified_and_opened(&cluster, &controller)?;
    let shy = thread::scope(|scope| {
        let metrics = scope.spawn(|| metrics_of_a_node_go_with_it(&cluster, &controller, &fresh));
        let startup = scope.spawn(|| a_startup_gate_opens_when_its_init_pod_is_ready(&cluster));
        let excluded = scope.spawn(|| a_node_that_is_excluded_is_left_alone(&cluster, &controller));
        metrics.join().map_err(thrown)??;
        startup.join().map_err(thrown)??;
        excluded.join().map_err(thrown)?
    })?;

    controller.reconfigure(&config.set("nodeManagement.backfill", true))?;
    a_node_without_a_gate_is_closed_once_it_is_idle(&cluster, &controller, &shy)?;
    assert_eq!(control_plane.taints()?, [GATE], "nobody has touched the control plane node");
    assert_eq!(control_plane.writes()?, []);
    says(&cluster, &controller, &control_plane, "left alone: it is a control plane node")
}

fn a_dry_run_says_what_it_would_do_and_writes_nothing(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("n1")?;
    let dry = Controller::start_with(cluster, &Config::new(), "dry", &["--dry-run"])?;
    says(cluster, &dry, &node, "dry run, would start worker 1 of n1")?;
    // It would finish the writes that it has begun before it ends.
    let end = dry.terminate()?;
    assert!(end.success(), "{end}");
    let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let writes = cluster.audit()?.into_iter().filter(|event| event.user == user && event.is_write());
    // Asking for its own permissions is a POST, too.
    let writes: Vec<_> = writes.filter(|write| write.resource != "selfsubjectaccessreviews").collect();
    assert_eq!(writes, []);
    assert_eq!((node.state()?, node.taints()?), (Value::Null, vec![GATE.to_owned()]));
    Ok(())
}

fn a_node_that_joins_closed_is_verified_and_opened<'c>(
    cluster: &'c Cluster,
    controller: &Controller,
) -> Result<Node<'c>> {
    let others =
        ["z.example/last:NoSchedule", "a.example/first=x:NoSchedule", "m.example/maybe:PreferNoSchedule"];
    let before = cluster.writes()?.len();
    let node = cluster.join_with("fresh", &[others[0], GATE, others[1], others[2]])?;
    node.wait_until_open()?;
    assert!(node.is_verified()?, "the label comes with the opening");
    assert_eq!(node.taints()?, others);
    let state = node.state()?;
    let recorded =
        ["uid", "phase", "serial", "attempt", "cause", "nextTry"].map(|field| state[field].clone());
    assert_eq!(
        recorded,
        [json!(node.uid()), json!("verified"), json!(1), json!(1), json!(null), json!(null)]
    );
    assert_eq!(state["boot"], node.object()?["status"]["nodeInfo"]["bootID"]);

    cluster.eventually("its worker to be gone", || Ok(node.workers()?.is_empty()))?;
    let verified = "open: verified on attempt 1".to_owned();
    let condition = Condition { status: "True".into(), reason: "Verified".into(), message: verified.clone() };
    assert_eq!(node.condition()?, Some(condition));
    let events = cluster.wait_for("an event", || {
        let mut events = node.events()?;
        events.retain(|event| event.reporter == "kube-node-ready");
        Ok((!events.is_empty()).then_some(events))
    })?;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (events[0].reason.as_str(), events[0].kind.as_str(), &events[0].note),
        ("Verified", "Normal", &verified)
    );
    asks_little(cluster, before)?;

    let metrics = controller.metrics()?;
    let of_node = [("node", "fresh")];
    let status = metrics.value("kube_node_ready_verification_status", &[of_node[0], ("status", "verified")]);
    assert_eq!(status, Some(1.0));
    assert!(
        metrics
            .value("kube_node_ready_verification_duration_seconds", &of_node)
            .is_some_and(|time| time > 0.0)
    );
    assert_eq!(metrics.value("kube_node_ready_retry_attempts_total", &of_node), None);
    assert_eq!(metrics.value("kube_node_ready_verifications_total", &[("status", "success")]), Some(1.0));
    Ok(node)
}

/// Counts the requests in the whole cluster: nothing else has happened in it since.
fn asks_little(cluster: &Cluster, before: usize) -> Result<()> {
    let writes = cluster.writes()?;
    let is_condition = |write: &&Write| write.resource == "nodes/status";
    let (conditions, others): (Vec<_>, Vec<_>) = writes[before..].iter().partition(is_condition);
    // On a busy machine the node waits for so long that its condition says why.
    assert!(conditions.len() <= 2 && others.len() <= 4, "{conditions:#?} {others:#?}");
    let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let mut reads = cluster.audit()?;
    reads.retain(|event| event.user == user && event.verb == "get" && event.resource != "leases");
    assert_eq!(reads, []);
    Ok(())
}

fn metrics_of_a_node_go_with_it(cluster: &Cluster, controller: &Controller, node: &Node) -> Result<()> {
    let of_node = |series: &String| series.contains("node=\"fresh\"");
    ensure!(controller.metrics()?.series().keys().any(of_node), "there is nothing that could go");
    node.machine()?.remove()?;
    cluster.eventually("its metrics to be gone", || Ok(!controller.metrics()?.series().keys().any(of_node)))
}

fn a_startup_gate_opens_when_its_init_pod_is_ready(cluster: &Cluster) -> Result<()> {
    let node = cluster.join_with("slow", &[STARTUP, GATE])?;
    cluster.apply(INIT_POD)?;
    let pod = "/api/v1/namespaces/kube-system/pods/cni";
    cluster.eventually("the init pod to run", || condition_of_pod(cluster, pod, "ContainersReady"))?;
    node.wait_until_open()?;
    cluster.eventually("the worker to be gone", || Ok(node.workers()?.is_empty()))?;
    assert_eq!(node.taints()?, [STARTUP], "a pod that runs is not ready yet");
    assert_eq!(node.annotation("startup.k8s.io/completedAt")?, None);

    let ready = json!({ "type": "example.com/configured", "status": "True" });
    let status = cluster.api().get(pod)?["status"]["conditions"].take();
    let mut conditions = status.as_array().context("a pod has conditions")?.clone();
    conditions.push(ready);
    cluster.api().patch(&format!("{pod}/status"), &json!({ "status": { "conditions": conditions } }))?;
    cluster.eventually("the startup gate to open", || Ok(node.taints()?.is_empty()))?;
    assert!(condition_of_pod(cluster, pod, "Ready")?);
    let completed = node.annotation("startup.k8s.io/completedAt")?.context("there is no time")?;
    assert!(completed.parse::<u64>().is_ok_and(|seconds| seconds > 1_700_000_000), "{completed}");
    assert!(node.is_verified()?);
    cluster
        .eventually("an event", || Ok(node.events()?.iter().any(|event| event.reason == "StartupCompleted")))
}

fn condition_of_pod(cluster: &Cluster, pod: &str, kind: &str) -> Result<bool> {
    let pod = cluster.api().get(pod)?;
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    Ok(conditions.any(|condition| condition["type"] == kind && condition["status"] == "True"))
}

fn a_node_that_is_excluded_is_left_alone<'c>(
    cluster: &'c Cluster,
    controller: &Controller,
) -> Result<Node<'c>> {
    cluster.add_node("shy").label(EXCLUDED.parse()?).taint(GATE.parse()?).start()?;
    let node = cluster.node("shy")?;
    says(cluster, controller, &node, "left alone: its labels match the exclusion")?;
    assert_eq!((node.taints()?, node.writes()?), (vec![GATE.to_owned()], vec![]));
    Ok(node)
}

/// The excluded node becomes a managed node that never had the gate.
fn a_node_without_a_gate_is_closed_once_it_is_idle(
    cluster: &Cluster,
    controller: &Controller,
    node: &Node,
) -> Result<()> {
    cluster.apply(USERS_POD)?;
    let pod = "/api/v1/namespaces/default/pods/work";
    cluster.eventually("the pod to run", || condition_of_pod(cluster, pod, "Ready"))?;
    let (label, _) = EXCLUDED.split_once('=').context("a label has a value")?;
    node.patch(&json!({ "metadata": { "labels": { label: null } }, "spec": { "taints": null } }))?;
    says(cluster, controller, node, "left alone: it never had the gate, and default/work runs there")?;
    assert!(node.is_open()? && node.writes()?.is_empty());

    let gate = node.gate_log()?;
    cluster.api().delete(pod)?;
    cluster.eventually("the node to be verified", || node.is_verified())?;
    assert_eq!(gate.so_far()?, ["open", "closed", "open"]);
    cluster.eventually("an event", || Ok(node.events()?.iter().any(|event| event.reason == "Backfilled")))
}

/// Waits until a replica has logged this about a node.
#[track_caller]
fn says(cluster: &Cluster, controller: &Controller, node: &Node, what: &str) -> Result<()> {
    cluster.eventually(&format!("{} to say of {}: {what}", controller.name(), node.name()), || {
        let said = |line: &Value| {
            line["node"] == node.name() && line["state"].as_str().is_some_and(|state| state.contains(what))
        };
        Ok(controller.log()?.iter().any(said))
    })
}

fn taint(text: &str) -> Result<Value> {
    let (key_value, effect) = text.split_once(':').context(text.to_owned())?;
    let (key, value) = key_value.split_once('=').unwrap_or((key_value, ""));
    Ok(json!({ "key": key, "value": value, "effect": effect }))
}

fn thrown(panic: Box<dyn std::any::Any + Send>) -> anyhow::Error {
    std::panic::resume_unwind(panic)
}

//! The tests' own tools work, and the product runs at all. The other files test its behaviour.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::{Context, Result};
use knr_e2e::{ACCOUNT, Api, Cluster, Config, Controller, GATE, LONG_GRACE, NAMESPACE, Outage};
use lab::Tool;
use serde_json::json;

const VERSION_POD: &str = "apiVersion: v1
kind: Pod
metadata: { name: version, namespace: kube-node-ready }
spec:
  nodeName: n1
  restartPolicy: Never
  serviceAccountName: kube-node-ready-worker
  securityContext: { runAsNonRoot: true, seccompProfile: { type: RuntimeDefault } }
  containers:
  - name: version
    image: lab.local/kube-node-ready:e2e
    imagePullPolicy: Never
    args: [--version]
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: { drop: [ALL] }
";

#[test]
fn the_product_runs_in_a_cluster_and_beside_it() -> Result<()> {
    let cluster =
        Cluster::start_with("smoke", |lab| lab.nodes(1).flag(Tool::KubeControllerManager, LONG_GRACE))?;
    the_image_runs_where_pods_are_restricted(&cluster)?;
    a_node_shows_what_is_on_it(&cluster)?;
    simulated_nodes_and_workers_come_by_the_dozen(&cluster)?;
    a_replica_has_the_permissions_of_its_service_account_and_can_be_cut_off(&cluster)?;
    a_replica_obeys(&cluster)?;
    pods_of_the_controller_become_ready(&cluster)
}

fn the_image_runs_where_pods_are_restricted(cluster: &Cluster) -> Result<()> {
    cluster.apply(VERSION_POD)?;
    cluster.eventually("the pod to succeed", || {
        let pod = cluster.api().get(&format!("/api/v1/namespaces/{NAMESPACE}/pods/version"))?;
        Ok(pod["status"]["phase"] == "Succeeded")
    })?;
    let said = cluster.kubectl(["-n", NAMESPACE, "logs", "version"])?;
    assert!(said.starts_with("kube-node-ready "), "{said}");
    Ok(())
}

fn a_node_shows_what_is_on_it(cluster: &Cluster) -> Result<()> {
    let node =
        cluster.join_with("n2", &["z.example/last:NoSchedule", GATE, "a.example/first=x:NoSchedule"])?;
    assert_eq!(node.taints()?, ["z.example/last:NoSchedule", GATE, "a.example/first=x:NoSchedule"]);
    assert!(!node.is_open()?);
    assert_eq!(node.state()?, json!(null));
    assert_eq!(node.condition()?, None);
    assert!(node.workers()?.is_empty() && node.writes()?.is_empty());
    assert!(node.events()?.iter().any(|event| event.reason == "NodeReady"), "{:?}", node.events()?);
    assert!(node.machine()?.is_on());
    let story = cluster.story();
    assert!(story.contains(GATE) && story.contains("\"version\" on \"n1\" is \"Succeeded\""), "{story}");

    node.patch(&json!({ "metadata": {
        "labels": { "node-ready/verified": "true" }, "annotations": { "node-ready/state": r#"{"attempt":3}"# },
    }}))?;
    assert!(!node.is_verified()?, "it is still closed");
    node.wait_for_state("attempt", 3)?;
    node.patch(&json!({ "spec": { "taints": null } }))?;
    node.wait_until_open()?;
    assert!(node.is_verified()?);
    node.machine()?.remove()?;
    assert!(!node.exists()?);
    Ok(())
}

fn simulated_nodes_and_workers_come_by_the_dozen(cluster: &Cluster) -> Result<()> {
    let nodes = cluster.fakes("fake", 24)?;
    assert_eq!(nodes[23].name(), "fake-23");
    assert_eq!(nodes[23].object()?["status"]["nodeInfo"]["bootID"], "fake-23-boot-1");
    assert_eq!(nodes[23].taints()?, [GATE]);
    cluster.fake_workers_end(1, r#"{"error": "it's "broken""}"#)?;
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let worker = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "node-ready-worker-1", "annotations": { "node-ready/node": "fake-23" } },
        "spec": {
            "nodeName": "fake-23",
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{ "name": "worker", "image": "none", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            }}],
        },
    });
    cluster.api().create(&pods, &worker)?;
    let end = cluster.wait_for("the worker to end", || {
        let workers = nodes[23].workers()?;
        let worker = workers.first().context("there is none")?;
        let end = &worker["status"]["containerStatuses"][0]["state"]["terminated"];
        Ok((!end.is_null()).then(|| end.clone()))
    })?;
    assert_eq!(end["exitCode"], 1);
    assert_eq!(end["message"], r#"{"error": "it's "broken""}"#);
    cluster.api().delete(&format!("{pods}/node-ready-worker-1"))?;
    nodes.iter().try_for_each(knr_e2e::Node::delete)
}

fn a_replica_has_the_permissions_of_its_service_account_and_can_be_cut_off(cluster: &Cluster) -> Result<()> {
    let controller = Controller::start(cluster, &Config::new(), "permissions")?;
    // From here on only its kubeconfig is needed.
    controller.kill()?;
    let api = Api::open(&controller.kubeconfig())?.called("kube-node-ready/0.0.0 (permissions)");
    api.list("/api/v1/nodes")?;
    let refused = api.list("/api/v1/secrets").unwrap_err().to_string();
    assert!(refused.contains("403") && refused.contains(ACCOUNT), "{refused}");

    let node = cluster.node("n1")?;
    let before = node.writes()?.len();
    api.patch("/api/v1/nodes/n1", &json!({ "metadata": { "annotations": { "example/a": "b" } } }))?;
    let writes = node.writes()?;
    assert_eq!(writes.len(), before + 1);
    assert_eq!(writes[before].to_string(), "permissions: patch nodes n1: 200");

    controller.cut_off(Outage::Closed);
    api.list("/api/v1/nodes").unwrap_err();
    cluster.api().list("/api/v1/nodes").context("the others are not cut off")?;
    controller.reconnect();
    api.list("/api/v1/nodes")?;
    Ok(())
}

fn a_replica_obeys(cluster: &Cluster) -> Result<()> {
    let mut controller = Controller::start(cluster, &Config::new(), "a")?;
    controller.wait_until_ready()?;
    controller.wait_until_leading()?;
    assert!(!controller.metrics()?.series().is_empty());
    assert!(controller.log()?.iter().any(serde_json::Value::is_object));
    let running = controller.program().pid();
    controller.freeze()?;
    controller.thaw()?;
    controller.kill()?;
    controller.get("/healthz").unwrap_err();
    controller.restart()?;
    controller.wait_until_ready()?;
    assert_ne!(controller.program().pid(), running);
    let end = controller.terminate()?;
    assert!(end.success(), "{end}");
    Ok(())
}

fn pods_of_the_controller_become_ready(cluster: &Cluster) -> Result<()> {
    let deployment = Controller::deploy(cluster, &Config::new(), 2)?;
    let pods = deployment.pods()?;
    assert_eq!(pods.len(), 2);
    assert_eq!(deployment.get(&pods[0], "/healthz")?.status, 200);
    assert!(!deployment.log(&pods[1])?.is_empty());
    deployment.remove()
}

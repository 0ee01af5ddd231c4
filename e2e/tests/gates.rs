//! Two startup gates that wait for different pods in different namespaces: each opens for its own pods, and no pods are
//! watched that no gate waits for.

use anyhow::{Result, ensure};
use knr_e2e::{ACCOUNT, Cluster, Config, Controller, NAMESPACE};
use serde_json::{Value, json};

const NETWORK: &str = "example.com/network:NoSchedule";
const STORAGE: &str = "example.com/storage:NoSchedule";
const WORKERS: &str = "app.kubernetes.io/name=kube-node-ready,app.kubernetes.io/component=worker";

#[test]
fn each_gate_has_watches_of_its_own_and_opens() -> Result<()> {
    let cluster = Cluster::start("gates", 1)?;
    let gates = json!([
        { "name": "network", "taint": taint("network"), "completedAnnotation": "example.com/network-at",
          "namespaces": ["kube-system"], "podSelector": "app=network" },
        { "name": "storage", "taint": taint("storage"), "completedAnnotation": "example.com/storage-at",
          "namespaces": ["default", "kube-system"], "podSelector": "app=storage,tier=node" },
    ]);
    let controller = Controller::start(&cluster, &Config::new().set("gates", gates), "a")?;
    controller.wait_until_leading()?;
    let node = cluster.node("n1")?;
    node.patch(&json!({ "spec": { "taints": [taint("network"), taint("storage")] } }))?;
    assert_eq!(node.taints()?, [NETWORK, STORAGE]);
    // The node was never verified, and says anyway why it is closed.
    let waits = node.wait_for_condition(knr_e2e::PATIENCE, "Unknown", &["gate network", "gate storage"])?;
    assert_eq!(waits.reason, "WaitingForInitPods");

    cluster.api().create("/api/v1/namespaces/kube-system/pods", &pod("network"))?;
    cluster.eventually("the first gate to open", || Ok(node.taints()? == [STORAGE]))?;
    cluster.api().create("/api/v1/namespaces/default/pods", &pod("storage"))?;
    cluster.eventually("the second gate to open", || Ok(node.taints()?.is_empty()))?;
    let says_so = || Ok(node.condition()?.is_some_and(|condition| condition.reason == "Unverified"));
    cluster.eventually("the node no longer to say that it waits", says_so)?;

    // The audit log shows a watch only once it has ended.
    assert!(controller.terminate()?.success());
    let expected = [
        "watch of app=network in kube-system",
        "watch of app=storage,tier=node in default",
        "watch of app=storage,tier=node in kube-system",
    ];
    cluster.eventually("these and no other reads of pods", || {
        let mut reads = reads_of_pods(&cluster)?;
        // While workers run, they are read periodically.
        reads.retain(|read| *read != format!("watch of {WORKERS} in {NAMESPACE}"));
        ensure!(reads == expected, "{reads:#?}");
        Ok(true)
    })
}

/// The controller's reads of pods: each watch and list with its selector and namespace, sorted.
fn reads_of_pods(cluster: &Cluster) -> Result<Vec<String>> {
    let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let events = cluster.audit()?.into_iter().filter(|event| event.user == user && event.resource == "pods");
    let mut reads: Vec<_> = events
        .filter(|event| !event.is_write())
        .map(|event| format!("{} of {} in {}", event.verb, selector(&event.uri), event.namespace))
        .collect();
    reads.sort();
    Ok(reads)
}

/// The label selector in the query of a request.
fn selector(uri: &str) -> String {
    let (_, query) = uri.split_once('?').unwrap_or_default();
    let selector = query.split('&').find_map(|part| part.strip_prefix("labelSelector=")).unwrap_or_default();
    selector.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/")
}

fn taint(name: &str) -> Value {
    json!({ "key": format!("example.com/{name}"), "effect": "NoSchedule" })
}

fn pod(app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": app, "labels": { "app": app, "tier": "node" } },
        "spec": {
            "nodeName": "n1",
            "containers": [{ "name": app, "image": lab::PROBE_IMAGE, "imagePullPolicy": "Never", "args": ["pause"] }],
            "tolerations": [{ "operator": "Exists" }],
        },
    })
}

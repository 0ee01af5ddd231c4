//! Nodes and pods with every field set that the product reads, with none, and with values that nobody expects.

use anyhow::{Context, Result};
use knr_core::action::worker_name;
use knr_core::config::Config;
use knr_core::ids::NodeRef;
use knr_core::names;
use knr_core::policy::Policy;
use knr_core::view::{Purpose, Stamp};
use knr_e2e::Api;
use lab::Lab;
use serde_json::{Value, json};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Of each kind there are more than this.
pub(crate) const FEW: usize = 4;
const FINALIZER: &str = "example.com/wait";

/// Makes nodes, a worker for each of the first ones, and init pods. Returns the nodes worth reading one by one.
pub(crate) fn make(lab: &Lab, admin: &Api, many: usize) -> Result<Vec<NodeRef>> {
    lab.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: kube-node-ready-worker, namespace: default }\n")?;
    lab.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: default, namespace: default }\n")?;
    let mut nodes = Vec::new();
    for node in odd_nodes() {
        nodes.push(create_node(admin, &node)?);
    }
    for (number, status) in worker_statuses().into_iter().enumerate() {
        let node = create_node(admin, &plain_node(&format!("worker-{number}")))?;
        create_worker(admin, &node, &status)?;
        nodes.push(node);
    }
    for number in 0..=FEW {
        let status = json!({ "phase": "Running",
            "conditions": [{ "type": "Initialized", "status": "True" },
                           { "type": "Ready", "status": if number % 2 == 0 { "True" } else { "False" } }],
            "containerStatuses": [container(&json!({ "running": {} })), container(&json!({}))] });
        create_pod(admin, &init_pod(&format!("init-{number}"), "full"), &status)?;
    }
    create_pod(admin, &init_pod("init-unscheduled", ""), &json!({ "phase": "Pending" }))?;
    for number in 0..many {
        create_node(admin, &plain_node(&format!("many-{number}")))?;
    }
    admin.delete(&format!("{NODES}/leaving"))?;
    admin.delete(&format!("{PODS}/{}", worker_name(&nodes.last().context("no node")?.uid)))?;
    admin.delete(&format!("{PODS}/init-0"))?;
    Ok(nodes)
}

/// Changes, adds and removes objects of every kind. The node, worker and init pod that are removed last belong to `last`.
pub(crate) fn change(admin: &Api, last: &str) -> Result<()> {
    let (on, off) = (json!([taint("a", "", "NoExecute")]), Value::Null);
    for taints in [on, off] {
        admin.patch(&format!("{NODES}/full"), &json!({ "spec": { "taints": taints } }))?;
    }
    let judged = json!({ "type": names::CONDITION, "status": "True", "reason": "", "message": "" });
    let conditions = json!({ "status": { "conditions": [judged] } });
    admin.patch(&format!("{NODES}/bare/status"), &conditions)?;
    admin.patch(&format!("{NODES}/bare/status"), &json!({ "status": { "conditions": null } }))?;
    admin.patch(
        &format!("{PODS}/init-1"),
        &json!({ "metadata": { "annotations": { "done": "ja \u{2713}" } } }),
    )?;
    let node = create_node(admin, &plain_node(last))?;
    create_worker(
        admin,
        &node,
        &json!({ "phase": "Running", "containerStatuses": [container(&json!({ "running": {} }))] }),
    )?;
    create_pod(admin, &init_pod("init-last", last), &json!({ "phase": "Running" }))?;
    for pod in [worker_name(&node.uid), "init-last".to_owned()] {
        let path = format!("{PODS}/{pod}");
        admin.patch(&path, &json!({ "metadata": { "annotations": { "x": "y" } } }))?;
        admin.delete(&format!("{path}?gracePeriodSeconds=0"))?;
    }
    admin.delete(&format!("{NODES}/{last}"))
}

fn create_node(admin: &Api, node: &Value) -> Result<NodeRef> {
    let made = admin.create(NODES, node)?;
    let text = |field: &str| made["metadata"][field].as_str().context("no name");
    Ok(NodeRef { name: text("name")?.into(), uid: text("uid")?.into() })
}

fn create_pod(admin: &Api, pod: &Value, status: &Value) -> Result<()> {
    let made = admin.create(PODS, pod)?;
    let name = made["metadata"]["name"].as_str().context("no name")?;
    admin.patch(&format!("{PODS}/{name}/status"), &json!({ "status": status })).map(drop)
}

fn create_worker(admin: &Api, node: &NodeRef, status: &Value) -> Result<()> {
    let stamp = Stamp {
        node: node.clone(),
        boot: "b\u{f6}\u{f6}t".into(),
        serial: 7,
        attempt: 3,
        purpose: Purpose::Verify,
        policy: "default".into(),
        requires: "abc".into(),
    };
    let mut pod = knr_k8s::objects::worker(&stamp, &Policy::from(&Config::default()));
    pod["metadata"]["namespace"] = json!("default");
    // Nobody may schedule it, or write to it in another way.
    pod["spec"]["schedulerName"] = json!("nobody");
    create_pod(admin, &pod, status)
}

fn odd_nodes() -> Vec<Value> {
    let owner = |kind: &str, group: &str, uid: &str| json!({ "apiVersion": group, "kind": kind, "name": "c-1", "uid": uid });
    let condition = |kind: &str, status: &str, message: &str| {
        json!({ "type": kind, "status": status, "reason": "Why", "message": message,
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": null })
    };
    let full = json!({
        "metadata": {
            "name": "full",
            "labels": { "zone": "a", "empty": "", "example.com/long": "x".repeat(63) },
            "annotations": {
                "unicode": "\u{e4}\u{20ac}\u{1d11e} \u{0}\u{7f} \"\\ \u{2028}", "empty": "", "long": "\u{fc}".repeat(2_000),
                "lines": "one\r\n\ttwo", names::STATE_ANNOTATION: "{\"phase\":\"failed\"}",
            },
            "ownerReferences": [owner("Machine", "example.com/v1", "m"), owner("NodeClaim", "karpenter.sh/v1", "u")],
            "finalizers": ["example.com/other"],
        },
        "spec": { "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "x://y", "unschedulable": true,
            "taints": [
                { "key": "old", "value": "v", "effect": "NoExecute", "timeAdded": "1969-12-31T23:59:59Z" },
                { "key": "late", "effect": "NoExecute", "timeAdded": "9999-12-31T23:59:59Z" },
                taint("value", "w", "PreferNoSchedule"), taint("none", "", "NoSchedule"),
            ] },
        "status": {
            "capacity": { "cpu": "4", "memory": "8Gi" }, "addresses": [{ "type": "Hostname", "address": "full" }],
            "conditions": [
                condition("MemoryPressure", "False", ""), condition("Ready", "True", "kubelet is ready"),
                condition(names::CONDITION, "False", "closed: \u{2717} dns: no answer\nsecond line"),
                condition("Other", "Unknown", ""),
            ],
            "nodeInfo": info("b-1 \u{e9}"), "images": [{ "names": ["a", "b"], "sizeBytes": 7 }],
        },
    });
    let odd = json!({
        "metadata": { "name": "odd", "labels": {}, "annotations": {}, "ownerReferences": [owner("NodeClaim", "example.com/v1", "u")] },
        "spec": { "taints": [] },
        "status": { "conditions": [condition(names::CONDITION, "Maybe", ""), condition("Ready", "", "")], "nodeInfo": info("") },
    });
    let unknown = json!({
        "metadata": { "name": "unknown" },
        "status": { "conditions": [condition("Ready", "Unknown", "")] },
    });
    let leaving = json!({ "metadata": { "name": "leaving", "finalizers": [FINALIZER] } });
    let bare = json!({ "metadata": { "name": "bare" } });
    vec![full, odd, unknown, leaving, bare]
}

fn plain_node(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "zone": "a" }, "annotations": { "note": "x".repeat(300) } },
        "spec": { "taints": [taint(names::UNVERIFIED_TAINT, "true", "NoSchedule")] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": info("b") },
    })
}

fn info(boot: &str) -> Value {
    json!({
        "bootID": boot, "machineID": "m", "systemUUID": "s", "architecture": "amd64", "operatingSystem": "linux",
        "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
    })
}

fn taint(key: &str, value: &str, effect: &str) -> Value {
    json!({ "key": key, "value": value, "effect": effect })
}

fn container(state: &Value) -> Value {
    json!({ "name": names::WORKER_CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": i32::MAX,
            "containerID": "containerd://1", "state": state })
}

/// How a worker can stand. The last one is deleted.
fn worker_statuses() -> Vec<Value> {
    let report = r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#;
    let ended = |code: i32, reason: &str, message: &str| {
        container(&json!({ "terminated": { "exitCode": code, "reason": reason, "message": message,
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z" } }))
    };
    let waiting = |reason: &str, message: &str| {
        container(&json!({ "waiting": { "reason": reason, "message": message } }))
    };
    let unscheduled = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 \u{2013} no" });
    let running = json!({ "phase": "Running", "containerStatuses": [container(&json!({ "running": {} }))] });
    vec![
        json!({}),
        json!({ "phase": "Pending", "conditions": [unscheduled] }),
        json!({ "phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff", "no \u{1f5bc} \"x\"")] }),
        json!({ "phase": "Pending", "containerStatuses": [waiting("ContainerCreating", "")] }),
        running.clone(),
        json!({ "phase": "Running", "containerStatuses": [container(&json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }))] }),
        json!({ "phase": "Succeeded", "containerStatuses": [ended(0, "Completed", report)] }),
        json!({ "phase": "Failed", "containerStatuses": [ended(-1, "Error", "last\nw\u{f6}rds")] }),
        json!({ "phase": "Failed", "containerStatuses": [ended(137, "", "")] }),
        json!({ "phase": "Failed", "reason": "Evicted", "message": "the node was low on m\u{e9}mory" }),
        json!({ "phase": "Failed", "initContainerStatuses": [ended(i32::MAX, "Error", "first")], "containerStatuses": [waiting("PodInitializing", "")] }),
        json!({ "phase": "Unknown", "containerStatuses": null }),
        running,
    ]
}

fn init_pod(name: &str, node: &str) -> Value {
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "startup.k8s.io/component": "init", "empty": "" },
                      "annotations": { "done": "yes", "unicode": "\u{20ac}" }, "finalizers": [] },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "c", "image": "i" }] },
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

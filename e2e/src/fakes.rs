//! Simulated nodes, by the hundred.

use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};
use crate::node::{GATE, Node};

/// A flag for the controller manager of a cluster whose simulated nodes live longer than half a minute: their
/// heartbeats are rare.
pub const LONG_GRACE: &str = "--node-monitor-grace-period=30m";
const AT_ONCE: usize = 16;
/// The admission policy that decides how simulated workers end.
const POLICY: &str = "fake-workers";

impl Cluster {
    /// Creates simulated nodes `PREFIX-0`, `PREFIX-1`, ... that have the gate and a boot ID and become Ready by
    /// themselves.
    pub fn fakes(&self, prefix: &str, count: usize) -> Result<Vec<Node<'_>>> {
        self.start_kwok()?;
        self.make_nodes(prefix, count, fake)
    }

    /// Creates nodes `PREFIX-0`, `PREFIX-1`, ... that have the gate and are Ready, but whose pods never start.
    pub fn idle_nodes(&self, prefix: &str, count: usize) -> Result<Vec<Node<'_>>> {
        self.make_nodes(prefix, count, |name| {
            let mut node = fake(name)?;
            node["metadata"]["annotations"] = json!({});
            node["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
            Ok(node)
        })
    }

    fn make_nodes(
        &self,
        prefix: &str,
        count: usize,
        node: impl Fn(&str) -> Result<Value> + Sync,
    ) -> Result<Vec<Node<'_>>> {
        let node = &node;
        let some_of = |first: usize| -> Result<Vec<(usize, Node<'_>)>> {
            (first..count)
                .step_by(AT_ONCE)
                .map(|number| {
                    let object = self.api().create("/api/v1/nodes", &node(&format!("{prefix}-{number}"))?)?;
                    Ok((number, Node::from_object(self, &object)?))
                })
                .collect()
        };
        let parts: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|first| scope.spawn(move || some_of(first))).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let mut nodes = Vec::new();
        for part in parts {
            nodes.extend(part.ok().context("a thread that makes nodes panicked")??);
        }
        nodes.sort_by_key(|(number, _)| *number);
        Ok(nodes.into_iter().map(|(_, node)| node).collect())
    }

    /// Makes workers on simulated nodes end at once, with this exit code and report. Without it they run indefinitely.
    ///
    /// The API server annotates each worker when it is created; on a real node the annotations have no effect.
    pub fn fake_workers_end(&self, exit_code: u8, report: &str) -> Result<()> {
        let exit_code = exit_code.to_string();
        let text = |text: &str| Value::from(text).to_string();
        let mark = format!(
            "Object{{metadata: Object.metadata{{annotations: {{\"lab/message\": {}, \"lab/exit-code\": {}}}}}}}",
            text(report),
            text(&exit_code),
        );
        self.apply(&policy(&mark).to_string())?;
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All");
        self.eventually("workers to be marked", || {
            let pod = self.api().create(&pods, &sample_worker())?;
            let marks = &pod["metadata"]["annotations"];
            ensure!(marks["lab/message"] == report, "{marks}");
            Ok(marks["lab/exit-code"] == exit_code.as_str())
        })
    }
}

fn fake(name: &str) -> Result<Value> {
    let (key_value, effect) = GATE.rsplit_once(':').context("the gate has an effect")?;
    let (key, value) = key_value.split_once('=').context("the gate has a value")?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "annotations": { "kwok.x-k8s.io/node": "fake" }, "labels": { "type": "kwok" } },
        "spec": { "taints": [{ "key": key, "value": value, "effect": effect }] },
        "status": { "nodeInfo": {
            "bootID": format!("{name}-boot-1"), "machineID": name, "systemUUID": name, "architecture": "amd64", "operatingSystem": "linux",
            "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "fake", "kubeProxyVersion": "",
        }},
    }))
}

fn policy(mark: &str) -> Value {
    let group = "admissionregistration.k8s.io/v1";
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": group, "kind": "MutatingAdmissionPolicy", "metadata": { "name": POLICY },
          "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": { "resourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] },
            ]},
            "matchConditions": [{ "name": "worker", "expression": "has(object.metadata.name) && object.metadata.name.startsWith('node-ready-worker-')" }],
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": mark } }],
        }},
        { "apiVersion": group, "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": POLICY },
          "spec": { "policyName": POLICY } },
    ]})
}

/// A pod that is as restricted as a worker. It is only ever created in dry-run mode.
pub(crate) fn sample_worker() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "node-ready-worker-sample" },
        "spec": {
            "serviceAccountName": "kube-node-ready-worker",
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{ "name": "worker", "image": "none", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            }}],
        },
    })
}

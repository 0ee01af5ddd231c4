//! The state of one node in the cluster. Public names are repeated here, so that the product cannot change them by
//! mistake.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::Lab;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};

/// Annotation with which an operator requests an attempt now.
pub const RETRY: &str = "node-ready/retry";
/// The taint of the verification gate.
pub const GATE: &str = "node-ready/unverified=true:NoSchedule";
/// The prefix of every name that the product puts on a node.
pub(crate) const OWN_NAMES: &str = "node-ready/";
/// The condition that the product sets on a node.
pub(crate) const CONDITION: &str = "NodeReadyVerified";
pub(crate) const GATE_KEY: &str = "node-ready/unverified";
const LABEL: &str = "node-ready/verified";
const STATE: &str = "node-ready/state";
const WORKER_NODE: &str = "node-ready/node";
/// The prefix of taints that Kubernetes itself adds and removes.
const OF_KUBERNETES: &str = "node.kubernetes.io/";

/// A node, real or simulated, that existed when it was looked up. Every call asks the API server again.
#[derive(Debug, Clone)]
pub struct Node<'c> {
    cluster: &'c Cluster,
    name: String,
    uid: String,
}

/// A condition of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// An event about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// `Normal` or `Warning`.
    pub kind: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub note: String,
    /// The controller that reported it.
    pub reporter: String,
}

impl<'c> Node<'c> {
    pub(crate) fn open(cluster: &'c Cluster, name: &str) -> Result<Self> {
        Self::from_object(cluster, &cluster.api().get(&format!("/api/v1/nodes/{name}"))?)
    }

    pub(crate) fn from_object(cluster: &'c Cluster, object: &Value) -> Result<Self> {
        let field = |name: &str| -> Result<String> {
            Ok(object["metadata"][name].as_str().with_context(|| format!("no {name}: {object}"))?.to_owned())
        };
        Ok(Self { cluster, name: field("name")?, uid: field("uid")? })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its UID when it was looked up.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Its cluster.
    #[must_use]
    pub fn cluster(&self) -> &'c Cluster {
        self.cluster
    }

    /// Its machine, which can be broken, restarted and powered off.
    pub fn machine(&self) -> Result<lab::Node> {
        Lab::node(self.cluster, &self.name)
    }

    /// Returns true if it still exists with the same UID.
    pub fn exists(&self) -> Result<bool> {
        let object = self.cluster.api().find(&self.path())?;
        Ok(object.is_some_and(|object| object["metadata"]["uid"] == self.uid.as_str()))
    }

    /// The whole object.
    pub fn object(&self) -> Result<Value> {
        self.cluster.api().get(&self.path())
    }

    /// Its taints in order, as `key=value:Effect`, without those that Kubernetes itself adds.
    pub fn taints(&self) -> Result<Vec<String>> {
        Ok(taints(&self.object()?, |key| !key.starts_with(OF_KUBERNETES)))
    }

    /// Returns true if it has no verification gate.
    pub fn is_open(&self) -> Result<bool> {
        Ok(taints(&self.object()?, |key| key == GATE_KEY).is_empty())
    }

    /// Returns true if it has no verification gate and the label of a verified node.
    pub fn is_verified(&self) -> Result<bool> {
        let object = self.object()?;
        Ok(taints(&object, |key| key == GATE_KEY).is_empty() && object["metadata"]["labels"][LABEL] == "true")
    }

    /// One of its labels.
    pub fn label(&self, key: &str) -> Result<Option<String>> {
        Ok(self.object()?["metadata"]["labels"][key].as_str().map(str::to_owned))
    }

    /// One of its annotations.
    pub fn annotation(&self, key: &str) -> Result<Option<String>> {
        Ok(self.object()?["metadata"]["annotations"][key].as_str().map(str::to_owned))
    }

    /// The state that the product keeps on it, or null.
    pub fn state(&self) -> Result<Value> {
        Ok(match self.annotation(STATE)? {
            Some(text) => serde_json::from_str(&text).context(text)?,
            None => Value::Null,
        })
    }

    /// The product's condition, for people and other controllers.
    pub fn condition(&self) -> Result<Option<Condition>> {
        let object = self.object()?;
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        Ok(conditions.find(|condition| condition["type"] == CONDITION).map(|condition| Condition {
            status: text(&condition["status"]),
            reason: text(&condition["reason"]),
            message: text(&condition["message"]),
        }))
    }

    /// All events about it, from any reporter.
    pub fn events(&self) -> Result<Vec<NodeEvent>> {
        self.cluster.events_on("Node", &self.name)
    }

    /// Its worker pods, of which there can be at most one.
    pub fn workers(&self) -> Result<Vec<Value>> {
        let mut pods = self.cluster.api().list(&format!("/api/v1/namespaces/{NAMESPACE}/pods"))?;
        pods.retain(|pod| pod["metadata"]["annotations"][WORKER_NODE] == self.name.as_str());
        Ok(pods)
    }

    /// Waits until its only worker is a pod in this phase, and returns the worker.
    #[track_caller]
    pub fn wait_for_worker(&self, phase: &str) -> Result<Value> {
        self.cluster.wait_for(&format!("the worker of {} to be {phase}", self.name), || {
            let mut workers = self.workers()?;
            ensure!(workers.len() == 1, "there are {}", workers.len());
            ensure!(workers[0]["status"]["phase"] == phase, "it is {}", workers[0]["status"]["phase"]);
            Ok(workers.pop())
        })
    }

    /// Changes it with a merge patch, with full permissions.
    pub fn patch(&self, patch: &Value) -> Result<Value> {
        self.cluster.api().patch(&self.path(), patch)
    }

    /// Adds the gate and removes every other taint, as if it had just joined.
    pub fn close(&self) -> Result<()> {
        let gate = json!({ "key": GATE_KEY, "value": "true", "effect": "NoSchedule" });
        self.patch(&json!({ "spec": { "taints": [gate] } })).map(drop)
    }

    /// Sets one of its annotations, or removes it.
    pub fn annotate(&self, key: &str, value: Option<&str>) -> Result<()> {
        self.patch(&json!({ "metadata": { "annotations": { key: value } } })).map(drop)
    }

    /// Removes the label of a verified node, which requests another verification.
    pub fn remove_label(&self) -> Result<()> {
        self.patch(&json!({ "metadata": { "labels": { LABEL: null } } })).map(drop)
    }

    /// Deletes the Node object, not its machine.
    pub fn delete(&self) -> Result<()> {
        self.cluster.api().delete(&self.path())
    }

    /// Waits until it has no verification gate.
    #[track_caller]
    pub fn wait_until_open(&self) -> Result<()> {
        self.cluster.eventually(&format!("the gate of {} to open", self.name), || self.is_open())
    }

    /// Waits until a field of its state has this value.
    #[track_caller]
    pub fn wait_for_state(&self, field: &str, value: impl Into<Value>) -> Result<()> {
        let value = value.into();
        self.cluster.wait_for(&format!("{field} to be {value} in the state of {}", self.name), || {
            let state = self.state()?;
            ensure!(state[field] == value, "it is {}", state[field]);
            Ok(Some(()))
        })
    }

    /// The number of workers with a result that its state records.
    pub fn results(&self) -> Result<u64> {
        Ok(self.state()?["serial"].as_u64().unwrap_or_default())
    }

    /// Waits until that many workers have a result, whatever it is.
    #[track_caller]
    pub fn wait_for_results(&self, count: u64) -> Result<()> {
        self.cluster.wait_for(&format!("{count} workers of {} to come to a result", self.name), || {
            let results = self.results()?;
            ensure!(results >= count, "{results} have");
            Ok(Some(()))
        })
    }

    /// Waits until its condition has this status, and a message with all of these parts.
    #[track_caller]
    pub fn wait_for_condition(&self, limit: Duration, status: &str, parts: &[&str]) -> Result<Condition> {
        let what = format!("the condition of {} to be {status} because of {parts:?}", self.name);
        self.cluster.wait_at_most(limit, &what, || {
            let condition = self.condition()?.context("it has none")?;
            let is_told = parts.iter().all(|part| condition.message.contains(part));
            ensure!(condition.status == status && is_told, "it is {condition:?}");
            Ok(Some(condition))
        })
    }

    fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }
}

impl Cluster {
    /// All events about an object.
    pub(crate) fn events_on(&self, kind: &str, name: &str) -> Result<Vec<NodeEvent>> {
        let events = self.api().list("/apis/events.k8s.io/v1/events")?;
        let is_about =
            |event: &&Value| event["regarding"]["kind"] == kind && event["regarding"]["name"] == name;
        Ok(events
            .iter()
            .filter(is_about)
            .map(|event| NodeEvent {
                kind: text(&event["type"]),
                reason: text(&event["reason"]),
                note: text(&event["note"]),
                reporter: text(&event["reportingController"]),
            })
            .collect())
    }
}

/// The taints of a node object in order, as `key=value:Effect`.
pub(crate) fn taints(node: &Value, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints
        .filter(|taint| taint["key"].as_str().is_some_and(&wanted))
        .map(|taint| {
            let value = taint["value"].as_str().filter(|value| !value.is_empty());
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            format!("{}{value}:{}", text(&taint["key"]), text(&taint["effect"]))
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn taints_keep_their_order_and_look_as_people_write_them() {
        let node = json!({ "spec": { "taints": [
            { "key": "z", "effect": "NoExecute" }, { "key": "a", "value": "b", "effect": "NoSchedule" },
        ]}});
        assert_eq!(taints(&node, |_| true), ["z:NoExecute", "a=b:NoSchedule"]);
        assert_eq!(taints(&node, |key| key == "a"), ["a=b:NoSchedule"]);
        assert_eq!(taints(&json!({}), |_| true), Vec::<String>::new());
    }
}

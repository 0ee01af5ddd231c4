//! Waiting, and diagnostics for when a wait times out.

use std::panic::Location;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fs_err as fs;
use serde_json::Value;

use crate::cluster::{Cluster, NAMESPACE};
use crate::node::{self, OWN_NAMES};

/// How long anything may take. It is generous, because only a failing test uses it up.
pub const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(150);
const LOG_LINES: usize = 25;
const MANY: usize = 12;

impl Cluster {
    /// Polls until `look` returns true. An error counts as "not yet".
    ///
    /// `what` completes the phrase "waiting for": `the gate of n2 to open`.
    #[track_caller]
    pub fn eventually(&self, what: &str, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
        self.wait_for(what, || Ok(look()?.then_some(())))
    }

    /// Polls until `look` returns something, and returns that. An error counts as "not yet".
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        self.wait_at_most(PATIENCE, what, look)
    }

    /// The same with another limit, for things that the product promises within a stated time.
    #[track_caller]
    pub fn wait_at_most<T>(
        &self,
        limit: Duration,
        what: &str,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let place = Location::caller();
        let deadline = Instant::now() + limit;
        loop {
            let last = match look() {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => None,
                Err(err) => Some(err),
            };
            if Instant::now() > deadline {
                let why = last.map(|err| format!(": {err:#}")).unwrap_or_default();
                bail!("{place}: waited {} s in vain for {what}{why}\n{}", limit.as_secs(), self.story());
            }
            std::thread::sleep(POLL);
        }
    }

    /// The current situation: nodes, pods, events, and the last log lines of the replicas.
    #[must_use]
    pub fn story(&self) -> String {
        let pods = self.api().list(&format!("/api/v1/namespaces/{NAMESPACE}/pods"));
        let events = self.api().list("/apis/events.k8s.io/v1/events").map(|mut events| {
            // Of the events about nodes, only those of the product: kubelets report many.
            events.retain(|event| {
                let ours = event["reportingController"].as_str().is_some_and(|who| who.contains(NAMESPACE));
                ours || event["metadata"]["namespace"] == NAMESPACE
            });
            events
        });
        let mut chapters = vec![
            chapter("nodes", self.api().list("/api/v1/nodes"), node_lines),
            chapter(&format!("pods in {NAMESPACE}"), pods, pod_lines),
            chapter(&format!("events in {NAMESPACE} or by it"), events, event_lines),
        ];
        for (name, program) in self.replicas() {
            let end = program.exit_status().map_or("running".to_owned(), |status| status.to_string());
            chapters.push(format!("replica {name} ({end}) said last:\n{}", tail(program.log())));
        }
        chapters.join("\n")
    }
}

/// A heading, and the lines of each object, or of the last objects if there are many.
fn chapter(heading: &str, objects: Result<Vec<Value>>, lines: fn(&Value) -> Vec<String>) -> String {
    let mut text = vec![format!("{heading}:")];
    match objects {
        Err(err) => text.push(format!("  {err:#}")),
        Ok(objects) => {
            let left_out = objects.len().saturating_sub(MANY);
            text.extend((left_out > 0).then(|| format!("  ... and {left_out} before these")));
            text.extend(objects[left_out..].iter().flat_map(lines).map(|line| format!("  {line}")));
        }
    }
    text.join("\n")
}

fn node_lines(node: &Value) -> Vec<String> {
    let (metadata, status) = (&node["metadata"], &node["status"]);
    let mut lines = vec![format!(
        "{} uid {} boot {} taints {:?}",
        metadata["name"],
        metadata["uid"],
        status["nodeInfo"]["bootID"],
        node::taints(node, |_| true)
    )];
    for names in [&metadata["labels"], &metadata["annotations"]] {
        let own = names.as_object().into_iter().flatten().filter(|(name, _)| name.contains(OWN_NAMES));
        lines.extend(own.map(|(name, value)| format!("  {name}: {value}")));
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let (kind, is) = (&condition["type"], &condition["status"]);
        if *kind == "Ready" || *kind == node::CONDITION {
            lines.push(format!("  {kind} is {is}: {}, {}", condition["reason"], condition["message"]));
        }
    }
    lines
}

fn pod_lines(pod: &Value) -> Vec<String> {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    let going = if metadata["deletionTimestamp"].is_null() { "" } else { ", being deleted" };
    let mut lines =
        vec![format!("{} on {} is {}{going}", metadata["name"], pod["spec"]["nodeName"], status["phase"])];
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    lines.extend(containers.map(|container| format!("  {}: {}", container["name"], container["state"])));
    lines
}

fn event_lines(event: &Value) -> Vec<String> {
    vec![format!("{} {}: {}", event["regarding"]["name"], event["reason"], event["note"])]
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_else(|err| err.to_string());
    let lines: Vec<_> = text.lines().map(|line| format!("  {line}")).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

//! What the lab's own tests share: labs, patience, and pods that look at the network.
#![allow(dead_code, reason = "every test file uses some of it")]

pub(crate) mod traces;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use lab::{Home, Lab, LabBuilder, PROBE_IMAGE, TemporaryLab};

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn home() -> Home {
    Home::from_env().unwrap()
}

/// A fresh lab with this many nodes that goes down with its test.
pub(crate) fn lab_with_nodes(name: &str, nodes: u8) -> TemporaryLab {
    builder(name).nodes(nodes).temporary().unwrap()
}

pub(crate) fn builder(name: &str) -> LabBuilder {
    Lab::builder(&home(), &lab_name(name))
}

/// Names of test labs clash neither with those of a person nor with those of another checkout. They are the same in
/// every run, so that what an interrupted run left is found.
pub(crate) fn lab_name(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
    format!("test-{:06x}-{name}", hasher.finish() & 0xff_ffff)
}

/// Looks until `look` succeeds. The last failure explains a time-out.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> anyhow::Result<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(value) => return value,
            Err(err) if Instant::now() > deadline => panic!("{what}: not within {PATIENCE:?}: {err:#}"),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// What the Ready condition of a node says: `True`, `False`, `Unknown`, or nothing.
pub(crate) fn ready(lab: &Lab, node: &str) -> anyhow::Result<String> {
    lab.kubectl(["get", "node", node, "-o", "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}"])
}

/// A pod of the lab's probe on one node, serving on port 8080.
pub(crate) struct Pod<'a> {
    lab: &'a Lab,
    name: String,
    pub(crate) address: String,
}

impl<'a> Pod<'a> {
    pub(crate) fn start(lab: &'a Lab, name: &str, node: &str) -> Self {
        lab.apply(&format!(
            "apiVersion: v1
kind: Pod
metadata: {{ name: {name}, labels: {{ app: {name} }} }}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  tolerations: [{{ operator: Exists }}]
  containers: [{{ name: probe, image: \"{PROBE_IMAGE}\", imagePullPolicy: Never, args: [serve, \":8080\"],
      env: [{{ name: PROBE_TIMEOUT, value: 5s }}] }}]
"
        ))
        .unwrap();
        let address = eventually(&format!("pod {name} to run"), || {
            let seen = lab.kubectl(["get", "pod", name, "-o", "jsonpath={.status.phase} {.status.podIP}"])?;
            match seen.split_once(' ') {
                Some(("Running", address)) if !address.is_empty() => Ok(address.to_owned()),
                _ => anyhow::bail!("it is {seen:?}"),
            }
        });
        Self { lab, name: name.to_owned(), address }
    }

    /// Asks the probe inside the pod.
    pub(crate) fn probe(&self, question: &[&str]) -> anyhow::Result<String> {
        self.lab.kubectl(["exec", &self.name, "--", "/probe"].iter().chain(question).copied())
    }
}

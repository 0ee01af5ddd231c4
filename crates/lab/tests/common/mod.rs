//! What the lab's own tests share: a lab that goes away with the test, and pods that look at the network.
#![allow(dead_code, reason = "every test file uses some of it")]

pub(crate) mod traces;

use std::ops::Deref;
use std::time::{Duration, Instant};

use lab::{Home, Lab, LabBuilder, PROBE_IMAGE};

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn home() -> Home {
    Home::from_env().unwrap()
}

/// A lab that goes down with its test, also when the test fails.
pub(crate) struct TestLab(Lab);

impl TestLab {
    pub(crate) fn up(name: &str, nodes: u8) -> Self {
        Self::build(name, |builder| builder.nodes(nodes))
    }

    /// Always a fresh lab: what an earlier, interrupted run of the test left is not built upon.
    pub(crate) fn build(name: &str, describe: impl FnOnce(LabBuilder) -> LabBuilder) -> Self {
        let name = format!("test-{name}");
        if let Ok(old) = Lab::open(&home(), &name) {
            old.down().unwrap();
        }
        match describe(Lab::builder(&home(), &name)).up() {
            Ok(lab) => Self(lab),
            Err(err) => panic!("{err:#}"),
        }
    }
}

impl Deref for TestLab {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        if let Err(err) = self.0.down() {
            eprintln!("cannot end lab {}: {err:#}", self.0.name());
        }
    }
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
  containers: [{{ name: probe, image: \"{PROBE_IMAGE}\", imagePullPolicy: Never, args: [serve, \":8080\"] }}]
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

//! The state of a node's gate over time, even if it lasts only a moment.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use lab::{Program, Tool};

use crate::node::{GATE_KEY, Node};

/// The resource version, and the keys of all taints.
const LINE: &str = "jsonpath={.metadata.resourceVersion} {.spec.taints[*].key}{\"\\n\"}";

/// Records the changes of a node. Unlike polling, a watch misses no version.
#[derive(Debug)]
pub struct GateLog<'n, 'c> {
    node: &'n Node<'c>,
    program: Program,
}

impl<'c> Node<'c> {
    /// Starts to record.
    pub fn gate_log<'n>(&'n self) -> Result<GateLog<'n, 'c>> {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let cluster = self.cluster();
        let mut watch = cluster.client(Tool::Kubectl);
        watch.args(["get", "node", self.name(), "--watch", "-o", LINE].map(OsStr::new));
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let program = cluster.spawn(&format!("gate-log-{number}"), watch)?;
        cluster.eventually("a watch to begin", || Ok(fs::read_to_string(program.log())?.contains('\n')))?;
        Ok(GateLog { node: self, program })
    }
}

impl GateLog<'_, '_> {
    /// Alternating `open` and `closed`, from the beginning until now.
    pub fn so_far(&self) -> Result<Vec<&'static str>> {
        let object = self.node.object()?;
        let now = object["metadata"]["resourceVersion"].as_str().context("a node has a version")?;
        let text = self.node.cluster().wait_for("a watch to show the present", || {
            let text = fs::read_to_string(self.program.log())?;
            ensure!(self.program.exit_status().is_none(), "the watch has ended: {text}");
            Ok(text.lines().any(|line| line.split(' ').next() == Some(now)).then_some(text))
        })?;
        let is_closed = |line: &str| line.split(' ').skip(1).any(|key| key == GATE_KEY);
        let mut states: Vec<_> =
            text.lines().map(|line| if is_closed(line) { "closed" } else { "open" }).collect();
        states.dedup();
        Ok(states)
    }
}

impl Drop for GateLog<'_, '_> {
    fn drop(&mut self) {
        if let Err(err) = self.program.kill() {
            eprintln!("cannot end the watch of {}: {err:#}", self.node.name());
        }
    }
}

//! A node of a lab, from `add` to `remove`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::address::{MAX_NODES, Reach};
use crate::lab::{self, Lab};
use crate::names::{self, Label, Taint};
use crate::progress::Step;
use crate::tools::Tool;
use crate::{home, host, machine, process};

const READY_LIMIT: Duration = Duration::from_mins(2);
const BOOT_ID: &str = "jsonpath={.status.nodeInfo.bootID}";
const READY_AND_BOOT: &str =
    "jsonpath={.status.nodeInfo.bootID} {.status.conditions[?(@.type==\"Ready\")].status}";

/// What must be known to switch a node on again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NodeState {
    pub(crate) index: u8,
    pub(crate) machine_id: String,
    pub(crate) taints: Vec<Taint>,
    pub(crate) labels: Vec<Label>,
    /// Written last: without it, the node was interrupted while it was made.
    complete: bool,
}

/// A node: a machine of its own with containerd, kubelet and kube-proxy.
#[derive(Debug, Clone)]
pub struct Node {
    lab: Lab,
    name: String,
    state: NodeState,
}

/// Collects what a new node should be like.
#[derive(Debug)]
pub struct NodeBuilder {
    lab: Lab,
    name: String,
    taints: Vec<Taint>,
    labels: Vec<Label>,
}

impl NodeBuilder {
    pub(crate) fn new(lab: &Lab, name: &str) -> Self {
        Self { lab: lab.clone(), name: name.to_owned(), taints: Vec::new(), labels: Vec::new() }
    }

    /// With a taint from its first moment.
    #[must_use]
    pub fn taint(mut self, taint: Taint) -> Self {
        self.taints.push(taint);
        self
    }

    /// With a label from its first moment. A kubelet may not give itself most labels under `kubernetes.io`.
    #[must_use]
    pub fn label(mut self, label: Label) -> Self {
        self.labels.push(label);
        self
    }

    /// Makes the node and waits until it is Ready.
    pub fn start(self) -> Result<Node> {
        let node = self.switch_on()?;
        node.wait_until_ready().with_context(|| {
            format!("node {} stays as it is: `lab node remove {0}` takes it away", node.name)
        })?;
        Ok(node)
    }

    /// Makes the node and switches it on, without waiting for it to be Ready.
    pub fn switch_on(self) -> Result<Node> {
        names::check("node", &self.name)?;
        if self.lab.reach() == Reach::Loopback {
            bail!("lab {} was made without root and cannot have nodes", self.lab.name());
        }
        self.lab
            .ask(["get", "--raw", "/readyz"])
            .context("the control plane does not answer, see `lab status`")?;
        lab::prepare_for_nodes(self.lab.home())?;
        let _lock = self.lab.lock()?;
        self.switch_on_locked()
    }

    /// For a caller that holds the lab's lock.
    pub(crate) fn switch_on_locked(self) -> Result<Node> {
        let step = Step::begin(&format!("switching on node {}", self.name));
        let mut node = self.reserve()?;
        machine::create(&node)?;
        machine::switch_on(&node)?;
        node.state.complete = true;
        node.save()?;
        step.done();
        Ok(node)
    }

    fn reserve(self) -> Result<Node> {
        let Self { lab, name, taints, labels } = self;
        match lab.nodes()?.into_iter().find(|node| node.name == name) {
            Some(half_made) if !half_made.state.complete => half_made.remove_locked()?,
            Some(_) => bail!("lab {} already has a node {name}: `lab node remove {name}` first", lab.name()),
            None => {}
        }
        let taken: Vec<_> = lab.nodes()?.iter().map(|node| node.state.index).collect();
        let index = (1..=MAX_NODES)
            .find(|index| !taken.contains(index))
            .with_context(|| format!("a lab can have {MAX_NODES} nodes at the most"))?;
        let machine_id = host::random_id()?.replace('-', "");
        let node =
            Node { lab, name, state: NodeState { index, machine_id, taints, labels, complete: false } };
        fs::create_dir_all(node.folder())?;
        node.save()?;
        node.new_boot_id()?;
        Ok(node)
    }
}

impl Node {
    pub(crate) fn open(lab: &Lab, name: &str) -> Result<Self> {
        names::check("node", name)?;
        let path = folder_of(lab, name).join("node.json");
        if !path.exists() {
            bail!("lab {} has no node {name}", lab.name());
        }
        let state = serde_json::from_slice(&fs::read(&path)?).with_context(|| path.display().to_string())?;
        Ok(Self { lab: lab.clone(), name: name.to_owned(), state })
    }

    pub(crate) fn all(lab: &Lab) -> Result<Vec<Self>> {
        let folder = lab.folder().join("nodes");
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut nodes = Vec::new();
        for entry in fs::read_dir(folder)? {
            nodes.extend(Self::open(lab, &entry?.file_name().to_string_lossy()));
        }
        nodes.sort_by_key(|node| node.state.index);
        Ok(nodes)
    }

    /// Its name, also as a Kubernetes object.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The range its pods get their addresses from.
    #[must_use]
    pub fn pod_range(&self) -> String {
        self.lab.addresses().pods_of(self.state.index).to_string()
    }

    /// Its own address.
    #[must_use]
    pub fn address(&self) -> String {
        self.lab.addresses().node(self.state.index).to_string()
    }

    /// Whether its machine has power.
    #[must_use]
    pub fn is_on(&self) -> bool {
        machine::is_on(self)
    }

    /// Which of its programs are not running.
    pub fn dead_programs(&self) -> Result<Vec<String>> {
        let mut dead = Vec::new();
        for program in [Tool::Containerd, Tool::Kubelet, Tool::KubeProxy] {
            if !machine::runs(self, program)? {
                dead.push(program.name());
            }
        }
        Ok(dead)
    }

    /// Whether it was made to the end. One that was not can only be removed, or added again.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state.complete
    }

    /// Waits until the API server reports this boot of the node as Ready, and ClusterIPs work on it.
    pub fn wait_until_ready(&self) -> Result<()> {
        let step = Step::begin(&format!("waiting for node {} to be Ready", self.name));
        let ready = format!("{} True", self.boot_id()?);
        machine::wait_watching(self, &[Tool::Kubelet, Tool::Containerd], "to be Ready", READY_LIMIT, || {
            let seen = self.lab.ask(["get", "node", &self.name, "-o", READY_AND_BOOT])?;
            Ok((seen.trim() == ready).then_some(()))
        })?;
        machine::wait_for_api_service(self)?;
        step.done();
        Ok(())
    }

    /// Cuts its power. The Node object stays and becomes NotReady after a while; [`Node::reboot`] starts it again.
    pub fn kill(&self) -> Result<()> {
        let _lock = self.lab.lock()?;
        machine::switch_off(self)
    }

    /// Switches it off, if it is on, and on again, with a new boot ID and the same disk and Node object. Faults do not
    /// survive it.
    pub fn reboot(&self) -> Result<()> {
        let lock = self.lab.lock()?;
        let node = self.clone().switch_on_again_locked()?;
        drop(lock);
        node.wait_until_ready()
    }

    /// For a caller that holds the lab's lock.
    pub(crate) fn switch_on_again_locked(self) -> Result<Self> {
        if !self.state.complete {
            bail!("node {} was interrupted while it was made: `lab node add {0}` makes it again", self.name);
        }
        let step = Step::begin(&format!("switching on node {} again", self.name));
        machine::switch_off(&self)?;
        self.new_boot_id()?;
        machine::switch_on(&self)?;
        step.done();
        Ok(self)
    }

    /// Takes the node away for good, machine and Node object.
    pub fn remove(self) -> Result<()> {
        let _lock = self.lab.lock()?;
        self.remove_locked()
    }

    fn remove_locked(self) -> Result<()> {
        machine::switch_off(&self)?;
        self.lab.kubectl(["delete", "node", &self.name, "--ignore-not-found"])?;
        Ok(fs::remove_dir_all(self.folder())?)
    }

    /// Runs a command on the node and gives what it printed.
    pub fn exec<'a>(&self, command: impl IntoIterator<Item = &'a str>) -> Result<String> {
        process::run(self.command()?.args(command))
    }

    /// A command on the node; its program and arguments are still missing.
    pub fn command(&self) -> Result<Command> {
        machine::inside(self)
    }

    /// The boot ID that the API server shows.
    pub fn reported_boot_id(&self) -> Result<String> {
        self.lab.kubectl(["get", "node", &self.name, "-o", BOOT_ID])
    }

    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        machine::import(self, archive)
    }

    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }

    pub(crate) fn state(&self) -> &NodeState {
        &self.state
    }

    pub(crate) fn folder(&self) -> PathBuf {
        folder_of(&self.lab, &self.name)
    }

    /// The boot ID that its machine has, or will have when it is switched on.
    fn boot_id(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder().join(machine::BOOT_ID))?.trim().to_owned())
    }

    fn new_boot_id(&self) -> Result<()> {
        Ok(fs::write(self.folder().join(machine::BOOT_ID), format!("{}\n", host::random_id()?))?)
    }

    fn save(&self) -> Result<()> {
        home::save_state(&self.folder().join("node.json"), &self.state)
    }
}

fn folder_of(lab: &Lab, name: &str) -> PathBuf {
    lab.folder().join("nodes").join(name)
}

//! A lab: one cluster on this machine, from `up` to `down`.

mod backup;
mod builder;
mod program;
mod temporary;

use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::address::{Addresses, Reach, port};
use crate::audit::{self, AuditEvent};
use crate::control_plane::Component;
use crate::home::{self, Home};
use crate::node::{Node, NodeBuilder};
use crate::pki::{Pair, Pki};
use crate::progress::Step;
use crate::tools::{self, Tool};
use crate::{cgroup, control_plane, image, machine, names, network, process};
pub(crate) use builder::prepare_for_nodes;
pub use builder::{LabBuilder, prepare};
pub use program::Program;
pub use temporary::TemporaryLab;

const DNS_LIMIT: Duration = Duration::from_mins(2);
const KWOK_LIMIT: Duration = Duration::from_mins(1);
const READY_REPLICAS: &str = "jsonpath={.status.readyReplicas}";
const KWOK: &str = include_str!("files/kwok.yaml");

/// What must be known to find a lab again. Everything else is read off the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    name: String,
    /// Marks the processes, control groups and links of this very lab.
    owner: String,
    slot: u8,
    reach: Reach,
    /// Extra flags, by the name of the component.
    flags: Vec<(String, String)>,
    /// Written last: without it, `up` was interrupted.
    complete: bool,
}

/// A component of the control plane as it is found on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentStatus {
    /// Its name: `etcd`, `kube-apiserver`, ...
    pub name: String,
    /// Its process, if it is running.
    pub pid: Option<i32>,
}

/// A cluster on this machine.
///
/// The handle is only a name: dropping it changes nothing, and [`Lab::open`] gives another one.
#[derive(Debug, Clone)]
pub struct Lab {
    home: Home,
    state: State,
}

impl Lab {
    /// Starts the description of a lab.
    #[must_use]
    pub fn builder(home: &Home, name: &str) -> LabBuilder {
        LabBuilder::new(home, name)
    }

    /// The lab of this name, whatever state it is in.
    pub fn open(home: &Home, name: &str) -> Result<Self> {
        Self::find(home, name)?
            .with_context(|| format!("no lab is called {name}: `lab up --name {name}` makes it"))
    }

    /// The lab of this name, if there is one.
    pub fn find(home: &Home, name: &str) -> Result<Option<Self>> {
        names::check("lab", name)?;
        let path = home.lab(name).join("lab.json");
        let text = match fs::read(&path) {
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let state = serde_json::from_slice(&text).with_context(|| {
            format!("{} is of another version of the lab: end it with that", path.display())
        })?;
        Ok(Some(Self { home: home.clone(), state }))
    }

    /// All labs of a home.
    pub fn all(home: &Home) -> Result<Vec<Self>> {
        let mut names = Vec::new();
        if home.labs().exists() {
            for entry in fs::read_dir(home.labs())? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
        }
        names.retain(|name| names::check("lab", name).is_ok());
        names.sort();
        names.iter().filter_map(|name| Self::find(home, name).transpose()).collect()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Everything of this lab on disk.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.home.lab(&self.state.name)
    }

    /// A kubeconfig with all permissions.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// Ends the lab and leaves nothing of it on the machine. If it is gone already, or another one has taken its name,
    /// there is nothing to do.
    pub fn down(&self) -> Result<()> {
        let _lock = self.home.lock_lab(self.name())?;
        if self.is_current()? { self.remove() } else { Ok(()) }
    }

    /// Whether this is still the lab of its name; somebody else may have ended it, or made it again.
    fn is_current(&self) -> Result<bool> {
        Ok(Self::find(&self.home, self.name())?.is_some_and(|current| current.owner() == self.owner()))
    }

    /// For a caller that holds the lab's lock. What says how to find the rest goes last.
    fn remove(&self) -> Result<()> {
        let mut doomed = self.clone();
        doomed.state.complete = false;
        doomed.save()?;
        process::kill(self.owner(), |_| true)?;
        if self.state.reach == Reach::Nodes {
            network::remove(self.owner(), self.state.slot)?;
            cgroup::remove_all(self.owner())?;
        }
        for entry in fs::read_dir(self.folder())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != "lab.json" {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(fs::remove_dir_all(self.folder())?)
    }

    /// Runs kubectl with all permissions and gives what it printed.
    pub fn kubectl<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
        process::run(self.client(Tool::Kubectl).args(arguments))
    }

    /// The same for questions that are asked again and again: an API server that hangs must not hang the caller.
    pub(crate) fn ask<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
        process::run(self.client(Tool::Kubectl).arg("--request-timeout=10s").args(arguments))
    }

    /// Creates or changes the objects of a manifest.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        process::run_with_text(self.client(Tool::Kubectl).args(["apply", "-f", "-"]), manifest)?;
        Ok(())
    }

    /// Runs Helm, which is built on first use, and gives what it printed.
    pub fn helm<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
        let helm = Tool::helm()?;
        tools::ensure(&self.home, &[helm])?;
        process::run(self.client(helm).args(arguments))
    }

    /// A client program that talks to this lab; its arguments are still missing.
    #[must_use]
    pub fn client(&self, tool: Tool) -> Command {
        let mut command = Command::new(tool.path(&self.home));
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// Describes a further node.
    #[must_use]
    pub fn add_node(&self, name: &str) -> NodeBuilder {
        NodeBuilder::new(self, name)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Result<Node> {
        Node::open(self, name)
    }

    /// All nodes that were added and not removed, also those that are switched off.
    pub fn nodes(&self) -> Result<Vec<Node>> {
        Node::all(self)
    }

    /// Brings an image archive (docker or OCI) to every node, also to those added later.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        let _lock = self.lock()?;
        image::check_archive(archive)?;
        // What a node refuses is not kept: it would stop every later node.
        self.nodes()?.iter().filter(|node| node.is_on()).try_for_each(|node| node.import(archive))?;
        image::keep(archive, &self.images())
    }

    /// What the API server did, for whom. See [`AuditEvent`].
    pub fn audit(&self) -> Result<Vec<AuditEvent>> {
        audit::read(&self.folder().join("audit.log"))
    }

    /// Starts kwok, unless it runs: every Node annotated `kwok.x-k8s.io/node=fake` is simulated from now on, and
    /// becomes Ready without a kubelet. A pod on it that is annotated `lab/message` ends at once with that message.
    pub fn start_kwok(&self) -> Result<()> {
        tools::ensure(&self.home, &[Tool::Kwok])?;
        let _lock = self.lock()?;
        if process::is_running(self.owner(), "kwok")? {
            return Ok(());
        }
        fs::write(self.folder().join("kwok.yaml"), KWOK)?;
        let address = (self.addresses().loopback(), port::KWOK);
        let mut command = Command::new(Tool::Kwok.path(&self.home));
        command
            .current_dir(self.folder())
            .args(["--kubeconfig=kubeconfig", "--config=kwok.yaml", "-v=ERROR"])
            .arg("--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake")
            .arg("--node-lease-duration-seconds=1200") // heartbeats are what thousands of nodes would cost
            .arg(format!("--server-address={}:{}", address.0, address.1))
            .args(self.flags(Tool::Kwok));
        let kwok = process::spawn(self.owner(), "kwok", &self.log("kwok"), command)?;
        process::wait_for("kwok", KWOK_LIMIT, &[&kwok], || Ok(TcpStream::connect(address).ok()))?;
        Ok(())
    }

    /// Kills one component of the control plane and starts it again on the same data.
    pub fn restart(&self, component: Component) -> Result<()> {
        let _lock = self.lock()?;
        process::kill(self.owner(), |role| role == component.tool().name())?;
        let daemon = control_plane::start(self, component)?;
        control_plane::wait_for_api(self, &[&daemon])
    }

    /// A server certificate that clients of this lab accept, for example for a webhook.
    pub fn certificate(&self, names: &[String]) -> Result<Pair> {
        let first = names.first().context("a certificate needs a name")?;
        self.pki().issue(first, &[], names)
    }

    /// The certificate of the lab's authority, in PEM.
    pub fn authority(&self) -> Result<String> {
        self.pki().authority()
    }

    /// Components of the control plane, and kwok if it was started.
    pub fn components(&self) -> Result<Vec<ComponentStatus>> {
        let found = process::find(self.owner())?;
        let pid = |name: &str| found.iter().find(|process| process.role == name).map(|process| process.pid);
        let mut names: Vec<_> = Component::ALL.iter().map(|component| component.tool().name()).collect();
        names.extend(pid("kwok").is_some().then(|| "kwok".to_owned()));
        Ok(names.into_iter().map(|name| ComponentStatus { pid: pid(&name), name }).collect())
    }

    /// Whether `up` came to its end, and the control plane answers.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.state.complete
            && self
                .components()
                .is_ok_and(|components| components.iter().all(|component| component.pid.is_some()))
            && self.ask(["get", "--raw", "/readyz"]).is_ok()
    }

    /// Whether enough of it is there to go on with: it was completed, and its router, or without one some part of its
    /// control plane, has lived ever since.
    fn can_go_on(&self) -> Result<bool> {
        let stands = match self.state.reach {
            Reach::Nodes => network::stands(self.owner())?,
            Reach::Loopback => !process::find(self.owner())?.is_empty(),
        };
        Ok(self.state.complete && stands)
    }

    /// Waits until the cluster's DNS serves, and every node that is on knows the way to it.
    pub fn wait_for_dns(&self) -> Result<()> {
        let step = Step::begin("waiting for the cluster's DNS");
        process::wait_for("CoreDNS", DNS_LIMIT, &[], || {
            let ready =
                self.ask(["-n", "kube-system", "get", "deployment", "coredns", "-o", READY_REPLICAS])?;
            Ok((ready == "1").then_some(()))
        })
        .with_context(|| self.dns_story())?;
        self.nodes()?.iter().filter(|node| node.is_on()).try_for_each(machine::wait_for_dns_service)?;
        step.done();
        Ok(())
    }

    /// What a person would look at next when DNS does not come up.
    fn dns_story(&self) -> String {
        let ask = |words: &[&str]| self.ask(words.iter().copied()).unwrap_or_else(|err| err.to_string());
        let pods = ask(&["-n", "kube-system", "get", "pods", "-o", "wide"]);
        let log = ask(&["-n", "kube-system", "logs", "deployment/coredns", "--tail=15"]);
        format!("the pods of kube-system:\n{pods}\nCoreDNS says:\n{log}")
    }

    fn save(&self) -> Result<()> {
        home::save_state(&self.folder().join("lab.json"), &self.state)
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn owner(&self) -> &str {
        &self.state.owner
    }

    pub(crate) fn addresses(&self) -> Addresses {
        Addresses::new(self.state.slot, self.state.reach)
    }

    pub(crate) fn reach(&self) -> Reach {
        self.state.reach
    }

    pub(crate) fn pki(&self) -> Pki {
        Pki::open(self.folder().join("pki"))
    }

    pub(crate) fn log(&self, component: &str) -> PathBuf {
        self.folder().join("log").join(format!("{component}.log"))
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.folder().join("images")
    }

    pub(crate) fn flags(&self, component: Tool) -> impl Iterator<Item = &str> {
        let name = component.name();
        self.state
            .flags
            .iter()
            .filter(move |(component, _)| *component == name)
            .map(|(_, flag)| flag.as_str())
    }

    /// Held while the lab or one of its nodes is changed. Fails if this very lab is not there any more.
    pub(crate) fn lock(&self) -> Result<File> {
        let lock = self.home.lock_lab(self.name())?;
        if !self.is_current()? {
            bail!("lab {} was ended, or made again, by another process", self.name());
        }
        Ok(lock)
    }
}

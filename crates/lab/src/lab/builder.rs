//! From nothing to a cluster that works.

use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;

use anyhow::{Result, bail, ensure};
use fs_err as fs;

use super::{Lab, State};
use crate::address::{MAX_NODES, Reach, SLOTS};
use crate::home::Home;
use crate::node::Node;
use crate::tools::{self, Tool};
use crate::{control_plane, host, image, names, network};

const CLUSTER: &str = include_str!("../files/cluster.yaml");

/// Collects what a new lab should be like.
#[derive(Debug, Clone)]
pub struct LabBuilder {
    pub(super) home: Home,
    pub(super) name: String,
    nodes: u8,
    flags: Vec<(String, String)>,
}

impl LabBuilder {
    pub(super) fn new(home: &Home, name: &str) -> Self {
        Self { home: home.clone(), name: name.to_owned(), nodes: 0, flags: Vec::new() }
    }

    /// With this many nodes, called n1, n2, ... Without any, no root is needed.
    #[must_use]
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// With an extra flag for a component of the control plane, the kubelets or the kube-proxies.
    #[must_use]
    pub fn flag(mut self, component: Tool, flag: &str) -> Self {
        self.flags.push((component.name(), flag.to_owned()));
        self
    }

    /// Makes the lab, or completes it: what died of its control plane is started again, and missing nodes are added.
    /// What an interrupted run left under this name, or one that the machine's reboot ended, is removed first.
    pub fn up(self) -> Result<Lab> {
        self.check()?;
        tools::ensure(&self.home, tools::CONTROL_PLANE)?;
        if self.nodes > 0 {
            prepare_for_nodes(&self.home)?;
        }
        let _lock = self.home.lock_lab(&self.name)?;
        let mut lab = match Lab::find(&self.home, &self.name)? {
            Some(lab) if lab.can_go_on()? => self.accept(lab)?,
            Some(lab) => {
                eprintln!("lab {}: removing what an earlier run left behind", self.name);
                lab.remove()?;
                self.create()?
            }
            None => self.create()?,
        };
        self.bring_up_nodes(&lab)?;
        lab.state.complete = true;
        lab.save()?;
        Ok(lab)
    }

    fn check(&self) -> Result<()> {
        names::check("lab", &self.name)?;
        ensure!(self.nodes <= MAX_NODES, "a lab can have {MAX_NODES} nodes at the most, not {}", self.nodes);
        for (component, _) in &self.flags {
            ensure!(
                Tool::daemons().any(|tool| tool.name() == *component),
                "{component:?} is not a component of the cluster"
            );
        }
        if self.nodes > 0 && !host::is_root() {
            bail!(
                "nodes need root for their namespaces: run as root, or use `--nodes 0` for a control plane only"
            );
        }
        Ok(())
    }

    /// A running lab is kept as it is, so it must be what was asked for.
    fn accept(&self, lab: Lab) -> Result<Lab> {
        if !self.flags.is_empty() && self.flags != lab.state.flags {
            bail!("lab {} is up with other flags: `lab down --name {0}` first", self.name);
        }
        control_plane::revive(&lab)?;
        Ok(lab)
    }

    fn create(&self) -> Result<Lab> {
        let (lab, _claim) = self.reserve()?;
        if lab.state.reach == Reach::Nodes {
            network::create(lab.owner(), lab.state.slot, &lab.log("router"), &Tool::Probe.path(&self.home))?;
        }
        control_plane::create(&lab)?;
        if lab.state.reach == Reach::Nodes {
            let manifest = CLUSTER
                .replace("DNS_ADDRESS", &lab.addresses().dns_service().to_string())
                .replace("COREDNS_IMAGE", image::COREDNS);
            lab.apply(&manifest)?;
        }
        Ok(lab)
    }

    /// Takes a slot and writes the owner down before anything is made that would have to be found again.
    fn reserve(&self) -> Result<(Lab, TcpListener)> {
        let reach = self.reach()?;
        let (slot, claim) = self.claim_slot(reach)?;
        let owner = host::random_id()?.replace('-', "")[..12].to_owned();
        let (name, flags) = (self.name.clone(), self.flags.clone());
        let lab = Lab {
            home: self.home.clone(),
            state: State { name, owner, slot, reach, flags, complete: false },
        };
        if lab.folder().exists() {
            // A run that was killed before it wrote anything down, or after it removed all that mattered.
            fs::remove_dir_all(lab.folder())?;
        }
        fs::create_dir_all(self.home.labs())?;
        // It will hold the keys of the cluster.
        std::fs::DirBuilder::new().mode(0o700).create(lab.folder())?;
        lab.save()?;
        fs::create_dir(lab.folder().join("log"))?;
        Ok((lab, claim))
    }

    /// Root can have nodes later, unless it is the root of a container that may not make a network.
    fn reach(&self) -> Result<Reach> {
        if !host::is_root() || (self.nodes == 0 && !host::can_make_a_network()) {
            return Ok(Reach::Loopback);
        }
        host::ensure_ready_for_network()?;
        tools::ensure(&self.home, &[Tool::Probe])?;
        Ok(Reach::Nodes)
    }

    fn claim_slot(&self, reach: Reach) -> Result<(u8, TcpListener)> {
        let own: Vec<_> = Lab::all(&self.home)?.iter().map(|lab| lab.state.slot).collect();
        let mut obstacles = Vec::new();
        for slot in 0..SLOTS {
            if own.contains(&slot) {
                obstacles.push(format!("slot {slot}: a lab of yours, see `lab status`"));
                continue;
            }
            match network::claim(slot, reach)? {
                Ok(claim) => return Ok((slot, claim)),
                Err(why) => obstacles.push(format!("slot {slot}: {why}")),
            }
        }
        bail!("there is no room for another lab:\n{}", obstacles.join("\n"))
    }

    /// Makes n1 to nN whole: missing ones are added, interrupted ones made again, and the others switched on.
    fn bring_up_nodes(&self, lab: &Lab) -> Result<()> {
        let mut started = Vec::new();
        for number in 1..=self.nodes {
            let name = format!("n{number}");
            match lab.nodes()?.into_iter().find(|node| node.name() == name && node.is_complete()) {
                Some(node) if node.is_on() && node.dead_programs()?.is_empty() => {}
                Some(node) => started.push(node.switch_on_again_locked()?),
                None => started.push(lab.add_node(&name).switch_on_locked()?),
            }
        }
        // All are switched on before any is waited for.
        started.iter().try_for_each(Node::wait_until_ready)?;
        if started.is_empty() { Ok(()) } else { lab.wait_for_dns() }
    }
}

/// Builds the usual programs of the lab and, as root, installs what nodes need from the machine's packages.
pub fn prepare(home: &Home) -> Result<()> {
    if host::is_root() {
        host::ensure_ready_for_nodes()?;
    }
    tools::ensure(home, &Tool::usual())
}

/// Builds and installs what nodes need.
pub(crate) fn prepare_for_nodes(home: &Home) -> Result<()> {
    host::ensure_ready_for_nodes()?;
    tools::ensure(home, tools::NODES)?;
    image::base(home)?;
    Ok(())
}

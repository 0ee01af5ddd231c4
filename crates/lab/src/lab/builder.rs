//! From nothing to a cluster that works.

use std::fs;
use std::net::TcpListener;

use anyhow::{Context, Result, bail};

use super::{Lab, State};
use crate::address::SLOTS;
use crate::home::Home;
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

    /// Makes the lab, or completes it: if it is up and well, only missing nodes are added. What an interrupted or
    /// broken lab of the same name left behind is removed first.
    pub fn up(self) -> Result<Lab> {
        names::check("lab", &self.name)?;
        if self.nodes > 0 && !host::is_root() {
            bail!(
                "nodes need root for their namespaces: run as root, or use `--nodes 0` for a control plane only"
            );
        }
        tools::ensure(&self.home, tools::CONTROL_PLANE)?;
        if self.nodes > 0 {
            prepare_for_nodes(&self.home)?;
        }
        let _lock = self.home.lock_lab(&self.name)?;
        let mut lab = match Lab::open(&self.home, &self.name) {
            Ok(lab) if lab.is_well() => self.accept(lab)?,
            Ok(lab) => {
                eprintln!("lab {}: removing what an earlier run left behind", self.name);
                lab.remove()?;
                self.create()?
            }
            Err(_) => self.create()?,
        };
        lab.add_missing_nodes(self.nodes)?;
        lab.state.complete = true;
        lab.save()?;
        Ok(lab)
    }

    /// A running lab is kept as it is, so it must be what was asked for.
    fn accept(&self, lab: Lab) -> Result<Lab> {
        if !self.flags.is_empty() && self.flags != lab.state.flags {
            bail!("lab {} is up with other flags: `lab down --name {0}` first", self.name);
        }
        Ok(lab)
    }

    fn create(&self) -> Result<Lab> {
        let (lab, _claim) = self.reserve()?;
        if lab.state.networked {
            let log = lab.log("router");
            network::create(lab.owner(), lab.state.slot, &log, &Tool::Probe.path(&self.home))?;
        }
        control_plane::create(&lab)?;
        if lab.state.networked {
            let manifest = CLUSTER
                .replace("DNS_ADDRESS", &lab.addresses().dns_service().to_string())
                .replace("COREDNS_IMAGE", image::COREDNS);
            lab.apply(&manifest)?;
        }
        Ok(lab)
    }

    /// Takes a slot and writes the owner down before anything is made that would have to be found again.
    fn reserve(&self) -> Result<(Lab, TcpListener)> {
        let networked = host::is_root();
        if networked {
            host::ensure_ready_for_network()?;
            tools::ensure(&self.home, &[Tool::Probe])?;
        }
        let taken: Vec<_> = Lab::all(&self.home)?.iter().map(|lab| lab.state.slot).collect();
        let mut free = (0..SLOTS).filter(|slot| !taken.contains(slot));
        let (slot, claim) = loop {
            let slot = free
                .next()
                .context("no room for another lab: `lab status` lists them, `lab down` ends one")?;
            if let Some(claim) = network::claim(slot, networked)? {
                break (slot, claim);
            }
        };
        let owner = host::random_id()?.replace('-', "")[..12].to_owned();
        let (name, flags) = (self.name.clone(), self.flags.clone());
        let state = State { name, owner, slot, networked, flags, complete: false };
        let lab = Lab { home: self.home.clone(), state };
        fs::create_dir_all(lab.folder().join("log"))?;
        lab.save()?;
        Ok((lab, claim))
    }
}

/// Builds every program of the lab and, as root, installs what nodes need from the machine's packages.
pub fn prepare(home: &Home) -> Result<()> {
    if host::is_root() {
        host::ensure_ready_for_nodes()?;
    }
    tools::ensure(home, <Tool as clap::ValueEnum>::value_variants())
}

/// Builds and installs what nodes need.
pub(crate) fn prepare_for_nodes(home: &Home) -> Result<()> {
    host::ensure_ready_for_nodes()?;
    tools::ensure(home, tools::NODES)?;
    image::base(home)?;
    Ok(())
}

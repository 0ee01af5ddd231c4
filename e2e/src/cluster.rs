//! A cluster in which the product can run.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use fs_err as fs;
use lab::{Home, Lab, LabBuilder, Program, TemporaryLab};

use crate::api::Api;
use crate::config::Config;
use crate::node::{GATE, Node};
use crate::product;
use crate::writes::named;

/// The namespace of the product and its workers.
pub const NAMESPACE: &str = "kube-node-ready";
/// The namespace enforces the strictest pod security level.
const SETTING: &str = "apiVersion: v1
kind: Namespace
metadata: { name: kube-node-ready, labels: { pod-security.kubernetes.io/enforce: restricted } }
";

/// A real cluster that has the product's image, namespace and permissions, and that is removed when the test ends.
///
/// It can do everything that a [`Lab`] can.
#[derive(Debug)]
pub struct Cluster {
    api: Api,
    /// The permissions granted last, as the product printed them.
    permitted: Mutex<String>,
    /// The replicas on this machine, for the diagnostics of a failure.
    replicas: Mutex<Vec<(String, Program)>>,
    /// Dropped last.
    lab: TemporaryLab,
}

impl Cluster {
    /// Starts a fresh cluster with nodes n1, n2, ... that have no gate. Every test needs a name of its own.
    pub fn start(name: &str, nodes: u8) -> Result<Self> {
        Self::start_with(name, |lab| lab.nodes(nodes))
    }

    /// The same, with changes to the lab.
    pub fn start_with(name: &str, shape: impl FnOnce(LabBuilder) -> LabBuilder) -> Result<Self> {
        let cluster = Self::start_bare(name, shape)?;
        cluster.permit(&Config::new())?;
        Ok(cluster)
    }

    /// The same without permissions, for tests whose installation brings its own.
    pub fn start_bare(name: &str, shape: impl FnOnce(LabBuilder) -> LabBuilder) -> Result<Self> {
        let image = product::image()?;
        let lab = shape(Lab::builder(&Home::from_env()?, &lab_name(name))).temporary()?;
        lab.load_image(&image)?;
        lab.apply(SETTING)?;
        let api = Api::open(&lab.kubeconfig())?;
        Ok(Self { api, permitted: Mutex::default(), replicas: Mutex::default(), lab })
    }

    /// The API server, as a cluster administrator sees it.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Grants the permissions that the product says it needs with this configuration. Earlier grants stay.
    pub fn permit(&self, config: &Config) -> Result<()> {
        let file = self.folder().join("permit.yaml");
        let mut permitted = self.permitted.lock().unwrap_or_else(PoisonError::into_inner);
        fs::write(&file, config.text())?;
        let needed = product::permissions(NAMESPACE, &file)?;
        if *permitted != needed {
            self.apply(&needed).context("the permissions that the product prints")?;
            *permitted = needed;
        }
        Ok(())
    }

    /// Starts a node that has the gate from its first moment, and waits until it is Ready.
    pub fn join(&self, name: &str) -> Result<Node<'_>> {
        self.join_with(name, &[GATE])
    }

    /// The same with these taints, in this order: `key=value:Effect`.
    pub fn join_with(&self, name: &str, taints: &[&str]) -> Result<Node<'_>> {
        let mut node = self.add_node(name);
        for taint in taints {
            node = node.taint(taint.parse()?);
        }
        node.start()?;
        self.node(name)
    }

    /// Looks up a node.
    pub fn node(&self, name: &str) -> Result<Node<'_>> {
        Node::open(self, name)
    }

    /// The replica that holds the lease, if any does.
    pub fn leader(&self) -> Result<Option<String>> {
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kube-node-ready-controller");
        let lease = self.api.find(&path)?.unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        Ok(holder.map(|holder| named(holder).to_owned()))
    }

    /// Remembers a replica for the diagnostics of a failure.
    pub(crate) fn add_replica(&self, name: &str, program: Program) {
        let mut replicas = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
        replicas.retain(|(known, _)| known != name);
        replicas.push((name.to_owned(), program));
    }

    pub(crate) fn replicas(&self) -> Vec<(String, Program)> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Deref for Cluster {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// Clashes neither with labs that somebody started by hand nor with those of another checkout. It is the same in every
/// run, so that the leftovers of an interrupted run are found.
fn lab_name(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
    format!("e2e-{:06x}-{name}", hasher.finish() & 0xff_ffff)
}

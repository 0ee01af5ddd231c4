//! The product as users install it: with its Helm chart.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};
use crate::config::Config;
use crate::{in_checkout, product};

/// The name of the release, and so of its objects.
pub const RELEASE: &str = "kube-node-ready";
/// The label that all objects of the release have.
const OURS: &str = "app.kubernetes.io/instance=kube-node-ready";
/// The kinds of the chart's objects, and of those that Helm keeps. Service account credentials and the lease belong to
/// the cluster.
const KINDS: &str = "deployments,daemonsets,jobs,pods,configmaps,services,poddisruptionbudgets,networkpolicies,serviceaccounts,\
roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";

/// An installation of the chart.
#[derive(Debug, Clone)]
pub struct Release<'c> {
    cluster: &'c Cluster,
    namespace: &'static str,
}

/// How long Helm waits.
const LONG_ENOUGH: &str = "3m";

/// The folder of the chart.
#[must_use]
pub fn chart() -> PathBuf {
    in_checkout("deploy/helm/kube-node-ready")
}

/// The labels of all pods of a component.
#[must_use]
pub fn pods_of(component: &str) -> String {
    format!("app.kubernetes.io/name=kube-node-ready,app.kubernetes.io/component={component}")
}

/// Values with the image under test and the timeouts of a test.
#[must_use]
pub fn values() -> Value {
    json!({
        "image": { "repository": product::REPOSITORY, "tag": product::TAG, "pullPolicy": "Never" },
        "controller": { "config": Config::new().set("worker.retries", 0).value() },
    })
}

impl<'c> Release<'c> {
    /// Installs the chart and waits until everything is ready.
    pub fn install(cluster: &'c Cluster, values: &Value) -> Result<Self> {
        Self::install_in(NAMESPACE, cluster, values)
    }

    /// The same in another namespace.
    pub fn install_in(namespace: &'static str, cluster: &'c Cluster, values: &Value) -> Result<Self> {
        let release = Self { cluster, namespace };
        release.run("install", values, LONG_ENOUGH)?;
        Ok(release)
    }

    /// Changes the values, and waits until everything is ready again.
    pub fn upgrade(&self, values: &Value) -> Result<()> {
        self.upgrade_within(LONG_ENOUGH, values)
    }

    /// The same with another timeout.
    pub fn upgrade_within(&self, patience: &str, values: &Value) -> Result<()> {
        self.run("upgrade", values, patience).map(drop)
    }

    /// Runs the chart's own test and returns its output.
    pub fn test(&self) -> Result<String> {
        self.cluster.helm(["test", RELEASE, "--namespace", self.namespace, "--timeout", LONG_ENOUGH])
    }

    /// Uninstalls it.
    pub fn uninstall(self) -> Result<String> {
        let options = ["--namespace", self.namespace, "--wait", "--timeout", LONG_ENOUGH];
        self.cluster.helm(["uninstall", RELEASE].into_iter().chain(options))
    }

    fn run(&self, verb: &str, values: &Value, patience: &str) -> Result<String> {
        let file = self.cluster.folder().join("values.json");
        fs::write(&file, values.to_string())?;
        let (chart, file) = (chart(), file.to_string_lossy().into_owned());
        let chart = chart.to_str().context("the folder of the chart is no text")?;
        let options = ["--namespace", self.namespace, "--values", &file, "--wait", "--timeout", patience];
        self.cluster.helm([verb, RELEASE, chart].into_iter().chain(options))
    }
}

impl Cluster {
    /// The objects of the release, as `kind/name`, without those that are being deleted.
    pub fn objects_of_release(&self) -> Result<Vec<String>> {
        let listed =
            self.kubectl(["get", KINDS, "--all-namespaces", "--selector", OURS, "--output", "json"])?;
        let list: Value = serde_json::from_str(&listed)?;
        let items = list["items"].as_array().with_context(|| listed.clone())?;
        let there = items.iter().filter(|object| object["metadata"]["deletionTimestamp"].is_null());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(there
            .map(|object| format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"])))
            .collect())
    }

    /// Asks the API server to validate objects, without creating them.
    pub fn would_accept(&self, manifest: &str) -> Result<()> {
        let file = self.folder().join("rendered.yaml");
        fs::write(&file, manifest)?;
        let file = file.to_string_lossy().into_owned();
        let said = self.kubectl(["apply", "--dry-run=server", "--filename", &file])?;
        ensure!(said.contains("(server dry run)"), "nothing was checked: {said}");
        Ok(())
    }
}

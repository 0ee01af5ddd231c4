//! The controller in pods, as it runs in production.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};
use crate::config::Config;
use crate::controller::{ACCOUNT, Controller};
use crate::http::{self, Answer};
use crate::product;

const NAME: &str = "kube-node-ready-controller";
const PORT: u16 = 8080;

/// Replicas of the controller in pods of a Deployment.
#[derive(Debug, Clone)]
pub struct Deployment<'c> {
    cluster: &'c Cluster,
    replicas: usize,
}

impl<'c> Controller<'c> {
    /// Deploys replicas in pods, or changes the deployment, and waits until all are ready.
    #[track_caller]
    pub fn deploy(cluster: &'c Cluster, config: &Config, replicas: usize) -> Result<Deployment<'c>> {
        cluster.permit(config)?;
        cluster.apply(&manifest(config, replicas).to_string())?;
        let deployment = Deployment { cluster, replicas };
        deployment.wait_until_ready()?;
        Ok(deployment)
    }
}

impl Deployment<'_> {
    /// The names of the pods that exist and are not being deleted.
    pub fn pods(&self) -> Result<Vec<String>> {
        let pods = self.objects()?;
        Ok(pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect())
    }

    /// The log of a pod, as text.
    pub fn log(&self, pod: &str) -> Result<String> {
        self.cluster.kubectl(["-n", NAMESPACE, "logs", pod])
    }

    /// Fetches a path from a pod.
    pub fn get(&self, pod: &str, path: &str) -> Result<Answer> {
        let object = self.cluster.api().get(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}"))?;
        let address = object["status"]["podIP"].as_str().with_context(|| format!("{pod} has no address"))?;
        http::get(SocketAddr::new(address.parse()?, PORT), path)
    }

    /// Waits until the expected number of pods are ready, and no others are left.
    #[track_caller]
    pub fn wait_until_ready(&self) -> Result<()> {
        self.cluster.wait_for(&format!("{} pods of the controller to be ready", self.replicas), || {
            let pods = self.objects()?;
            let ready = |pod: &&Value| {
                let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
                conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
            };
            let (all, ready) = (pods.len(), pods.iter().filter(ready).count());
            ensure!((all, ready) == (self.replicas, self.replicas), "{ready} of {all} are ready");
            Ok(Some(()))
        })
    }

    /// Removes it.
    pub fn remove(self) -> Result<()> {
        self.cluster.kubectl([
            "-n",
            NAMESPACE,
            "delete",
            "deployment",
            NAME,
            "--wait",
            "--cascade=foreground",
        ])?;
        Ok(())
    }

    fn objects(&self) -> Result<Vec<Value>> {
        let mut pods = self
            .cluster
            .api()
            .list(&format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app={NAME}"))?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pods)
    }
}

fn manifest(config: &Config, replicas: usize) -> Value {
    let text = config.text();
    let field = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": NAMESPACE },
          "data": { "config.yaml": text } },
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": NAME, "namespace": NAMESPACE },
          "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": NAME } },
            "template": {
                "metadata": { "labels": { "app": NAME } },
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    // The controller must be able to run where every node is gated.
                    "tolerations": [{ "key": "node-ready/unverified", "operator": "Exists" }],
                    "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
                    "containers": [{
                        "name": "controller",
                        "image": format!("{}:{}", product::REPOSITORY, product::TAG), "imagePullPolicy": "Never",
                        "args": ["controller", "--config", "/etc/kube-node-ready/config.yaml"],
                        "env": [
                            { "name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace") },
                            { "name": "POD_NAME", "valueFrom": field("metadata.name") },
                        ],
                        "ports": [{ "name": "http", "containerPort": PORT }],
                        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "http" }, "periodSeconds": 1 },
                        "livenessProbe": { "httpGet": { "path": "/healthz", "port": "http" } },
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                        "volumeMounts": [{ "name": "config", "mountPath": "/etc/kube-node-ready", "readOnly": true }],
                    }],
                    "volumes": [{ "name": "config", "configMap": { "name": NAME } }],
                },
            },
        }},
    ]})
}

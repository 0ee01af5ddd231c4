//! Switches the cluster's DNS off and on, for all nodes.

use anyhow::Result;
use serde_json::json;

use crate::cluster::Cluster;

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/kube-system/deployments/coredns";
const PODS: &str = "/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-dns";

impl Cluster {
    /// Scales CoreDNS to zero, and waits until no server is left. Unlike [`lab::Fault::Dns`] this hits all nodes.
    pub fn stop_dns(&self) -> Result<()> {
        self.scale_dns(0)?;
        self.eventually("CoreDNS to be gone", || Ok(self.api().list(PODS)?.is_empty()))
    }

    /// Scales CoreDNS up again, and waits until it serves.
    pub fn start_dns(&self) -> Result<()> {
        self.scale_dns(1)?;
        self.wait_for_dns()
    }

    fn scale_dns(&self, replicas: u32) -> Result<()> {
        self.api().patch(DEPLOYMENT, &json!({ "spec": { "replicas": replicas } })).map(drop)
    }
}

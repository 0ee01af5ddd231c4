//! The plan of a release, for a dry run.

use knr_core::config::Taint;
use knr_core::ids::NodeName;

use super::{Release, ReleaseError};

/// What a release would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pods that must be gone first.
    pub waits_for: Vec<String>,
    /// Workers to remove.
    pub workers: Vec<String>,
    /// Nodes to open, and the taints to remove.
    pub nodes: Vec<(NodeName, Vec<Taint>)>,
    /// The number of nodes that have no gate.
    pub without_gate: usize,
}

impl Release {
    /// Determines the plan without any change.
    pub(super) async fn plan(&self) -> Result<Plan, ReleaseError> {
        let waits_for = self.running().await?.into_iter().map(|pod| pod.metadata.name).collect();
        let workers = self.workers().await?.into_iter().map(|worker| worker.name).collect();
        let (closed, without_gate) = self.closed().await?;
        let nodes = closed.iter().map(|node| (node.id.name.clone(), self.gates_on(node))).collect();
        Ok(Plan { waits_for, workers, nodes, without_gate })
    }
}

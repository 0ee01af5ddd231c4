//! Chooses the node on which a worker is tried.

use knr_core::ids::NodeRef;
use knr_core::names;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Doctor;
use super::pods::Condition;
use crate::api::{Failed, Target};
use crate::calls::Call;
use crate::observe::Meta;
use crate::read::{List, by_name};

/// Workers run only on Linux.
const LINUX: &str = "kubernetes.io/os=linux";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    taints: Option<Vec<IgnoredAny>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

impl Node {
    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key)
    }

    fn is_ready(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && Condition::says(self.status.conditions.as_ref(), "Ready", "True")
    }

    fn is_control_plane(&self) -> bool {
        names::CONTROL_PLANE_LABELS.iter().any(|label| self.label(label).is_some())
    }

    fn id(&self) -> NodeRef {
        NodeRef { name: self.metadata.name.as_str().into(), uid: self.metadata.uid.as_str().into() }
    }
}

impl Doctor {
    /// Returns the requested node, or otherwise the one that is most likely healthy: a failure there points to the
    /// installation.
    pub(super) async fn chosen_node(&self) -> Result<Option<NodeRef>, Failed> {
        if let Some(name) = &self.installation.node {
            let query = by_name(name);
            let named: List<Node> =
                self.api.read(Call::ListNodes, Target::query(&query), self.soon()).await?;
            return Ok(named.items.first().map(Node::id));
        }
        let nodes: Vec<Node> = self.api.all(Call::ListNodes, LINUX, self.limit()).await?;
        let mut fit: Vec<&Node> =
            nodes.iter().filter(|node| node.is_ready() && !self.is_excluded(node)).collect();
        let taints = |node: &Node| node.spec.taints.as_ref().map_or(0, Vec::len);
        fit.sort_by_key(|node| (!self.is_verified(node), node.is_control_plane(), taints(node)));
        Ok(fit.first().map(|node| node.id()))
    }

    pub(super) async fn verified_nodes(&self) -> Result<usize, Failed> {
        let nodes: Vec<Node> = self.api.all(Call::ListNodes, LINUX, self.limit()).await?;
        Ok(nodes.iter().filter(|node| self.is_verified(node)).count())
    }

    fn is_verified(&self, node: &Node) -> bool {
        let label = &self.config().node_management.verified_label;
        node.label(&label.key) == Some(&label.value)
    }

    fn is_excluded(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        self.config().node_management.exclude.iter().any(|selector| selector.matches(&labels))
    }
}

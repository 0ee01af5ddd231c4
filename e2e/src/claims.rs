//! Karpenter's objects, without Karpenter.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::node::{Node, NodeEvent};

const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
/// The part of the definition that the product depends on.
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: nodeclaims.karpenter.sh }
spec:
  group: karpenter.sh
  scope: Cluster
  names: { kind: NodeClaim, listKind: NodeClaimList, plural: nodeclaims, singular: nodeclaim }
  versions:
    - name: v1
      served: true
      storage: true
      schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }
";
/// Karpenter removes it once the machine is gone.
const FINALIZER: &str = "karpenter.sh/termination";

/// The claim of a node.
#[derive(Debug)]
pub struct Claim<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl Cluster {
    /// Creates a claim for a node, and makes it the owner of the node, as Karpenter does.
    pub fn claim(&self, node: &Node<'_>) -> Result<Claim<'_>> {
        self.apply(DEFINITION)?;
        let name = format!("claim-of-{}", node.name());
        let claim = self.wait_for("the API server to take claims", || {
            let claim = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": { "name": name, "finalizers": [FINALIZER] },
                "status": { "nodeName": node.name() },
            });
            self.api().create(CLAIMS, &claim).map(Some)
        })?;
        let owner = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": claim["metadata"]["uid"],
            "blockOwnerDeletion": true,
        });
        node.patch(&json!({ "metadata": { "ownerReferences": [owner] } }))?;
        Ok(Claim { cluster: self, name })
    }
}

impl Claim<'_> {
    /// Returns true if it was deleted and Karpenter has not terminated the machine yet.
    pub fn is_being_deleted(&self) -> Result<bool> {
        let claim = self.cluster.api().get(&self.path())?;
        Ok(!claim["metadata"]["deletionTimestamp"].is_null())
    }

    /// Removes Karpenter's finalizer: the machine is gone.
    pub fn finish(&self) -> Result<()> {
        let done = json!({ "metadata": { "finalizers": Value::Null } });
        self.cluster.api().patch(&self.path(), &done).map(drop)
    }

    /// The events about it.
    pub fn events(&self) -> Result<Vec<NodeEvent>> {
        self.cluster.events_on("NodeClaim", &self.name)
    }

    fn path(&self) -> String {
        format!("{CLAIMS}/{}", self.name)
    }
}

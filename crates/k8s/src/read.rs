//! Reads that no watch covers: the current state of single nodes and workers, what runs on a node, the ledger.

use std::time::Duration;

use knr_core::action::worker_name;
use knr_core::ids::{NodeName, NodeRef, Version};
use knr_core::names;
use knr_core::view::{ClaimRef, LedgerView, NodeView, Occupancy, WorkerView};
use knr_core::world::{Fact, Reread};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::api::{Api, Failed, Target, encoded};
use crate::calls::Call;
use crate::objects;
use crate::observe::{Meta, SlimNode, SlimPool, SlimWorker, version};

/// Objects in one page of a list.
const PAGE: u32 = 200;

/// A list with its version.
#[derive(Debug, Deserialize)]
pub(crate) struct List<T> {
    pub(crate) metadata: ListMeta,
    #[serde(default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta {
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(crate) next: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimPod {
    pub(crate) metadata: Meta,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimClaim {
    metadata: Meta,
    status: ClaimStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimStatus {
    node_name: String,
}

impl Api {
    /// Lists everything that matches a label selector, page by page, so that no answer is too large for this process or
    /// the server. Each page may take as long as the limit.
    pub(crate) async fn all<T: DeserializeOwned>(
        &self,
        call: Call,
        selector: &str,
        limit: Duration,
    ) -> Result<Vec<T>, Failed> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let query =
                format!("labelSelector={}&limit={PAGE}&continue={}", encoded(selector), encoded(&next));
            let page: List<T> = self.read(call, Target::query(&query), Instant::now() + limit).await?;
            all.extend(page.items);
            next = page.metadata.next;
            if next.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Reads the current state of a node and its worker.
    pub async fn reread(&self, node: &NodeRef, deadline: Instant) -> Result<Fact, Failed> {
        let ((view, node_version), (worker, worker_version)) =
            tokio::try_join!(self.node(&node.name, deadline), self.worker(node, deadline))?;
        let node = node.clone();
        Ok(Fact::Reread(Box::new(Reread { node, view, node_version, worker, worker_version })))
    }

    /// Returns whether a claim belongs to this node. A claim that is being deleted does not count: deleting it again
    /// would report the same deletion twice.
    pub(crate) async fn claims(
        &self,
        claim: &ClaimRef,
        node: &NodeName,
        deadline: Instant,
    ) -> Result<bool, Failed> {
        let read = self.read::<SlimClaim>(Call::GetClaim, Target::named(&claim.name), deadline).await;
        match read {
            Ok(now) => {
                let is_this = now.metadata.uid == claim.uid.as_str() && now.status.node_name == node.as_str();
                Ok(is_this && now.metadata.deletion_timestamp.is_none())
            }
            Err(failed) if failed.code() == Some(404) => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    /// Reads a node with a list by name instead of a get, because a list has a version even if there is no such node.
    pub(crate) async fn node(
        &self,
        name: &NodeName,
        deadline: Instant,
    ) -> Result<(Option<NodeView>, Version), Failed> {
        let query = by_name(name.as_str());
        let list: List<SlimNode> = self.read(Call::ListNodes, Target::query(&query), deadline).await?;
        let version = version(&list.metadata.resource_version);
        Ok((list.items.into_iter().next().map(NodeView::from), version))
    }

    /// Reads a node with a get, for a process that may not list nodes. Returns `None` if there is no such node.
    pub async fn own_node(&self, name: &str, deadline: Instant) -> Result<Option<NodeView>, Failed> {
        match self.read::<SlimNode>(Call::GetNode, Target::named(name), deadline).await {
            Ok(node) => Ok(Some(node.into())),
            Err(failed) if failed.code() == Some(404) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    /// Lists all Karpenter pools. The list is empty if Karpenter is not installed.
    pub async fn pools(&self, deadline: Instant) -> Result<Fact, Failed> {
        let pools = match self.read::<List<SlimPool>>(Call::ListPools, Target::default(), deadline).await {
            Ok(list) => list.items.into_iter().map(SlimPool::into).collect(),
            Err(failed) if failed.code() == Some(404) => Vec::new(),
            Err(failed) => return Err(failed),
        };
        Ok(Fact::Pools(pools))
    }

    async fn worker(
        &self,
        node: &NodeRef,
        deadline: Instant,
    ) -> Result<(Option<WorkerView>, Version), Failed> {
        let query = by_name(&worker_name(&node.uid));
        let list: List<SlimWorker> = self.read(Call::ListWorkers, Target::query(&query), deadline).await?;
        let version = version(&list.metadata.resource_version);
        Ok((list.items.into_iter().find_map(SlimWorker::view), version))
    }

    /// Reads what runs on a node, from the server's cache: without a version, the server may have to read every pod of
    /// the cluster. The answer may be outdated by the time it is used anyway, and closing a node evicts nothing.
    pub async fn occupancy(&self, node: &NodeRef, deadline: Instant) -> Result<Fact, Failed> {
        let selector = format!("spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed", node.name);
        let query = format!("fieldSelector={}&resourceVersion=0", encoded(&selector));
        let pods: List<SlimPod> = self.read(Call::ListPodsOfNode, Target::query(&query), deadline).await?;
        let user = pods.items.into_iter().find(is_of_a_user);
        let occupancy = match user {
            None => Occupancy::Idle,
            Some(pod) => Occupancy::Busy(format!("{}/{}", pod.metadata.namespace, pod.metadata.name)),
        };
        Ok(Fact::Occupancy(node.clone(), occupancy))
    }

    /// Reads the ledger of deletions. One that does not exist yet counts as empty.
    pub async fn ledger(&self, deadline: Instant) -> Result<Fact, Failed> {
        let read = self.read::<Value>(Call::GetLedger, Target::named(names::LEDGER), deadline).await;
        let ledger = match read {
            Ok(object) => objects::read_ledger(&object).map_err(Failed::Unreadable)?,
            Err(failed) if failed.code() == Some(404) => LedgerView::default(),
            Err(failed) => return Err(failed),
        };
        Ok(Fact::Ledger(ledger))
    }
}

/// Returns whether a pod is a workload: neither of a `DaemonSet`, nor a mirror pod, nor finished, nor a worker.
fn is_of_a_user(pod: &SlimPod) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let is_of = |kind: &str| owners.iter().any(|owner| owner.kind == kind);
    !is_of("DaemonSet")
        && !is_of("Node")
        && pod.metadata.annotation("kubernetes.io/config.mirror").is_none()
        && !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

/// Returns a query for the object with this name.
pub(crate) fn by_name(name: &str) -> String {
    format!("fieldSelector={}", encoded(&format!("metadata.name={name}")))
}

#[cfg(test)]
mod tests;

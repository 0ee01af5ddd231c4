//! The objects of the cluster as small plain values. No Kubernetes API types are used in this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use crate::config::Taint;
use crate::ids::{BootId, NodeName, NodeRef, PolicyName, Requires, Uid, Version, WorkerRef};
use crate::texts::Texts;

#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    pub id: NodeRef,
    pub version: Version,
    /// Its current boot.
    pub boot: BootId,
    /// When the Node object was created.
    pub created: Timestamp,
    /// Its taints exactly as in the object, with every field: patches test against them.
    pub taints: Vec<Value>,
    pub labels: Texts,
    pub annotations: Texts,
    /// The condition `NodeReadyVerified`, if it has one.
    pub condition: Option<Condition>,
    /// Its kubelet reports the condition `Ready` as `True`.
    pub ready: bool,
    /// It is being deleted.
    pub leaving: bool,
    /// The NodeClaim of this node.
    pub claim: Option<ClaimRef>,
}

impl NodeView {
    /// The index of this taint in the list. Key and effect identify a taint; its value may differ or be missing.
    #[must_use]
    pub fn position(&self, taint: &Taint) -> Option<usize> {
        let field = |raw: &Value, name: &str| raw.get(name).and_then(Value::as_str).map(str::to_owned);
        self.taints.iter().position(|raw| {
            field(raw, "key").as_deref() == Some(&taint.key)
                && field(raw, "effect").as_deref() == Some(taint.effect.as_str())
        })
    }
}

/// The condition `NodeReadyVerified` of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Whether the node is healthy.
    pub status: ConditionStatus,
    /// One word: `DnsTimeout`.
    pub reason: String,
    pub message: String,
}

/// Whether a node is healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It passed.
    True,
    /// It failed.
    False,
    /// There is no verdict about it as it is now.
    Unknown,
}

/// A Karpenter `NodeClaim`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    pub name: String,
    pub uid: Uid,
}

/// A worker pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    pub id: WorkerRef,
    pub version: Version,
    /// The stamp that it got when it was created.
    pub stamp: Stamp,
    /// The node that it runs on.
    pub host: Option<NodeName>,
    /// Its progress.
    pub stage: Stage,
    /// It is being deleted.
    pub leaving: bool,
}

/// The identity that a worker gets when it is created. Its result counts only if the stamp still matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// The node it is for.
    pub node: NodeRef,
    /// The boot of the node when the worker was created.
    pub boot: BootId,
    /// Its serial number among the workers of the node.
    pub serial: u32,
    /// The number of the attempt, for humans.
    pub attempt: u32,
    /// The purpose of its result.
    pub purpose: Purpose,
    /// The policy that it was created for.
    pub policy: PolicyName,
    /// A fingerprint of what it has to check.
    pub requires: Requires,
}

/// The purpose of a worker's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// To open or close its own node.
    Verify,
    /// A reference run: to learn whether the same checks pass here, before another node is deleted for failing them.
    Reference,
}

/// The progress of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Not running yet; the kubelet or the scheduler may have given a reason.
    Pending(Option<Waiting>),
    Running,
    Ended(Ending),
}

/// Why a worker is not running, as reported by the kubelet or the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// One word: `ImagePullBackOff`, `Unschedulable`, ..
    pub reason: String,
    /// A sentence, or empty.
    pub message: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason.as_str(), self.message.as_str()) {
            (reason, "") => f.write_str(reason),
            (reason, message) => write!(f, "{reason}: {message}"),
        }
    }
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It exited by itself.
    Exited {
        /// The exit code of the worker, or of the first init container that failed.
        code: i32,
        /// The termination message.
        message: String,
    },
    /// One of its containers could not be started, so its program never ran.
    CouldNotStart(Waiting),
    /// Something else ended it: it was evicted, preempted, shut down or killed.
    Killed(String),
}

/// An init pod: a pod that startup gates may wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitPodView {
    pub uid: Uid,
    pub version: Version,
    pub namespace: String,
    pub name: String,
    /// The node that it runs on.
    pub host: NodeName,
    pub created: Timestamp,
    pub labels: Texts,
    pub annotations: BTreeMap<String, String>,
    /// It is Ready, and so are all its containers.
    pub ready: bool,
    /// The containers that run in it, as one opaque text. A different text means that they were started again.
    pub containers: String,
    /// It is being deleted.
    pub leaving: bool,
}

/// A Karpenter `NodePool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    pub name: String,
    /// The keys of its startup taints, which Karpenter knows to be temporary.
    pub startup_taints: BTreeSet<String>,
}

/// Deletions of the last hour: one object for the whole cluster, written before a node is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerView {
    pub version: Version,
    /// One entry for each deletion.
    pub entries: Vec<LedgerEntry>,
}

/// The reservation of the deletion of one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerEntry {
    pub node: NodeRef,
    /// When it was reserved.
    pub at: Timestamp,
}

/// Whether pods run on a node that would suffer if it were closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occupancy {
    /// Only pods of `DaemonSets`, mirror pods and finished ones.
    Idle,
    /// At least this pod.
    Busy(String),
}

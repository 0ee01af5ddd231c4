//! What we know of the cluster, as small plain values. Kubernetes objects stop at the border of this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use crate::config::Taint;
use crate::ids::{BootId, NodeName, NodeRef, PolicyName, Requires, Uid, Version, WorkerRef};
use crate::texts::Texts;

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    /// Which one.
    pub id: NodeRef,
    /// Its resource version.
    pub version: Version,
    /// Its present boot.
    pub boot: BootId,
    /// When the Node object was made.
    pub created: Timestamp,
    /// Its taints as they stand in the object, every field kept: patches test against them.
    pub taints: Vec<Value>,
    /// Its labels.
    pub labels: Texts,
    /// Its annotations.
    pub annotations: Texts,
    /// Our condition, if it has one.
    pub condition: Option<Condition>,
    /// Its kubelet reports the condition `Ready` as `True`.
    pub ready: bool,
    /// It is being deleted.
    pub leaving: bool,
    /// Karpenter's claim for this machine.
    pub claim: Option<ClaimRef>,
}

impl NodeView {
    /// Where in the list this taint is. Key and effect identify a taint; its value may be another one, or none.
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
    /// Whether the node is fit.
    pub status: ConditionStatus,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// Whether a node is fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It passed.
    True,
    /// It failed.
    False,
    /// There is no verdict for it as it is now.
    Unknown,
}

/// A Karpenter `NodeClaim`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
}

/// A worker pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    /// Which one.
    pub id: WorkerRef,
    /// Its resource version.
    pub version: Version,
    /// What was stamped on it when it was made.
    pub stamp: Stamp,
    /// Where it runs.
    pub host: Option<NodeName>,
    /// How far it is.
    pub stage: Stage,
    /// It is being deleted.
    pub leaving: bool,
}

/// What a worker is told about itself when it is made, and judged by when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// The node it is for.
    pub node: NodeRef,
    /// The boot of the node at that time.
    pub boot: BootId,
    /// Its number in the life of the node.
    pub serial: u32,
    /// The attempt it is, for people.
    pub attempt: u32,
    /// What its result is for.
    pub purpose: Purpose,
    /// The policy that asked for it.
    pub policy: PolicyName,
    /// What it was to check.
    pub requires: Requires,
}

/// What the result of a worker is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// To open or close its own node.
    Verify,
    /// To learn whether the same checks pass here, before another node is deleted for failing them.
    Reference,
}

/// How far a worker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Not running yet; the kubelet or the scheduler may have said why.
    Pending(Option<Waiting>),
    /// Running.
    Running,
    /// Ended.
    Ended(Ending),
}

/// Why a worker is not running, as the kubelet or the scheduler says.
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
    /// It came to its own end.
    Exited {
        /// The exit code of the worker, or of the first init container that failed.
        code: i32,
        /// The termination message.
        message: String,
    },
    /// A container of it could not be started, so its program never ran.
    CouldNotStart(Waiting),
    /// Somebody else ended it: evicted, preempted, shut down, killed.
    Killed(String),
}

/// An init pod: a pod that startup gates may be waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitPodView {
    /// Its UID.
    pub uid: Uid,
    /// Its resource version.
    pub version: Version,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub host: NodeName,
    /// When it was made.
    pub created: Timestamp,
    /// Its labels.
    pub labels: Texts,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// It is Ready, with all its containers.
    pub ready: bool,
    /// Which containers run in it, as one opaque text: another text means that they were started anew.
    pub containers: String,
    /// It is being deleted.
    pub leaving: bool,
}

/// A Karpenter `NodePool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Keys of the startup taints which Karpenter knows to be temporary.
    pub startup_taints: BTreeSet<String>,
}

/// Deletions of the last hour: one object for the whole cluster, written before a node is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerView {
    /// Its resource version.
    pub version: Version,
    /// One entry for each deletion.
    pub entries: Vec<LedgerEntry>,
}

/// The right to delete one node, and when it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LedgerEntry {
    /// The node.
    pub node: NodeRef,
    /// When.
    pub at: Timestamp,
}

/// Whether anything runs on a node that would suffer from closing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occupancy {
    /// Only pods of `DaemonSets`, mirror pods and finished ones.
    Idle,
    /// At least this pod.
    Busy(String),
}

//! The results of a release.

use knr_core::config::Taint;
use knr_core::ids::NodeName;

use super::Plan;
use crate::api::Failed;
use crate::calls::Call;

/// A step of the release, reported as it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// These pods still exist.
    Waiting(Vec<String>),
    /// These pods were deleted but do not go away, and are no longer waited for.
    Abandoned(Vec<String>),
    /// A worker was removed.
    WorkerRemoved(String),
    /// The result for a node.
    Node(NodeName, Fate),
}

/// The result for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// These taints were removed.
    Opened(Vec<Taint>),
    /// The node no longer exists.
    Gone,
    /// The node is still closed.
    Closed(Closed),
}

/// A node that is still closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Its name.
    pub node: NodeName,
    /// The taints of the gates that are still on it.
    pub taints: Vec<Taint>,
    /// Why it is still closed.
    pub why: String,
}

impl Closed {
    /// Returns the command with which an operator can open it.
    #[must_use]
    pub fn by_hand(&self) -> String {
        let off: Vec<String> =
            self.taints.iter().map(|taint| format!(" {}:{}-", taint.key, taint.effect)).collect();
        format!("kubectl taint node {}{}", self.node, off.concat())
    }
}

/// How the release ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Everything that could be done was done.
    Released(Summary),
    /// It was a dry run: nothing was changed.
    Planned(Plan),
}

/// The result of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of nodes that were opened.
    pub opened: usize,
    /// The number of nodes that had no gate to begin with.
    pub without_gate: usize,
    /// Nodes that are still closed.
    pub closed: Vec<Closed>,
    /// Workers that could not be removed, and why.
    pub workers_left: Vec<(String, String)>,
}

/// Why the release could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// These pods still exist and would close nodes again.
    #[error("still there, and would close again what is opened: {}", .0.join(", "))]
    StillThere(Vec<String>),
    /// A request failed.
    #[error("{}: {failed}", .call.describe())]
    Failed {
        /// The request.
        call: Call,
        /// Why it failed.
        failed: Failed,
    },
}

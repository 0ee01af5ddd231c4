//! What becomes of nodes that are to be opened, and how it is told.

use knr_core::config::Taint;
use knr_core::ids::NodeName;

use super::Plan;
use crate::api::Failed;
use crate::calls::Call;

/// What happens, told as it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// These pods are still there.
    Waiting(Vec<String>),
    /// These pods do not go although they were told to, and are not waited for any longer.
    Abandoned(Vec<String>),
    /// A worker was removed.
    WorkerRemoved(String),
    /// What became of a node.
    Node(NodeName, Fate),
}

/// What became of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// These taints are off.
    Opened(Vec<Taint>),
    /// The node is not there any more.
    Gone,
    /// It is as it was.
    Closed(Closed),
}

/// A node that is still closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Which one.
    pub node: NodeName,
    /// By what.
    pub taints: Vec<Taint>,
    /// Why.
    pub why: String,
}

impl Closed {
    /// The command by which a person opens it.
    #[must_use]
    pub fn by_hand(&self) -> String {
        let off: Vec<String> =
            self.taints.iter().map(|taint| format!(" {}:{}-", taint.key, taint.effect)).collect();
        format!("kubectl taint node {}{}", self.node, off.concat())
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All was done that could be done.
    Released(Summary),
    /// It was a dry run: nothing was changed.
    Planned(Plan),
}

/// What came of it all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many nodes were opened.
    pub opened: usize,
    /// How many had no gate of ours to begin with.
    pub without_gate: usize,
    /// Nodes that are still closed.
    pub closed: Vec<Closed>,
    /// Workers that are still there, and why.
    pub workers_left: Vec<(String, String)>,
}

/// Why nothing more could be done.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Somebody is there who would close again what is opened.
    #[error("still there, and would close again what is opened: {}", .0.join(", "))]
    StillThere(Vec<String>),
    /// The API server did not answer as it should.
    #[error("{}: {failed}", .call.describe())]
    Failed {
        /// What was asked.
        call: Call,
        /// What came of it.
        failed: Failed,
    },
}

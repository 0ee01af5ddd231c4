//! Facts that the engine can learn about the cluster.

use crate::feed::{Feed, ObjectKind};
use crate::ids::{NodeName, NodeRef, Uid, Version, WorkerRef};
use crate::view::{InitPodView, LedgerView, NodeView, Occupancy, PoolView, WorkerView};

/// One fact about the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The current state of a node.
    Node(NodeView, Source),
    /// A node is gone.
    NodeGone(NodeRef, Version),
    /// All nodes.
    Nodes(Vec<NodeView>, Version),
    /// The current state of a worker.
    Worker(WorkerView, Source),
    /// A worker is gone. The name is the name of its node.
    WorkerGone(WorkerRef, NodeName, Version, Source),
    /// All workers.
    Workers(Vec<WorkerView>, Version),
    /// An init pod as shown by a feed. A feed shows changes in the order of their versions; another feed may lag behind
    /// it.
    InitPod(InitPodView, Feed),
    /// A feed no longer shows an init pod: it is gone, or its labels have changed. The name is the name of its node.
    InitPodGone(Uid, NodeName, Version, Feed),
    /// All init pods that a feed shows.
    InitPods(Vec<InitPodView>, Version, Feed),
    /// All Karpenter `NodePool`s.
    Pools(Vec<PoolView>),
    /// The ledger of deletions.
    Ledger(LedgerView),
    /// Whether pods run on a node that would suffer if it were closed.
    Occupancy(NodeRef, Occupancy),
    /// A node and its worker, read from the API server itself.
    Reread(Box<Reread>),
    /// The checks failed so many times in a row on a verified node that it has to prove itself again.
    Unsound(NodeRef),
    /// The checks pass again, before the probation of the node has led to a result.
    Sound(NodeRef),
    /// The API server's store was restored from a backup: the versions of a feed are lower than before, so nothing that
    /// follows can be compared with what is known. A list of the feed follows.
    Restored(Feed),
}

/// The scope of what a fact says about its feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The state of one object.
    One,
    /// The state of all objects.
    All,
    /// Everything that was known is void.
    Nothing,
}

impl Fact {
    /// The feed that it comes from, if any, and the scope of what it says.
    pub(crate) fn feed(&self) -> Option<(Feed, Extent)> {
        let of = |kind, extent| Some((Feed::of(kind), extent));
        match self {
            Self::Node(..) | Self::NodeGone(..) => of(ObjectKind::Nodes, Extent::One),
            Self::Nodes(..) => of(ObjectKind::Nodes, Extent::All),
            Self::Worker(..) | Self::WorkerGone(..) => of(ObjectKind::Workers, Extent::One),
            Self::Workers(..) => of(ObjectKind::Workers, Extent::All),
            Self::InitPod(_, feed) | Self::InitPodGone(.., feed) => Some((feed.clone(), Extent::One)),
            Self::InitPods(.., feed) => Some((feed.clone(), Extent::All)),
            Self::Pools(_) => of(ObjectKind::Pools, Extent::All),
            Self::Restored(feed) => Some((feed.clone(), Extent::Nothing)),
            Self::Ledger(_) | Self::Occupancy(..) | Self::Reread(_) | Self::Unsound(_) | Self::Sound(_) => {
                None
            }
        }
    }
}

/// Where a fact comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A watch: it has already shown everything older.
    Watch,
    /// The answer to a write by this process, which may be ahead of the watch.
    Answer,
}

/// A node and its worker, read from the API server itself, each with the version of the list it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Reread {
    /// The node that was asked for.
    pub node: NodeRef,
    /// The node of that name, if there is one.
    pub view: Option<NodeView>,
    /// The version of the list that it was read from.
    pub node_version: Version,
    /// The worker for the node that was asked for, if there is one.
    pub worker: Option<WorkerView>,
    /// The version of the list that it was read from.
    pub worker_version: Version,
}

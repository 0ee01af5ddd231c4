//! What can be learned about the cluster.

use crate::feed::{Feed, Kind};
use crate::ids::{NodeName, NodeRef, Uid, Version, WorkerRef};
use crate::view::{InitPodView, LedgerView, NodeView, Occupancy, PoolView, WorkerView};

/// One thing we learn about the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A node as it is.
    Node(NodeView, Source),
    /// A node is gone.
    NodeGone(NodeRef, Version),
    /// All nodes there are.
    Nodes(Vec<NodeView>, Version),
    /// A worker as it is.
    Worker(WorkerView, Source),
    /// A worker is gone. The name is that of its node.
    WorkerGone(WorkerRef, NodeName, Version, Source),
    /// All workers there are.
    Workers(Vec<WorkerView>, Version),
    /// An init pod as a feed shows it. A feed shows changes in the order of their versions; another one may be behind it.
    InitPod(InitPodView, Feed),
    /// A feed no longer shows an init pod: it is gone, or its labels have changed. The name is that of its node.
    InitPodGone(Uid, NodeName, Version, Feed),
    /// All init pods that a feed shows.
    InitPods(Vec<InitPodView>, Version, Feed),
    /// All Karpenter `NodePool`s there are.
    Pools(Vec<PoolView>),
    /// The ledger of deletions.
    Ledger(LedgerView),
    /// What runs on a node.
    Occupancy(NodeRef, Occupancy),
    /// A node and its worker, read from the API server itself.
    Reread(Box<Reread>),
    /// On a verified node the checks failed so often in a row that it has to prove itself again.
    Unsound(NodeRef),
    /// They passed again before that came to anything.
    Sound(NodeRef),
    /// The API server's store was restored from a backup: the versions of a feed are lower than they were, so nothing
    /// that comes can be compared with what is known. A list of the feed follows.
    Restored(Feed),
}

/// What a fact says about its feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// How one object is.
    One,
    /// How all objects are.
    All,
    /// That what was known is worthless.
    Nothing,
}

impl Fact {
    /// Where it comes from, if that is watched, and how much it says.
    pub(crate) fn feed(&self) -> Option<(Feed, Extent)> {
        let of = |kind, extent| Some((Feed::of(kind), extent));
        match self {
            Self::Node(..) | Self::NodeGone(..) => of(Kind::Nodes, Extent::One),
            Self::Nodes(..) => of(Kind::Nodes, Extent::All),
            Self::Worker(..) | Self::WorkerGone(..) => of(Kind::Workers, Extent::One),
            Self::Workers(..) => of(Kind::Workers, Extent::All),
            Self::InitPod(_, feed) | Self::InitPodGone(.., feed) => Some((feed.clone(), Extent::One)),
            Self::InitPods(.., feed) => Some((feed.clone(), Extent::All)),
            Self::Pools(_) => of(Kind::Pools, Extent::All),
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
    /// A watch: everything older has been told before.
    Watch,
    /// The answer to a write of ours, which may be ahead of the watch.
    Answer,
}

/// A node and its worker, read from the API server itself, each with the version of the list it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Reread {
    /// The node that was asked for.
    pub node: NodeRef,
    /// The node of that name, if there is one.
    pub view: Option<NodeView>,
    /// When that was.
    pub node_version: Version,
    /// The worker for the node that was asked for, if there is one.
    pub worker: Option<WorkerView>,
    /// When that was.
    pub worker_version: Version,
}

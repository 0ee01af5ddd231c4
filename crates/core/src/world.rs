//! Everything that is known about the cluster, from watches, from answers to writes, and from fresh reads.
//!
//! Facts may arrive late, twice, or out of order between kinds of objects. Versions resolve this: an older fact about
//! an object never replaces a newer one, and an old fact never brings back an object that is gone.

mod fact;
mod init_pods;
mod nodes;
mod reread;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::feed::Feed;
use crate::ids::{NodeName, NodeRef, Uid, Version};
use crate::state::NodeState;
use crate::view::{LedgerEntry, LedgerView, NodeView, Occupancy, PoolView, Stamp, WorkerView};

pub(crate) use fact::Extent;
pub use fact::{Fact, Reread, Source};
pub use init_pods::SeenInitPod;
use reread::Asked;

/// The period of the deletion budget.
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// No clock is assumed to be wrong by more than this.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The occupancy of a busy node is asked for again after this long at the latest.
const LONGEST_OCCUPANCY: SignedDuration = SignedDuration::from_mins(10);

/// How a node came to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Watched,
    Listed,
    Read,
}

/// Everything that is known about one node.
#[derive(Debug, Default)]
pub struct NodeEntry {
    /// The node itself. Workers and init pods can be seen before their node is.
    pub view: Option<NodeView>,
    /// When this process first saw the node. Waiting is measured by this process's clock alone.
    pub seen: Timestamp,
    /// The state recorded on the node, if it is about this node.
    pub state: Option<NodeState>,
    /// When this process first saw that state.
    pub state_seen: Timestamp,
    /// The number of the fact that brought that state.
    pub state_fact: u64,
    /// When this process first saw the condition `NodeReadyVerified` as it is.
    pub condition_seen: Timestamp,
    /// When the node was first seen to be Ready, if it still is.
    pub ready_since: Option<Timestamp>,
    /// When the request for an immediate attempt was first seen.
    pub retry_requested: Option<Timestamp>,
    /// Workers, by pod name. There is more than one if the node was created again under the same name. Boxed, because
    /// even the smallest map allocates room for eleven values, and there are thousands of such maps.
    pub workers: BTreeMap<String, Box<SeenWorker>>,
    /// The version in which this process first saw the node.
    pub met: Version,
    /// When the last read of the node from the API server itself was requested that has been answered.
    pub reread: Option<Timestamp>,
    /// The read of the node that is pending.
    asked: Option<Asked>,
    /// A worker that vanished. The state shows whether its result was recorded before.
    pub vanished: Option<VanishedWorker>,
    /// Set if the status of init pods may predate a restart of the node: after a restart was seen, or if the node or
    /// one of its pods existed before this process saw it. Not set for a node that this process saw join.
    pub doubt: Option<Doubt>,
    /// When a restart of the node was last seen, or when the node was first seen after a restart may have been missed.
    pub restart_seen: Option<Timestamp>,
    /// Possible init pods on the node.
    pub init_pods: BTreeMap<Uid, SeenInitPod>,
    /// The last known occupancy of the node.
    pub occupancy: Option<SeenOccupancy>,
    /// The checks have failed repeatedly on it since its state was recorded.
    pub unsound: bool,
}

/// Doubt whether the status of init pods predates a restart of their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// When it arose.
    pub since: Timestamp,
    /// The version of the node that raised it. A change of a pod up to this version is old news and dispels nothing. If
    /// nodes and pods are kept in different stores, their versions cannot be compared, and only time reliably dispels
    /// the doubt.
    pub version: Version,
}

impl NodeEntry {
    fn begin_to_doubt(&mut self, version: Version, now: Timestamp) {
        self.doubt = Some(Doubt { since: now, version });
        for pod in self.init_pods.values_mut() {
            pod.restarted = false;
            pod.found.clone_from(&pod.view.annotations);
        }
    }

    /// A node is seen for the first time.
    fn meet(&mut self, version: Version, sight: Sight, now: Timestamp) {
        self.seen = now;
        self.met = version;
        self.occupancy = None;
        self.vanished = None;
        self.restart_seen = None;
        self.doubt = None;
        // If its pods were known before it, the node did not just join, even if the watch reports it as new.
        let is_beginning = sight == Sight::Watched && self.init_pods.is_empty();
        if !is_beginning {
            self.begin_to_doubt(version, now);
        }
        // A listed node and its pods may simply predate this process. In any other case a restart may have been missed,
        // so the annotations of its pods do not count.
        if !is_beginning && sight != Sight::Listed {
            self.see_restart(now);
        }
    }

    fn see_restart(&mut self, now: Timestamp) {
        self.restart_seen = Some(now);
        self.init_pods.values_mut().for_each(SeenInitPod::outlive);
    }
}

/// The occupancy of a node, and how long that answer counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenOccupancy {
    pub occupancy: Occupancy,
    /// When the answer arrived.
    pub at: Timestamp,
    /// The number of times in a row that the node was found busy.
    pub times_busy: u32,
}

impl SeenOccupancy {
    /// When the answer expires: after one interval, doubled with each time in a row that the node was busy. Most nodes
    /// are busy for days, and each question costs a request.
    #[must_use]
    pub fn expires(&self, interval: SignedDuration) -> Timestamp {
        let doublings = self.times_busy.saturating_sub(1).min(16);
        let pause = interval.saturating_mul(1 << doublings).min(LONGEST_OCCUPANCY);
        self.at + pause.max(interval)
    }
}

/// A worker, and since when it has been in its stage by this process's clock.
#[derive(Debug)]
pub struct SeenWorker {
    pub view: WorkerView,
    /// When it was first seen in this stage.
    pub since: Timestamp,
    /// When this process ordered it, if it did. The time at which it was first seen running would prove nothing,
    /// because a watch may show that long after its end.
    pub asked_for: Option<Timestamp>,
}

/// A worker that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VanishedWorker {
    pub stamp: Stamp,
    /// When this process ordered it, if it did.
    pub asked_for: Option<Timestamp>,
}

impl From<&SeenWorker> for VanishedWorker {
    fn from(worker: &SeenWorker) -> Self {
        Self { stamp: worker.view.stamp.clone(), asked_for: worker.asked_for }
    }
}

/// The number of workers in each stage. A worker that is being deleted counts in its stage, but is not live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Not running yet.
    pub pending: usize,
    /// Running.
    pub running: usize,
    /// Ended with exit code 0.
    pub succeeded: usize,
    /// Ended otherwise.
    pub failed: usize,
    live: usize,
}

/// Everything that is known about the cluster.
#[derive(Debug, Default)]
pub struct World {
    entries: BTreeMap<NodeName, NodeEntry>,
    pools: Option<BTreeMap<String, PoolView>>,
    ledger: Option<LedgerView>,
    /// The version of the last ledger that was read, if it is older than the known one.
    older_ledger: Option<Version>,
    /// When this process first saw each entry of the ledger.
    reserved: BTreeMap<LedgerEntry, Timestamp>,
    latest: Latest,
    workers: WorkerCounts,
    touched: BTreeSet<NodeName>,
    facts: u64,
}

/// The latest version that each feed has reached. An unknown object that is not newer than this has been deleted since.
#[derive(Debug, Default)]
struct Latest(BTreeMap<Feed, Version>);

impl Latest {
    fn of(&self, feed: &Feed) -> Version {
        self.0.get(feed).copied().unwrap_or_default()
    }

    fn advance(&mut self, feed: &Feed, version: Version) {
        let latest = self.0.entry(feed.clone()).or_default();
        *latest = version.max(*latest);
    }

    /// The version that an unknown object in a list must exceed to count. A list that is older than the watch may show
    /// objects that are gone; any other list shows everything that the watch may have missed.
    fn floor(&self, feed: &Feed, list: Version) -> Version {
        let latest = self.of(feed);
        if list < latest { latest } else { Version::default() }
    }
}

/// Returns whether a fact of this version says something new about an object, which may be known in an earlier version
/// or not at all.
fn is_news(known: Option<Version>, version: Version, latest: Version) -> bool {
    version > known.unwrap_or(latest)
}

/// Returns whether a list shows something new about an object. A list shows every object in its latest version. So if
/// an object is known in a later version than listed, and that version is not newer than the list, the store was
/// restored from a backup.
fn is_news_in_list(known: Option<Version>, version: Version, list: Version, floor: Version) -> bool {
    is_news(known, version, floor) || known.is_some_and(|known| version < known && known <= list)
}

impl World {
    /// Everything that is known about a node.
    #[must_use]
    pub fn entry(&self, name: &NodeName) -> Option<&NodeEntry> {
        self.entries.get(name)
    }

    /// All nodes about which something is known.
    pub fn entries(&self) -> impl Iterator<Item = (&NodeName, &NodeEntry)> {
        self.entries.iter()
    }

    /// All `NodePool`s by name, once they have been listed.
    #[must_use]
    pub fn pools(&self) -> Option<&BTreeMap<String, PoolView>> {
        self.pools.as_ref()
    }

    /// The ledger of deletions, once it has been read.
    #[must_use]
    pub fn ledger(&self) -> Option<&LedgerView> {
        self.ledger.as_ref()
    }

    /// The number of workers that have not ended and are not being deleted.
    #[must_use]
    pub fn live_workers(&self) -> usize {
        self.workers.live
    }

    /// Deletions that count against the hourly budget. The time of an entry may come from another clock that is wrong.
    /// So an entry also counts for an hour after this process first saw it, unless it is very old.
    pub fn recent_deletions(&self, now: Timestamp) -> impl Iterator<Item = &LedgerEntry> {
        let entries = self.ledger.iter().flat_map(|ledger| &ledger.entries);
        entries.filter(move |entry| {
            let is_recent = |at: Timestamp, window| now.duration_since(at).abs() < window;
            let seen = self.reserved.get(entry).copied();
            is_recent(entry.at, HOUR)
                || seen.is_some_and(|seen| is_recent(seen, HOUR)) && is_recent(entry.at, DAY)
        })
    }

    /// The number of workers in each stage.
    #[must_use]
    pub fn worker_counts(&self) -> &WorkerCounts {
        &self.workers
    }

    /// The number of facts learned so far. Things learned by the same fact were learned at the same time.
    #[must_use]
    pub fn facts(&self) -> u64 {
        self.facts
    }

    /// Returns the nodes about which something was learned since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<NodeName> {
        std::mem::take(&mut self.touched)
    }

    /// Learns a fact.
    pub fn learn(&mut self, fact: Fact, now: Timestamp) {
        self.facts += 1;
        match fact {
            Fact::Node(view, source) => self.node(view, source, now),
            Fact::NodeGone(id, version) => self.node_gone(&id, version),
            Fact::Nodes(views, version) => self.nodes(views, version, now),
            Fact::Worker(view, source) => self.worker(view, source, now),
            Fact::WorkerGone(id, node, version, source) => self.worker_gone(&id, &node, version, source),
            Fact::Workers(views, version) => self.workers(views, version, now),
            Fact::InitPod(view, feed) => self.init_pod(view, &feed, now),
            Fact::InitPodGone(uid, host, version, feed) => self.init_pod_gone(&uid, &host, version, &feed),
            Fact::InitPods(views, version, feed) => self.init_pods(views, version, &feed, now),
            Fact::Pools(pools) => self.listed_pools(pools),
            Fact::Ledger(ledger) => self.learn_ledger(ledger, now),
            Fact::Occupancy(node, occupancy) => self.occupancy(&node, occupancy, now),
            Fact::Reread(reread) => self.reread(*reread, now),
            Fact::Unsound(node) => self.found(&node, true),
            Fact::Sound(node) => self.found(&node, false),
            Fact::Restored(_) => self.start_over(),
        }
    }

    /// Forgets everything: what is known can neither be compared nor mixed with what follows.
    fn start_over(&mut self) {
        let Self { entries, mut touched, facts, .. } = std::mem::take(self);
        touched.extend(entries.into_keys());
        (self.touched, self.facts) = (touched, facts);
    }

    /// Forgets everything that none of these feeds shows.
    pub(crate) fn keep_only(&mut self, feeds: &BTreeSet<Feed>) {
        let ended: Vec<Feed> = self.latest.0.keys().filter(|feed| !feeds.contains(feed)).cloned().collect();
        for feed in ended {
            self.latest.0.remove(&feed);
            self.leave_init_pods(&feed);
        }
    }

    /// An older answer may arrive late, but only once, because the ledger is read by one request at a time. The same
    /// older version twice in a row means that the ledger was restored from a backup.
    fn learn_ledger(&mut self, ledger: LedgerView, now: Timestamp) {
        let is_older = self.ledger.as_ref().is_some_and(|known| ledger.version < known.version);
        let is_again = self.older_ledger.replace(ledger.version) == Some(ledger.version);
        if is_older && !is_again {
            return;
        }
        self.older_ledger = None;
        self.reserved.retain(|known, _| ledger.entries.contains(known));
        for entry in &ledger.entries {
            self.reserved.entry(entry.clone()).or_insert(now);
        }
        self.ledger = Some(ledger);
    }

    /// A change of pools affects all their nodes. Karpenter updates its pools all the time, but rarely the fields that
    /// are read here.
    fn listed_pools(&mut self, pools: Vec<PoolView>) {
        let pools = Some(pools.into_iter().map(|pool| (pool.name.clone(), pool)).collect());
        if self.pools != pools {
            self.pools = pools;
            self.touched.extend(self.entries.keys().cloned());
        }
    }

    fn occupancy(&mut self, node: &NodeRef, occupancy: Occupancy, now: Timestamp) {
        if let Some(entry) = self.entries.get_mut(&node.name)
            && entry.view.as_ref().is_some_and(|view| view.id == *node)
        {
            let times_before = entry.occupancy.as_ref().map_or(0, |seen| seen.times_busy);
            let times_busy = match occupancy {
                Occupancy::Idle => 0,
                Occupancy::Busy(_) => times_before.saturating_add(1),
            };
            entry.occupancy = Some(SeenOccupancy { occupancy, at: now, times_busy });
            self.touched.insert(node.name.clone());
        }
    }

    fn found(&mut self, node: &NodeRef, unsound: bool) {
        if let Some(entry) = self.entries.get_mut(&node.name)
            && entry.view.as_ref().is_some_and(|view| view.id == *node)
            && entry.unsound != unsound
        {
            entry.unsound = unsound;
            self.touched.insert(node.name.clone());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

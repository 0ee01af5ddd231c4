//! What we know of the cluster right now, put together from what the watches, our own writes and fresh reads say.
//!
//! Facts may come late, twice or out of order between kinds of objects. Versions settle it: an older fact about an
//! object never replaces a newer one, and an object that is gone does not come back by an old fact.

mod fact;
mod init_pods;
mod nodes;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::action::worker_name;
use crate::feed::{Feed, Kind};
use crate::ids::{NodeName, NodeRef, Uid, Version};
use crate::state::NodeState;
use crate::view::{LedgerEntry, LedgerView, NodeView, Occupancy, PoolView, Stamp, WorkerView};

pub(crate) use fact::Extent;
pub use fact::{Fact, Reread, Source};
pub use init_pods::SeenInitPod;

/// The budget for deletions is for this long.
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// No clock is wrong by more than this.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A busy node is asked about again after this long at the latest.
const LONGEST_OCCUPANCY: SignedDuration = SignedDuration::from_mins(10);

/// How a node comes to our eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Told,
    Listed,
    Read,
}

/// All we know of one node.
#[derive(Debug, Default)]
pub struct NodeEntry {
    /// The node itself. Workers and init pods can be seen before their node is.
    pub view: Option<NodeView>,
    /// When this node was first seen by us: waiting runs on our clock alone.
    pub seen: Timestamp,
    /// The state which the node carries, if it is about this node.
    pub state: Option<NodeState>,
    /// When that state was first seen by us.
    pub state_seen: Timestamp,
    /// Which of all the facts that we were told brought that state.
    pub state_fact: u64,
    /// When the node was first seen to be ready, if it still is.
    pub ready_since: Option<Timestamp>,
    /// When an operator was seen to ask for an attempt at once.
    pub retry_requested: Option<Timestamp>,
    /// Workers, by pod name. More than one if the node was made anew under the same name. Boxed, because there is room for
    /// eleven in the smallest map, and for thousands of such maps in memory.
    pub workers: BTreeMap<String, Box<SeenWorker>>,
    /// The version in which this node was first seen by us.
    pub met: Version,
    /// When the node was last read from the API server itself.
    pub reread: Option<Timestamp>,
    /// The versions of nodes and of workers that were known when the node was asked to be read, until it is.
    asked_at: Option<(Version, Version)>,
    /// A worker that vanished. Whether its result was recorded before, the state tells.
    pub vanished: Option<Stamp>,
    /// Since when what init pods show may be from before a restart of the node. That is so when a restart is seen,
    /// and when the node or a pod of it was there before we saw it; not for a node that we saw join.
    pub doubt: Option<Doubt>,
    /// When a restart of the node was last seen.
    pub restart_seen: Option<Timestamp>,
    /// Possible init pods on the node.
    pub init_pods: BTreeMap<Uid, SeenInitPod>,
    /// What runs on the node.
    pub occupancy: Option<SeenOccupancy>,
    /// The checks failed on it again and again since the state was recorded that it carries.
    pub unsound: bool,
}

/// Doubt whether what init pods show is from before a restart of their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// When it arose.
    pub since: Timestamp,
    /// The version of the node that raised it. What became of a pod before is told late, and dispels nothing. Where nodes
    /// and pods are not kept in one store, versions say nothing about before and after; then only time dispels it for sure.
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
        // Pods that were there before it: then this is not its beginning, whatever the watch tells.
        let is_beginning = sight == Sight::Told && self.init_pods.is_empty();
        if !is_beginning {
            self.begin_to_doubt(version, now);
        }
        // What was all there before us may be as it should be. What we came upon otherwise is not to be relied on.
        if !is_beginning && sight != Sight::Listed {
            self.see_restart(now);
        }
    }

    fn see_restart(&mut self, now: Timestamp) {
        self.restart_seen = Some(now);
        self.init_pods.values_mut().for_each(SeenInitPod::outlive);
    }
}

/// What runs on a node, and how long that answer counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenOccupancy {
    /// What runs there.
    pub occupancy: Occupancy,
    /// When that was found out.
    pub at: Timestamp,
    /// How many times in a row the node was found busy.
    pub times_busy: u32,
}

impl SeenOccupancy {
    /// When the answer becomes too old: after one interval, and twice as late with each time that the node was busy. Most
    /// nodes are busy for days, and each question is a request.
    #[must_use]
    pub fn expires(&self, interval: SignedDuration) -> Timestamp {
        let doublings = self.times_busy.saturating_sub(1).min(16);
        let pause = interval.saturating_mul(1 << doublings).min(LONGEST_OCCUPANCY);
        self.at + pause.max(interval)
    }
}

/// A worker and since when it has been in its stage, by our own clock.
#[derive(Debug)]
pub struct SeenWorker {
    /// The worker.
    pub view: WorkerView,
    /// When it was first seen in this stage.
    pub since: Timestamp,
    /// When we asked for it, if this process did. When we first saw it run says nothing: a watch may tell that long after
    /// its end.
    pub asked_for: Option<Timestamp>,
}

/// How many workers there are. One that is being deleted counts in its stage, but takes up no place.
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

/// What we know of the cluster.
#[derive(Debug, Default)]
pub struct World {
    entries: BTreeMap<NodeName, NodeEntry>,
    pools: Option<BTreeMap<String, PoolView>>,
    ledger: Option<LedgerView>,
    /// The version of the ledger that was read last, if it is older than the one that is known.
    older_ledger: Option<Version>,
    /// When each entry of the ledger was first seen by this process.
    reserved: BTreeMap<NodeRef, Timestamp>,
    latest: Latest,
    workers: WorkerCounts,
    touched: BTreeSet<NodeName>,
    facts: u64,
}

/// The latest version that each feed has come to. An object that we do not know and that is not newer than this has been
/// deleted since.
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

    /// What an unknown object in a list must be newer than. A list that is older than the watch may show objects
    /// that are gone; one that is not older shows everything that the watch may have lost.
    fn floor(&self, feed: &Feed, list: Version) -> Version {
        let latest = self.of(feed);
        if list < latest { latest } else { Version::default() }
    }
}

/// Whether a fact of this version tells something new of an object that is known in that version, or not at all.
fn is_news(known: Option<Version>, version: Version, latest: Version) -> bool {
    version > known.unwrap_or(latest)
}

/// Whether a list shows something new of an object. A list shows every object in its latest version, so one that is known
/// in another version up to that of the list is not in the store any more: it was restored from a backup.
fn is_news_in_list(known: Option<Version>, version: Version, list: Version, floor: Version) -> bool {
    is_news(known, version, floor) || known.is_some_and(|known| version < known && known <= list)
}

impl World {
    /// What we know of a node.
    #[must_use]
    pub fn entry(&self, name: &NodeName) -> Option<&NodeEntry> {
        self.entries.get(name)
    }

    /// All nodes of which we know something.
    pub fn entries(&self) -> impl Iterator<Item = (&NodeName, &NodeEntry)> {
        self.entries.iter()
    }

    /// All `NodePool`s by name, once they were listed.
    #[must_use]
    pub fn pools(&self) -> Option<&BTreeMap<String, PoolView>> {
        self.pools.as_ref()
    }

    /// The ledger of deletions, once it was read.
    #[must_use]
    pub fn ledger(&self) -> Option<&LedgerView> {
        self.ledger.as_ref()
    }

    /// How many workers have not ended.
    #[must_use]
    pub fn live_workers(&self) -> usize {
        self.workers.live
    }

    /// Deletions that count against the budget of an hour. The time of an entry is that of another clock, which may be
    /// wrong: so it counts for an hour after this process first saw it, too, unless it is very old.
    pub fn recent_deletions(&self, now: Timestamp) -> impl Iterator<Item = &LedgerEntry> {
        let entries = self.ledger.iter().flat_map(|ledger| &ledger.entries);
        entries.filter(move |entry| {
            let is_recent = |at: Timestamp, window| now.duration_since(at).abs() < window;
            let seen = self.reserved.get(&entry.node).copied();
            is_recent(entry.at, HOUR)
                || seen.is_some_and(|seen| is_recent(seen, HOUR)) && is_recent(entry.at, DAY)
        })
    }

    /// How many workers there are in each stage.
    #[must_use]
    pub fn worker_counts(&self) -> &WorkerCounts {
        &self.workers
    }

    /// How many facts were told so far. What came by the same one came at the same time.
    #[must_use]
    pub fn facts(&self) -> u64 {
        self.facts
    }

    /// The nodes about which something was learned since this was last asked.
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

    /// Forgets everything: what is known can neither be compared nor be mixed with what comes.
    fn start_over(&mut self) {
        let Self { entries, mut touched, facts, .. } = std::mem::take(self);
        touched.extend(entries.into_keys());
        (self.touched, self.facts) = (touched, facts);
    }

    /// Forgets what is shown by none of these feeds.
    pub(crate) fn keep_only(&mut self, feeds: &BTreeSet<Feed>) {
        let ended: Vec<Feed> = self.latest.0.keys().filter(|feed| !feeds.contains(feed)).cloned().collect();
        for feed in ended {
            self.latest.0.remove(&feed);
            self.leave_init_pods(&feed);
        }
    }

    /// An older answer may come late, but only once: it is read by one request at a time. The same older version twice in a row
    /// is a ledger that was restored from a backup.
    fn learn_ledger(&mut self, ledger: LedgerView, now: Timestamp) {
        let is_older = self.ledger.as_ref().is_some_and(|known| ledger.version < known.version);
        let is_again = self.older_ledger.replace(ledger.version) == Some(ledger.version);
        if is_older && !is_again {
            return;
        }
        self.older_ledger = None;
        self.reserved.retain(|node, _| ledger.entries.iter().any(|entry| entry.node == *node));
        for entry in &ledger.entries {
            self.reserved.entry(entry.node.clone()).or_insert(now);
        }
        self.ledger = Some(ledger);
    }

    /// A change of pools concerns all their nodes. Karpenter writes to its pools all the time, but seldom changes what
    /// we read of them.
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

    /// A node is about to be read from the API server itself.
    pub(crate) fn asks_for(&mut self, node: &NodeRef) {
        let latest = (self.latest.of(&Feed::of(Kind::Nodes)), self.latest.of(&Feed::of(Kind::Workers)));
        if let Some(entry) = self.entries.get_mut(&node.name) {
            // It may be asked again before the first answer comes.
            entry.asked_at.get_or_insert(latest);
        }
    }

    /// Whether a node was read in versions below those that were known when it was asked for: then the store was restored
    /// from a backup.
    pub(crate) fn is_restored(&self, reread: &Reread) -> bool {
        let asked_at = self.entries.get(&reread.node.name).and_then(|entry| entry.asked_at);
        asked_at
            .is_some_and(|(nodes, workers)| reread.node_version < nodes || reread.worker_version < workers)
    }

    fn reread(&mut self, reread: Reread, now: Timestamp) {
        let Reread { node, view, node_version, worker, worker_version } = reread;
        self.touched.insert(node.name.clone());
        let known = self.node_version(&node.name);
        let floor = self.latest.floor(&Feed::of(Kind::Nodes), node_version);
        match view {
            Some(view) if is_news_in_list(known, view.version, node_version, floor) => {
                self.set_node(view, Sight::Read, now);
            }
            None if known.is_some_and(|known| known <= node_version) => self.forget_node(&node.name),
            Some(_) | None => {}
        }
        let name = worker_name(&node.uid);
        let known = self.worker_version(&node.name, &name);
        let floor = self.latest.floor(&Feed::of(Kind::Workers), worker_version);
        match worker {
            Some(worker) if is_news_in_list(known, worker.version, worker_version, floor) => {
                self.set_worker(worker, now);
            }
            None if known.is_some_and(|known| known <= worker_version) => {
                self.forget_worker(&node.name, &name);
            }
            Some(_) | None => {}
        }
        if let Some(entry) = self.entries.get_mut(&node.name) {
            entry.reread = Some(now);
            entry.asked_at = None;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

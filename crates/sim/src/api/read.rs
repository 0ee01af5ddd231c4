//! Lists, watches and single reads.
//!
//! A new kind that is watched needs a map in [`Api`], an [`Object`], and what is told of it in [`list_fact`] and in
//! [`Change::fact`].

use std::collections::BTreeMap;

use knr_core::action::worker_name;
use knr_core::feed::{Feed, Kind};
use knr_core::ids::{NodeRef, Version};
use knr_core::world::{Fact, Reread, Source};

use super::{Api, Change, Object};

impl Api {
    /// Changes of a kind after a version, or none if they have been compacted away: 410.
    #[must_use]
    pub(crate) fn changes_after(&self, kind: Kind, version: Version) -> Option<&[Change]> {
        if version < self.compacted {
            return None;
        }
        let log = self.log.get(&kind).map_or(&[][..], Vec::as_slice);
        let start = log.partition_point(|change| change.version <= version);
        Some(&log[start..])
    }

    /// Changes of a kind after a version, for those who look at the store itself.
    #[must_use]
    pub(crate) fn log_after(&self, kind: Kind, version: Version) -> Vec<Change> {
        let log = self.log.get(&kind).map_or(&[][..], Vec::as_slice);
        log[log.partition_point(|change| change.version <= version)..].to_vec()
    }

    /// Forgets how things came to be as they are: older watches cannot go on.
    pub(crate) fn compact(&mut self) {
        self.compacted = Version(self.version);
    }

    /// All objects of a feed as they were at a version: now, or earlier if this server lags behind.
    #[must_use]
    pub(crate) fn list(&self, feed: &Feed, version: Version) -> Fact {
        if version == self.version() {
            let all = self.objects().filter(|object| object.kind() == feed.kind());
            return list_fact(feed, all, version);
        }
        let mut objects: BTreeMap<String, Object> = BTreeMap::new();
        let log = self.log.get(&feed.kind()).map_or(&[][..], Vec::as_slice);
        for change in log.iter().take_while(|change| change.version <= version) {
            if change.gone {
                objects.remove(&change.object.key());
            } else {
                objects.insert(change.object.key(), change.object.clone());
            }
        }
        list_fact(feed, objects.into_values(), version)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = Object> {
        let nodes = self.nodes.values().cloned().map(Object::Node);
        let workers = self.workers.values().cloned().map(Object::Worker);
        nodes.chain(workers).chain(self.init_pods.values().cloned().map(Object::InitPod))
    }

    /// A node and its worker as they are now.
    #[must_use]
    pub(crate) fn reread(&self, node: &NodeRef) -> Fact {
        Fact::Reread(Box::new(Reread {
            node: node.clone(),
            view: self.nodes.get(node.name.as_str()).map(|node| node.view.clone()),
            node_version: self.version(),
            worker: self.workers.get(&worker_name(&node.uid)).map(|worker| (**worker).clone()),
            worker_version: self.version(),
        }))
    }
}

fn list_fact(feed: &Feed, objects: impl Iterator<Item = Object>, version: Version) -> Fact {
    let (mut nodes, mut workers, mut init_pods) = (Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        match object {
            Object::Node(node) => nodes.push(node.view.clone()),
            Object::Worker(worker) => workers.push((*worker).clone()),
            Object::InitPod(pod) if feed.shows(&pod) => init_pods.push((*pod).clone()),
            Object::InitPod(_) => {}
        }
    }
    match feed.kind() {
        Kind::Nodes => Fact::Nodes(nodes, version),
        Kind::Workers => Fact::Workers(workers, version),
        Kind::InitPods => Fact::InitPods(init_pods, version, feed.clone()),
        // They are not kept in this store.
        Kind::Pools => Fact::Pools(Vec::new()),
    }
}

impl Change {
    /// What a feed tells of it, if it shows it. No pod changes its labels.
    #[must_use]
    pub(crate) fn fact(&self, feed: &Feed) -> Option<Fact> {
        Some(match (&self.object, self.gone) {
            (Object::Node(node), false) => Fact::Node(node.view.clone(), Source::Watch),
            (Object::Node(node), true) => Fact::NodeGone(node.view.id.clone(), self.version),
            (Object::Worker(worker), false) => Fact::Worker((**worker).clone(), Source::Watch),
            (Object::Worker(worker), true) => {
                let node = worker.stamp.node.name.clone();
                Fact::WorkerGone(worker.id.clone(), node, self.version, Source::Watch)
            }
            (Object::InitPod(pod), _) if !feed.shows(pod) => return None,
            (Object::InitPod(pod), false) => Fact::InitPod((**pod).clone(), feed.clone()),
            (Object::InitPod(pod), true) => {
                Fact::InitPodGone(pod.uid.clone(), pod.host.clone(), self.version, feed.clone())
            }
        })
    }
}

//! Lists, watches and single reads.
//!
//! A new kind that is watched needs a map in [`Api`], an [`Object`], and its facts in [`list_fact`] and [`Memory`].

use std::collections::BTreeMap;

use knr_core::action::worker_name;
use knr_core::feed::{Feed, ObjectKind};
use knr_core::ids::{NodeRef, Version};
use knr_core::view::PoolView;
use knr_core::world::{Fact, Reread, Source};

use super::{Api, Change, Object};

impl Api {
    /// Returns the changes of a kind after a version, or `None` if they were compacted: 410.
    #[must_use]
    pub(crate) fn changes_after(&self, kind: ObjectKind, version: Version) -> Option<&[Change]> {
        if version < self.compacted {
            return None;
        }
        let log = self.log.get(&kind).map_or(&[][..], Vec::as_slice);
        let start = log.partition_point(|change| change.version <= version);
        Some(&log[start..])
    }

    /// Returns the changes of a kind after a version, compacted or not.
    #[must_use]
    pub(crate) fn log_after(&self, kind: ObjectKind, version: Version) -> Vec<Change> {
        let log = self.log.get(&kind).map_or(&[][..], Vec::as_slice);
        log[log.partition_point(|change| change.version <= version)..].to_vec()
    }

    /// Compacts the log. Watches cannot resume from a version before the current one.
    pub(crate) fn compact(&mut self) {
        self.compacted = Version(self.version);
    }

    /// Lists all objects of a feed at a version: the current one, or an earlier one if this server lags behind.
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
        let init_pods = self.init_pods.values().cloned().map(Object::InitPod);
        let pools = self.pools.values().cloned().map(Object::Pool);
        nodes.chain(workers).chain(init_pods).chain(pools)
    }

    /// Reads the current state of a node and its worker.
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
    let (mut nodes, mut workers, mut init_pods, mut pools) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        match object {
            Object::Node(node) => nodes.push(node.view.clone()),
            Object::Worker(worker) => workers.push((*worker).clone()),
            Object::InitPod(pod) if feed.shows(&pod) => init_pods.push((*pod).clone()),
            Object::InitPod(_) => {}
            Object::Pool(pool) => pools.push(pool.view.clone()),
        }
    }
    match feed.kind() {
        ObjectKind::Nodes => Fact::Nodes(nodes, version),
        ObjectKind::Workers => Fact::Workers(workers, version),
        ObjectKind::InitPods => Fact::InitPods(init_pods, version, feed.clone()),
        ObjectKind::Pools => Fact::Pools(pools),
    }
}

impl Change {
    /// Returns whether the object is part of a feed. Pods never change their labels.
    #[must_use]
    pub(crate) fn is_shown(&self, feed: &Feed) -> bool {
        match &self.object {
            Object::InitPod(pod) => feed.shows(pod),
            Object::Node(_) | Object::Worker(_) | Object::Pool(_) => true,
        }
    }
}

/// What a watch delivers.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// Everything, possibly after the news that the store was restored.
    All(Vec<Fact>),
    One(Change),
}

/// What a watch has to know in addition to what it delivers: all pools, because they are always reported together.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pools: BTreeMap<String, PoolView>,
}

impl Memory {
    /// Returns the facts that a feed reports.
    pub(crate) fn facts(&mut self, news: News, feed: &Feed) -> Vec<Fact> {
        match news {
            News::All(facts) => {
                if let Some(Fact::Pools(pools)) = facts.last() {
                    self.pools = pools.iter().map(|pool| (pool.name.clone(), pool.clone())).collect();
                }
                facts
            }
            News::One(change) => vec![self.fact(&change, feed)],
        }
    }

    fn fact(&mut self, change: &Change, feed: &Feed) -> Fact {
        match (&change.object, change.gone) {
            (Object::Node(node), false) => Fact::Node(node.view.clone(), Source::Watch),
            (Object::Node(node), true) => Fact::NodeGone(node.view.id.clone(), change.version),
            (Object::Worker(worker), false) => Fact::Worker((**worker).clone(), Source::Watch),
            (Object::Worker(worker), true) => {
                let node = worker.stamp.node.name.clone();
                Fact::WorkerGone(worker.id.clone(), node, change.version, Source::Watch)
            }
            (Object::InitPod(pod), false) => Fact::InitPod((**pod).clone(), feed.clone()),
            (Object::InitPod(pod), true) => {
                Fact::InitPodGone(pod.uid.clone(), pod.host.clone(), change.version, feed.clone())
            }
            (Object::Pool(pool), gone) => {
                if gone {
                    self.pools.remove(&pool.view.name);
                } else {
                    self.pools.insert(pool.view.name.clone(), pool.view.clone());
                }
                Fact::Pools(self.pools.values().cloned().collect())
            }
        }
    }
}

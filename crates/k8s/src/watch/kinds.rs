//! How the objects of each kind become facts.
//!
//! A new kind needs one implementation of [`Observed`], an arm in [`Watch::connect_to`](super::Watch), and the two
//! calls that list and watch it.

use std::collections::BTreeMap;

use knr_core::feed::{Feed, ObjectKind};
use knr_core::ids::Version;
use knr_core::names;
use knr_core::view::{InitPodView, NodeView, PoolView, WorkerView};
use knr_core::world::{Fact, Source};
use serde::de::DeserializeOwned;

use crate::api::{Target, encoded};
use crate::calls::Call;
use crate::observe::{Meta, SlimInitPod, SlimNode, SlimPool, SlimWorker};

/// Returns the beginning of a query for a feed.
pub(super) fn query(feed: &Feed) -> String {
    let selector = match (feed.kind(), feed.selector()) {
        (ObjectKind::Workers, _) => {
            Some(names::WORKER_LABELS.map(|(key, value)| format!("{key}={value}")).join(","))
        }
        (_, selector) => selector.map(ToString::to_string),
    };
    selector.map_or(String::new(), |selector| format!("labelSelector={}&", encoded(&selector)))
}

/// Returns the target of a request for a feed.
pub(super) fn target<'a>(feed: &'a Feed, query: &'a str) -> Target<'a> {
    Target { namespace: feed.namespace(), query, ..Target::default() }
}

/// What a watch has to know in addition to the current event.
#[derive(Debug)]
pub(super) struct Memory {
    feed: Feed,
    /// All pools, because they are always reported together.
    pools: BTreeMap<String, PoolView>,
}

impl Memory {
    pub(super) fn of(feed: &Feed) -> Self {
        Self { feed: feed.clone(), pools: BTreeMap::new() }
    }

    pub(super) fn feed(&self) -> &Feed {
        &self.feed
    }

    fn all_pools(&self) -> Fact {
        Fact::Pools(self.pools.values().cloned().collect())
    }
}

/// A kind of object that is watched.
pub(super) trait Observed: DeserializeOwned + Clone + Send + 'static {
    type View: Send;
    const LIST: Call;
    const WATCH: Call;
    /// The fact to report if the API server does not know the kind, where that is not an error.
    const ABSENT: Option<fn() -> Fact> = None;
    fn meta(&self) -> &Meta;
    /// Returns the object as the rules see it, if it is relevant.
    fn view(self) -> Option<Self::View>;
    fn all(views: Vec<Self::View>, version: Version, memory: &mut Memory) -> Fact;
    fn changed(self, memory: &mut Memory) -> Option<Fact>;
    fn gone(self, memory: &mut Memory) -> Option<Fact>;
}

impl Observed for SlimNode {
    type View = NodeView;
    const LIST: Call = Call::ListNodes;
    const WATCH: Call = Call::WatchNodes;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Option<NodeView> {
        Some(self.into())
    }

    fn all(views: Vec<NodeView>, version: Version, _: &mut Memory) -> Fact {
        Fact::Nodes(views, version)
    }

    fn changed(self, _: &mut Memory) -> Option<Fact> {
        Some(Fact::Node(self.into(), Source::Watch))
    }

    fn gone(self, _: &mut Memory) -> Option<Fact> {
        let view = NodeView::from(self);
        Some(Fact::NodeGone(view.id, view.version))
    }
}

impl Observed for SlimWorker {
    type View = WorkerView;
    const LIST: Call = Call::ListWorkers;
    const WATCH: Call = Call::WatchWorkers;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Option<WorkerView> {
        Self::view(self)
    }

    fn all(views: Vec<WorkerView>, version: Version, _: &mut Memory) -> Fact {
        Fact::Workers(views, version)
    }

    fn changed(self, _: &mut Memory) -> Option<Fact> {
        Self::view(self).map(|view| Fact::Worker(view, Source::Watch))
    }

    fn gone(self, _: &mut Memory) -> Option<Fact> {
        let (id, stamp) = self.identity()?;
        Some(Fact::WorkerGone(id, stamp.node.name, self.metadata.version(), Source::Watch))
    }
}

impl Observed for SlimInitPod {
    type View = InitPodView;
    const LIST: Call = Call::ListInitPods;
    const WATCH: Call = Call::WatchInitPods;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Option<InitPodView> {
        Self::view(self)
    }

    fn all(views: Vec<InitPodView>, version: Version, memory: &mut Memory) -> Fact {
        Fact::InitPods(views, version, memory.feed.clone())
    }

    fn changed(self, memory: &mut Memory) -> Option<Fact> {
        Self::view(self).map(|pod| Fact::InitPod(pod, memory.feed.clone()))
    }

    fn gone(self, memory: &mut Memory) -> Option<Fact> {
        let InitPodView { uid, host, version, .. } = Self::view(self)?;
        Some(Fact::InitPodGone(uid, host, version, memory.feed.clone()))
    }
}

impl Observed for SlimPool {
    type View = PoolView;
    const LIST: Call = Call::ListPools;
    const WATCH: Call = Call::WatchPools;
    const ABSENT: Option<fn() -> Fact> = Some(|| Fact::Pools(Vec::new()));

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Option<PoolView> {
        Some(self.into())
    }

    fn all(views: Vec<PoolView>, _: Version, memory: &mut Memory) -> Fact {
        memory.pools = views.into_iter().map(|pool| (pool.name.clone(), pool)).collect();
        memory.all_pools()
    }

    fn changed(self, memory: &mut Memory) -> Option<Fact> {
        let pool = PoolView::from(self);
        memory.pools.insert(pool.name.clone(), pool);
        Some(memory.all_pools())
    }

    fn gone(self, memory: &mut Memory) -> Option<Fact> {
        memory.pools.remove(&self.metadata.name);
        Some(memory.all_pools())
    }
}

#[cfg(test)]
mod tests {
    use knr_core::config::Config;
    use knr_core::policy::Policies;

    use super::*;

    #[test]
    fn no_more_is_asked_for_than_a_feed_shows() {
        let gates = "gates: [{name: a}, {name: b, namespaces: [other], podSelector: x=y, \
                     taint: {key: b, effect: NoSchedule}, completedAnnotation: c}]";
        let feeds = Feed::of_init_pods(&Policies::from(&Config::parse(gates).unwrap()));
        let mut asked: Vec<_> =
            feeds.iter().map(|feed| (target(feed, "").namespace.unwrap(), query(feed))).collect();
        asked.sort_unstable();
        assert_eq!(
            asked,
            [
                ("kube-system", "labelSelector=startup.k8s.io%2Fcomponent%3Dinit&".to_owned()),
                ("other", "labelSelector=x%3Dy&".to_owned())
            ]
        );
        assert_eq!(query(&Feed::of(ObjectKind::Nodes)), "");
        assert!(query(&Feed::of(ObjectKind::Workers)).starts_with("labelSelector="));
    }

    #[test]
    fn a_change_of_one_pool_tells_of_all() {
        let pool = |name: &str| {
            serde_json::from_value::<SlimPool>(serde_json::json!({ "metadata": { "name": name } })).unwrap()
        };
        let count = |fact: Option<Fact>| match fact {
            Some(Fact::Pools(pools)) => pools.len(),
            other => panic!("{other:?}"),
        };
        let mut memory = Memory::of(&Feed::of(ObjectKind::Pools));
        assert_eq!(count(Some(SlimPool::all(vec![pool("a").into()], Version(1), &mut memory))), 1);
        assert_eq!(count(pool("b").changed(&mut memory)), 2);
        assert_eq!(count(pool("b").changed(&mut memory)), 2);
        assert_eq!(count(pool("a").gone(&mut memory)), 1);
    }
}

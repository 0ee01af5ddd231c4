//! What can be watched, and how its objects become facts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use knr_core::config::{Config, StartupGate};
use knr_core::ids::Version;
use knr_core::names;
use knr_core::view::{InitPodView, NodeView, PoolView, WorkerView};
use knr_core::world::{Fact, Source};
use serde::de::DeserializeOwned;

use crate::api::{Target, encoded};
use crate::calls::Call;
use crate::observe::{Meta, SlimInitPod, SlimNode, SlimPool, SlimWorker};

/// A kind of object that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nodes.
    Nodes,
    /// Worker pods.
    Workers,
    /// Init pods.
    InitPods,
    /// Karpenter's pools.
    Pools,
}

impl Kind {
    /// Its name in metrics, logs and health.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Workers => "workers",
            Self::InitPods => "init-pods",
            Self::Pools => "nodepools",
        }
    }

    pub(super) const fn list_call(self) -> Call {
        match self {
            Self::Nodes => Call::ListNodes,
            Self::Workers => Call::ListWorkers,
            Self::InitPods => Call::ListInitPods,
            Self::Pools => Call::ListPools,
        }
    }

    pub(super) const fn watch_call(self) -> Call {
        match self {
            Self::Nodes => Call::WatchNodes,
            Self::Workers => Call::WatchWorkers,
            Self::InitPods => Call::WatchInitPods,
            Self::Pools => Call::WatchPools,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What exactly is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Feed {
    /// The kind.
    pub kind: Kind,
    namespace: Option<String>,
    selector: Option<String>,
    /// The gates whose init pods these are. One watch may have to be wider than each of them.
    gates: Vec<StartupGate>,
}

impl Feed {
    /// All nodes.
    #[must_use]
    pub fn nodes() -> Self {
        Self { kind: Kind::Nodes, namespace: None, selector: None, gates: Vec::new() }
    }

    /// All workers.
    #[must_use]
    pub fn workers() -> Self {
        let labels = names::WORKER_LABELS.map(|(key, value)| format!("{key}={value}"));
        Self { kind: Kind::Workers, namespace: None, selector: Some(labels.join(",")), gates: Vec::new() }
    }

    /// All of Karpenter's pools.
    #[must_use]
    pub fn pools() -> Self {
        Self { kind: Kind::Pools, namespace: None, selector: None, gates: Vec::new() }
    }

    /// All pods that any startup gate may wait for; none without gates. They come by one watch, because the order of
    /// their versions matters: as narrow as one watch can be.
    #[must_use]
    pub fn init_pods(config: &Config) -> Option<Self> {
        let first = config.gates.first()?;
        let is_same = |gate: &StartupGate| gate.pod_selector == first.pod_selector;
        let namespaces: BTreeSet<&String> = config.gates.iter().flat_map(|gate| &gate.namespaces).collect();
        let only = namespaces.first().filter(|_| namespaces.len() == 1);
        Some(Self {
            kind: Kind::InitPods,
            namespace: only.map(ToString::to_string),
            selector: config.gates.iter().all(is_same).then(|| first.pod_selector.to_string()),
            gates: config.gates.clone(),
        })
    }

    /// The one namespace that is watched; none for all of them.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub(super) fn query(&self) -> String {
        self.selector
            .as_ref()
            .map_or(String::new(), |selector| format!("labelSelector={}&", encoded(selector)))
    }

    pub(super) fn target<'a>(&'a self, query: &'a str) -> Target<'a> {
        Target { namespace: self.namespace.as_deref(), query, ..Target::default() }
    }
}

/// What a watch has to know besides the event at hand.
#[derive(Debug)]
pub(super) struct Memory {
    /// Pools are told all at once.
    pools: BTreeMap<String, PoolView>,
    /// Pods that no gate waits for are not kept.
    gates: Vec<StartupGate>,
}

impl Memory {
    pub(super) fn of(feed: &Feed) -> Self {
        Self { pools: BTreeMap::new(), gates: feed.gates.clone() }
    }

    fn all_pools(&self) -> Fact {
        Fact::Pools(self.pools.values().cloned().collect())
    }

    fn is_waited_for(&self, pod: &InitPodView) -> bool {
        self.gates
            .iter()
            .any(|gate| gate.namespaces.contains(&pod.namespace) && gate.pod_selector.matches(&pod.labels))
    }
}

/// An object that is watched.
pub(super) trait Observed: DeserializeOwned + Clone + Send + 'static {
    type View: Send;
    fn meta(&self) -> &Meta;
    /// What we see of it, if it concerns us.
    fn view(self, memory: &Memory) -> Option<Self::View>;
    fn all(views: Vec<Self::View>, version: Version, memory: &mut Memory) -> Fact;
    fn changed(self, memory: &mut Memory) -> Option<Fact>;
    fn gone(self, memory: &mut Memory) -> Option<Fact>;
}

impl Observed for SlimNode {
    type View = NodeView;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self, _: &Memory) -> Option<NodeView> {
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

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self, _: &Memory) -> Option<WorkerView> {
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

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self, memory: &Memory) -> Option<InitPodView> {
        Self::view(self).filter(|pod| memory.is_waited_for(pod))
    }

    fn all(views: Vec<InitPodView>, version: Version, _: &mut Memory) -> Fact {
        Fact::InitPods(views, version)
    }

    /// A pod whose labels have changed may be waited for no longer.
    fn changed(self, memory: &mut Memory) -> Option<Fact> {
        let pod = Self::view(self)?;
        Some(if memory.is_waited_for(&pod) {
            Fact::InitPod(pod)
        } else {
            Fact::InitPodGone(pod.uid, pod.host, pod.version)
        })
    }

    fn gone(self, _: &mut Memory) -> Option<Fact> {
        let InitPodView { uid, host, version, .. } = Self::view(self)?;
        Some(Fact::InitPodGone(uid, host, version))
    }
}

impl Observed for SlimPool {
    type View = PoolView;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self, _: &Memory) -> Option<PoolView> {
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
    use super::*;

    fn gates(yaml: &str) -> Option<Feed> {
        Feed::init_pods(&Config::parse(yaml).unwrap())
    }

    #[test]
    fn init_pods_are_watched_as_narrowly_as_one_watch_can() {
        assert_eq!(gates(""), None);
        let one = gates("gates: [{name: a}]").unwrap();
        assert_eq!(one.namespace.as_deref(), Some("kube-system"));
        assert_eq!(one.query(), "labelSelector=startup.k8s.io%2Fcomponent%3Dinit&");
        let two = "gates: [{name: a}, {name: b, namespaces: [other], taint: {key: b, effect: NoSchedule}, completedAnnotation: c}]";
        assert_eq!(gates(two).unwrap().namespace, None);
        assert!(gates(two).unwrap().selector.is_some());
        let mixed = "gates: [{name: a}, {name: b, podSelector: x=y, taint: {key: b, effect: NoSchedule}, completedAnnotation: c}]";
        assert_eq!(gates(mixed).unwrap().selector, None);
    }

    #[test]
    fn any_edit_of_a_gate_makes_another_watch() {
        assert_ne!(gates("gates: [{name: a}]"), gates("gates: [{name: a, minimumHoldSeconds: 5}]"));
    }

    #[test]
    fn pods_that_no_gate_waits_for_are_not_kept() {
        let two = "gates: [{name: a}, {name: b, namespaces: [other], podSelector: x=y, \
                   taint: {key: b, effect: NoSchedule}, completedAnnotation: c}]";
        let mut memory = Memory::of(&gates(two).unwrap());
        let pod = |namespace: &str, key: &str, value: &str| {
            let labels = serde_json::json!({ key: value });
            let metadata =
                serde_json::json!({ "name": "p", "namespace": namespace, "uid": "u", "labels": labels });
            let pod = serde_json::json!({ "metadata": metadata, "spec": { "nodeName": "n1" } });
            serde_json::from_value::<SlimInitPod>(pod).unwrap()
        };
        assert!(Observed::view(pod("other", "x", "y"), &memory).is_some());
        assert!(Observed::view(pod("kube-system", "startup.k8s.io/component", "init"), &memory).is_some());
        assert!(Observed::view(pod("kube-system", "x", "y"), &memory).is_none());
        assert!(matches!(pod("other", "x", "z").changed(&mut memory), Some(Fact::InitPodGone(..))));
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
        let mut memory = Memory::of(&Feed::pools());
        assert_eq!(count(Some(SlimPool::all(vec![pool("a").into()], Version(1), &mut memory))), 1);
        assert_eq!(count(pool("b").changed(&mut memory)), 2);
        assert_eq!(count(pool("b").changed(&mut memory)), 2);
        assert_eq!(count(pool("a").gone(&mut memory)), 1);
    }
}

//! An in-memory cluster: nodes as JSON documents, workers and init pods as views, and one version counter.

use std::collections::BTreeMap;

use jiff::Timestamp;
use knr_core::action::{Action, worker_name};
use knr_core::config::Config;
use knr_core::engine::Outcome;
use knr_core::feed::Feed;
use knr_core::ids::{NodeName, NodeRef, Uid, Version, WorkerRef};
use knr_core::names;
use knr_core::patch::NodePatch;
use knr_core::policy::Policies;
use knr_core::texts::Texts;
use knr_core::view::{
    ClaimRef, Condition, ConditionStatus, InitPodView, LedgerView, NodeView, PoolView, Stage, Stamp,
    WorkerView,
};
use knr_core::world::{Fact, Reread, Source};
use serde_json::{Value, json};

/// The objects in the API server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster {
    pub(crate) nodes: BTreeMap<String, Value>,
    pub(crate) workers: BTreeMap<String, WorkerView>,
    pub(crate) pods: BTreeMap<Uid, InitPodView>,
    pub(crate) pools: Vec<PoolView>,
    pub(crate) ledger: LedgerView,
    version: u64,
}

impl Cluster {
    /// Advances the version, which all kinds of objects share.
    pub(crate) fn tick(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    /// The latest version.
    pub(crate) fn version(&self) -> Version {
        Version(self.version)
    }

    /// Creates a node, or replaces the one with its name.
    pub(crate) fn put_node(&mut self, name: &str, mut document: Value) -> NodeView {
        document["metadata"]["resourceVersion"] = json!(self.tick().0);
        let view = view(&document);
        self.nodes.insert(name.to_owned(), document);
        view
    }

    pub(crate) fn node(&self, name: &str) -> Option<NodeView> {
        self.nodes.get(name).map(view)
    }

    /// Creates a worker, or replaces the one with its name.
    pub(crate) fn put_worker(&mut self, mut worker: WorkerView) -> WorkerView {
        worker.version = self.tick();
        self.workers.insert(worker.id.name.clone(), worker.clone());
        worker
    }

    /// Lists of everything.
    pub(crate) fn lists(&self, config: &Config) -> Vec<Fact> {
        let mut lists = vec![self.node_list(), self.worker_list(), self.pool_list(), self.ledger_fact()];
        lists.extend(self.pod_lists(config));
        lists
    }

    pub(crate) fn node_list(&self) -> Fact {
        Fact::Nodes(self.nodes.values().map(view).collect(), self.version())
    }

    pub(crate) fn worker_list(&self) -> Fact {
        Fact::Workers(self.workers.values().cloned().collect(), self.version())
    }

    pub(crate) fn pod_lists(&self, config: &Config) -> Vec<Fact> {
        let list = |feed: Feed| {
            let pods = self.pods.values().filter(|pod| feed.shows(pod)).cloned().collect();
            Fact::InitPods(pods, self.version(), feed)
        };
        Feed::of_init_pods(&Policies::from(config)).into_iter().map(list).collect()
    }

    pub(crate) fn pool_list(&self) -> Fact {
        Fact::Pools(self.pools.clone())
    }

    pub(crate) fn ledger_fact(&self) -> Fact {
        Fact::Ledger(self.ledger.clone())
    }

    /// A fresh read of a node and its worker.
    pub(crate) fn reread(&self, node: &NodeRef) -> Fact {
        Fact::Reread(Box::new(Reread {
            node: node.clone(),
            view: self.node(node.name.as_str()),
            node_version: self.version(),
            worker: self.workers.get(&worker_name(&node.uid)).cloned(),
            worker_version: self.version(),
        }))
    }

    /// Removes a node, and returns the watch event.
    pub(crate) fn node_gone(&mut self, name: &str) -> Option<Fact> {
        let id = self.node(name)?.id;
        self.nodes.remove(name);
        Some(Fact::NodeGone(id, self.tick()))
    }

    /// Removes a worker, and returns the watch event.
    pub(crate) fn worker_gone(&mut self, worker: &str) -> Option<Fact> {
        let gone = self.workers.remove(worker)?;
        Some(Fact::WorkerGone(gone.id, gone.stamp.node.name, self.tick(), Source::Watch))
    }

    /// Carries out one write.
    pub(crate) fn act(&mut self, action: &Action) -> Outcome {
        let done = match action {
            Action::StartWorker { stamp } => self.start_worker(stamp),
            Action::RemoveWorker { worker, .. } => match self.workers.get(&worker.name) {
                Some(known) if known.id == *worker => self.worker_gone(&worker.name),
                _ => None,
            },
            Action::OpenGate { node, patch, .. }
            | Action::CloseGate { node, patch, .. }
            | Action::Record { node, patch, .. } => self.patch(&node.name, patch),
            Action::SetCondition { node, condition, .. } => self.set_condition(node, condition),
            Action::SendEvent { .. } => return Outcome::Done(Vec::new()),
            Action::ReserveDeletion { version, entries, .. } => {
                (self.ledger.version == *version).then(|| {
                    self.ledger = LedgerView { version: self.tick(), entries: entries.clone() };
                    self.ledger_fact()
                })
            }
            Action::DeleteNode { node, version, .. } => match self.node(node.name.as_str()) {
                Some(view) if view.id == *node && view.version == *version => {
                    self.node_gone(node.name.as_str())
                }
                _ => None,
            },
        };
        done.map_or(Outcome::Conflict, |fact| Outcome::Done(vec![fact]))
    }

    fn start_worker(&mut self, stamp: &Stamp) -> Option<Fact> {
        let name = worker_name(&stamp.node.uid);
        if self.workers.contains_key(&name) {
            return None;
        }
        let uid = format!("pod-{}", self.version + 1);
        let worker = WorkerView {
            id: WorkerRef { name, uid: uid.into() },
            version: Version::default(),
            stamp: stamp.clone(),
            host: Some(stamp.node.name.clone()),
            stage: Stage::Pending(None),
            leaving: false,
        };
        Some(Fact::Worker(self.put_worker(worker), Source::Answer))
    }

    fn patch(&mut self, name: &NodeName, patch: &NodePatch) -> Option<Fact> {
        let patched = knr_sim::patch_node(self.nodes.get(name.as_str())?, &json!(patch)).ok()?;
        Some(Fact::Node(self.put_node(name.as_str(), patched), Source::Answer))
    }

    fn set_condition(&mut self, node: &NodeRef, condition: &Condition) -> Option<Fact> {
        let mut document = self.nodes.get(node.name.as_str())?.clone();
        put_condition(&mut document, condition_json(condition));
        Some(Fact::Node(self.put_node(node.name.as_str(), document), Source::Answer))
    }
}

/// The watch events for a change of an init pod.
pub(crate) fn pod_changes(
    config: &Config,
    before: Option<&InitPodView>,
    after: Option<&InitPodView>,
    version: Version,
) -> Vec<Fact> {
    let listed = |feed: Feed| match (before, after) {
        (_, Some(pod)) if feed.shows(pod) => Some(Fact::InitPod(pod.clone(), feed)),
        (Some(pod), _) if feed.shows(pod) => {
            Some(Fact::InitPodGone(pod.uid.clone(), pod.host.clone(), version, feed))
        }
        _ => None,
    };
    Feed::of_init_pods(&Policies::from(config)).into_iter().filter_map(listed).collect()
}

/// A condition as it appears in a Node object.
pub(crate) fn condition_json(condition: &Condition) -> Value {
    json!({
        "type": names::CONDITION,
        "status": format!("{:?}", condition.status),
        "reason": condition.reason,
        "message": condition.message,
    })
}

/// Sets a condition, and replaces the one of the same type.
pub(crate) fn put_condition(document: &mut Value, condition: Value) {
    let mut all = document["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|other| other["type"] != condition["type"]);
    all.push(condition);
    document["status"]["conditions"] = json!(all);
}

/// A node as the rules see it. A node without a `Ready` condition counts as Ready.
pub(crate) fn view(document: &Value) -> NodeView {
    let text = |path: &str| document.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let map = |path: &str| -> Texts {
        let map = document.pointer(path).and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
            .collect()
    };
    let list = |path: &str| document.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let conditions = list("/status/conditions");
    let condition = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
    let claim = document.pointer("/claim").and_then(Value::as_str);
    NodeView {
        id: NodeRef { name: text("/metadata/name").into(), uid: text("/metadata/uid").into() },
        version: Version(document.pointer("/metadata/resourceVersion").and_then(Value::as_u64).unwrap_or(0)),
        boot: text("/status/nodeInfo/bootID").into(),
        created: text("/metadata/creationTimestamp").parse::<Timestamp>().unwrap(),
        taints: list("/spec/taints"),
        labels: map("/metadata/labels"),
        annotations: map("/metadata/annotations"),
        condition: condition(names::CONDITION).map(condition_of),
        ready: condition("Ready").is_none_or(|ready| ready["status"] == "True"),
        leaving: document.pointer("/metadata/deletionTimestamp").is_some(),
        claim: claim.map(|name| ClaimRef { name: name.to_owned(), uid: format!("uid-of-{name}").into() }),
    }
}

fn condition_of(raw: &Value) -> Condition {
    let text = |key: &str| raw[key].as_str().unwrap_or_default().to_owned();
    let status = match text("status").as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    Condition { status, reason: text("reason"), message: text("message") }
}

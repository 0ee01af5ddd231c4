//! The API server: objects with versions and UIDs, writes with preconditions, and a log that feeds watches.

pub(crate) mod json_patch;
mod pools;
mod read;
mod restore;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use knr_core::feed::ObjectKind;
use knr_core::ids::{NodeName, Uid, Version, WorkerRef};
use knr_core::view::{InitPodView, LedgerView, NodeView, Stage, Stamp, WorkerView};
use serde_json::{Value, json};

use crate::observe;
pub(crate) use pools::PoolObject;
pub(crate) use read::{Memory, News};

/// A node as the API server stores it.
#[derive(Debug, PartialEq)]
pub(crate) struct NodeObject {
    /// The whole object.
    pub(crate) json: Value,
    /// The part that the rules see. It is kept because nodes are read far more often than written.
    pub(crate) view: NodeView,
}

/// An object as it was at some version.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    /// A node.
    Node(Arc<NodeObject>),
    /// A worker pod.
    Worker(Arc<WorkerView>),
    /// An init pod.
    InitPod(Arc<InitPodView>),
    /// A Karpenter pool.
    Pool(Arc<PoolObject>),
}

/// One entry of the log.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The version that the change created.
    pub(crate) version: Version,
    /// The object after the change, or its last state if it is gone.
    pub(crate) object: Object,
    /// Whether the object is gone.
    pub(crate) gone: bool,
}

/// Why a write was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 404.
    NotFound,
    /// 409: the name is taken, or a precondition does not hold.
    Conflict,
    /// 422: a test in a JSON patch failed.
    Invalid(String),
}

/// The API server.
#[derive(Debug, Default)]
pub(crate) struct Api {
    version: u64,
    uids: u64,
    nodes: BTreeMap<String, Arc<NodeObject>>,
    workers: BTreeMap<String, Arc<WorkerView>>,
    init_pods: BTreeMap<Uid, Arc<InitPodView>>,
    pools: BTreeMap<String, Arc<PoolObject>>,
    ledger: LedgerView,
    log: BTreeMap<ObjectKind, Vec<Change>>,
    compacted: Version,
}

impl Object {
    fn kind(&self) -> ObjectKind {
        match self {
            Self::Node(_) => ObjectKind::Nodes,
            Self::Worker(_) => ObjectKind::Workers,
            Self::InitPod(_) => ObjectKind::InitPods,
            Self::Pool(_) => ObjectKind::Pools,
        }
    }

    /// The node that it is about, if it is about one.
    pub(crate) fn host(&self) -> Option<&NodeName> {
        match self {
            Self::Node(node) => Some(&node.view.id.name),
            Self::Worker(worker) => Some(&worker.stamp.node.name),
            Self::InitPod(pod) => Some(&pod.host),
            Self::Pool(_) => None,
        }
    }

    fn key(&self) -> String {
        match self {
            Self::Node(node) => node.view.id.name.to_string(),
            Self::Worker(worker) => worker.id.name.clone(),
            Self::InitPod(pod) => pod.uid.to_string(),
            Self::Pool(pool) => pool.view.name.clone(),
        }
    }
}

impl Api {
    /// The version of the latest change.
    #[must_use]
    pub(crate) fn version(&self) -> Version {
        Version(self.version)
    }

    /// Returns a UID that was never used before.
    pub(crate) fn new_uid(&mut self) -> Uid {
        self.uids += 1;
        Uid::from(format!("u{}", self.uids))
    }

    /// A node.
    #[must_use]
    pub(crate) fn node(&self, name: &str) -> Option<&Arc<NodeObject>> {
        self.nodes.get(name)
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&String, &Arc<NodeObject>)> {
        self.nodes.iter()
    }

    /// A worker pod.
    #[must_use]
    pub(crate) fn worker(&self, name: &str) -> Option<&Arc<WorkerView>> {
        self.workers.get(name)
    }

    /// All worker pods.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<WorkerView>> {
        self.workers.values()
    }

    /// All init pods.
    pub(crate) fn init_pods(&self) -> impl Iterator<Item = &Arc<InitPodView>> {
        self.init_pods.values()
    }

    /// The ledger.
    #[must_use]
    pub(crate) fn ledger(&self) -> &LedgerView {
        &self.ledger
    }

    /// Creates a node.
    pub(crate) fn create_node(&mut self, name: &str, mut node: Value) {
        json_patch::prune(&mut node);
        self.put_node(name, node);
    }

    /// Applies a JSON patch to a node.
    pub(crate) fn patch_node(&mut self, name: &str, ops: &Value) -> Result<NodeView, Refusal> {
        let node = self.nodes.get(name).ok_or(Refusal::NotFound)?;
        let changed = patched(&node.json, ops).map_err(Refusal::Invalid)?;
        if changed != node.json {
            self.put_node(name, changed);
        }
        Ok(self.nodes[name].view.clone())
    }

    fn put_node(&mut self, name: &str, mut node: Value) {
        self.version += 1;
        node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let node = Arc::new(NodeObject { view: observe::node(&node), json: node });
        self.nodes.insert(name.to_owned(), node.clone());
        self.note(Object::Node(node), false);
    }

    /// Changes a node by a read and an update of the whole object.
    pub(crate) fn edit_node(&mut self, name: &str, edit: impl FnOnce(&mut Value)) {
        if let Some(node) = self.nodes.get(name) {
            let mut changed = node.json.clone();
            edit(&mut changed);
            json_patch::prune(&mut changed);
            if changed != node.json {
                self.put_node(name, changed);
            }
        }
    }

    /// Removes a node.
    pub(crate) fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.version += 1;
            self.note(Object::Node(node), true);
        }
    }

    /// Creates a worker pod, or refuses because the name is taken.
    pub(crate) fn create_worker(&mut self, mut worker: WorkerView) -> Result<WorkerView, Refusal> {
        if self.workers.contains_key(&worker.id.name) {
            return Err(Refusal::Conflict);
        }
        worker.id.uid = self.new_uid();
        Ok(self.put_worker(worker))
    }

    /// Changes a worker pod, if its UID is still this one.
    pub(crate) fn change_worker(&mut self, id: &WorkerRef, change: impl FnOnce(&mut WorkerView)) {
        if let Some(worker) = self.workers.get(&id.name).filter(|worker| worker.id == *id) {
            let mut worker = (**worker).clone();
            change(&mut worker);
            self.put_worker(worker);
        }
    }

    fn put_worker(&mut self, mut worker: WorkerView) -> WorkerView {
        self.version += 1;
        worker.version = Version(self.version);
        let kept = Arc::new(worker.clone());
        self.workers.insert(worker.id.name.clone(), kept.clone());
        self.note(Object::Worker(kept), false);
        worker
    }

    /// Requests the deletion of a worker pod, if its UID is still this one. The kubelet removes it.
    pub(crate) fn delete_worker(&mut self, id: &WorkerRef) -> Result<(), Refusal> {
        match self.workers.get(&id.name) {
            None => Err(Refusal::NotFound),
            Some(worker) if worker.id != *id => Err(Refusal::Conflict),
            Some(worker) if worker.leaving => Ok(()),
            // Its containers have ended already.
            Some(worker) if matches!(worker.stage, Stage::Ended(_)) => {
                self.remove_worker(id);
                Ok(())
            }
            Some(_) => {
                self.change_worker(id, |worker| worker.leaving = true);
                Ok(())
            }
        }
    }

    /// Removes a worker pod.
    pub(crate) fn remove_worker(&mut self, id: &WorkerRef) {
        if self.workers.get(&id.name).is_some_and(|worker| worker.id == *id)
            && let Some(worker) = self.workers.remove(&id.name)
        {
            self.version += 1;
            self.note(Object::Worker(worker), true);
        }
    }

    /// Creates or changes an init pod.
    pub(crate) fn put_init_pod(&mut self, mut pod: InitPodView) {
        self.version += 1;
        pod.version = Version(self.version);
        let pod = Arc::new(pod);
        self.init_pods.insert(pod.uid.clone(), pod.clone());
        self.note(Object::InitPod(pod), false);
    }

    /// An init pod.
    #[must_use]
    pub(crate) fn init_pod(&self, uid: &Uid) -> Option<&Arc<InitPodView>> {
        self.init_pods.get(uid)
    }

    /// Removes an init pod.
    pub(crate) fn remove_init_pod(&mut self, uid: &Uid) {
        if let Some(pod) = self.init_pods.remove(uid) {
            self.version += 1;
            self.note(Object::InitPod(pod), true);
        }
    }

    fn note(&mut self, object: Object, gone: bool) {
        let change = Change { version: Version(self.version), object, gone };
        self.log.entry(change.object.kind()).or_default().push(change);
    }
}

/// Returns a worker pod that was just created on its node.
pub(crate) fn new_worker(id: WorkerRef, stamp: Stamp, version: Version, stage: Stage) -> WorkerView {
    let host = Some(stamp.node.name.clone());
    WorkerView { id, version, stamp, host, stage, leaving: false }
}

/// Returns a node after a JSON patch, if the patch can be applied and the result is valid.
pub(crate) fn patched(node: &Value, ops: &Value) -> Result<Value, String> {
    let changed = json_patch::apply(node, ops)?;
    let taints = changed.pointer("/spec/taints").and_then(Value::as_array);
    let keys: Vec<_> = taints.into_iter().flatten().map(|taint| (&taint["key"], &taint["effect"])).collect();
    if keys.iter().enumerate().any(|(index, key)| keys[..index].contains(key)) {
        return Err("spec.taints: the same key and effect twice".to_owned());
    }
    Ok(changed)
}

//! The API server: objects with versions and UIDs, writes with preconditions, and a log from which watches are fed.

pub(crate) mod json_patch;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use knr_core::action::{Action, worker_name};
use knr_core::ids::{NodeName, Uid, Version, WorkerRef};
use knr_core::view::{ConditionStatus, InitPodView, LedgerView, NodeView, Stage, WorkerView};
use knr_core::world::{Fact, Source};
use serde_json::{Value, json};

use crate::observe;

/// What a kind of objects is watched as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Nodes.
    Nodes,
    /// Worker pods.
    Workers,
    /// Init pods.
    InitPods,
}

/// All kinds.
pub(crate) const KINDS: [Kind; 3] = [Kind::Nodes, Kind::Workers, Kind::InitPods];

/// An object as it was at some version.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    /// A node, in full.
    Node(Arc<Value>),
    /// A worker pod.
    Worker(Arc<WorkerView>),
    /// An init pod.
    InitPod(Arc<InitPodView>),
}

/// One entry of the log.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The version that it made.
    pub(crate) version: Version,
    /// The object as it is after it, or as it was last.
    pub(crate) object: Object,
    /// The object is gone.
    pub(crate) gone: bool,
}

/// Why a write was not done.
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
    nodes: BTreeMap<String, Arc<Value>>,
    workers: BTreeMap<String, Arc<WorkerView>>,
    init_pods: BTreeMap<Uid, Arc<InitPodView>>,
    ledger: LedgerView,
    log: BTreeMap<Kind, Vec<Change>>,
    compacted: Version,
}

impl Kind {
    fn of(object: &Object) -> Self {
        match object {
            Object::Node(_) => Self::Nodes,
            Object::Worker(_) => Self::Workers,
            Object::InitPod(_) => Self::InitPods,
        }
    }
}

impl Api {
    /// The version of the latest change.
    #[must_use]
    pub(crate) fn version(&self) -> Version {
        Version(self.version)
    }

    /// A UID that was never used before.
    pub(crate) fn new_uid(&mut self) -> Uid {
        self.uids += 1;
        Uid::from(format!("u{}", self.uids))
    }

    /// A node.
    #[must_use]
    pub(crate) fn node(&self, name: &str) -> Option<&Arc<Value>> {
        self.nodes.get(name)
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&String, &Arc<Value>)> {
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

    /// Changes a node by a JSON patch.
    pub(crate) fn patch_node(&mut self, name: &str, ops: &Value) -> Result<NodeView, Refusal> {
        let node = self.nodes.get(name).ok_or(Refusal::NotFound)?;
        let changed = patched(node, ops).map_err(Refusal::Invalid)?;
        if changed != **node {
            self.put_node(name, changed);
        }
        Ok(observe::node(&self.nodes[name]))
    }

    fn put_node(&mut self, name: &str, mut node: Value) {
        self.version += 1;
        node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let node = Arc::new(node);
        self.nodes.insert(name.to_owned(), node.clone());
        self.note(Object::Node(node), false);
    }

    /// Changes a node as somebody does who sends the whole object, having just read it.
    pub(crate) fn edit_node(&mut self, name: &str, edit: impl FnOnce(&mut Value)) {
        if let Some(node) = self.nodes.get(name) {
            let mut changed = (**node).clone();
            edit(&mut changed);
            json_patch::prune(&mut changed);
            if changed != **node {
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

    /// Changes a worker pod, if it still is this one.
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

    /// Asks for a worker pod to be deleted, if it still is this one. The kubelet removes it.
    pub(crate) fn delete_worker(&mut self, id: &WorkerRef) -> Result<(), Refusal> {
        match self.workers.get(&id.name) {
            None => Err(Refusal::NotFound),
            Some(worker) if worker.id != *id => Err(Refusal::Conflict),
            Some(worker) if worker.leaving => Ok(()),
            // Nothing is left to be ended.
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

    /// Removes a worker pod for good.
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
        self.log.entry(Kind::of(&change.object)).or_default().push(change);
    }

    /// Carries out an order of ours as the product does, with the same preconditions.
    pub(crate) fn carry_out(&mut self, action: &Action) -> Result<Vec<Fact>, Refusal> {
        match action {
            Action::StartWorker { stamp } => {
                let worker = self.create_worker(WorkerView {
                    id: WorkerRef { name: worker_name(&stamp.node.uid), uid: Uid::from("") },
                    version: Version(0),
                    stamp: stamp.clone(),
                    host: Some(stamp.node.name.clone()),
                    stage: Stage::Pending(None),
                    leaving: false,
                })?;
                Ok(vec![Fact::Worker(worker, Source::Answer)])
            }
            Action::RemoveWorker { worker, .. } => {
                let node = self.workers.get(&worker.name).map(|known| known.stamp.node.name.clone());
                self.delete_worker(worker)?;
                Ok(node.map(|node| self.removed_worker(worker, node)).into_iter().collect())
            }
            Action::OpenGate { node, patch, .. }
            | Action::CloseGate { node, patch, .. }
            | Action::Record { node, patch, .. } => {
                let view = self.patch_node(node.name.as_str(), &json!(patch))?;
                Ok(vec![Fact::Node(view, Source::Answer)])
            }
            Action::SetCondition { node, condition, .. } => {
                let status = match condition.status {
                    ConditionStatus::True => "True",
                    ConditionStatus::False => "False",
                    ConditionStatus::Unknown => "Unknown",
                };
                let value =
                    json!({ "status": status, "reason": condition.reason, "message": condition.message });
                let ops = json!([
                    { "op": "test", "path": "/metadata/uid", "value": node.uid },
                    { "op": "add", "path": "/status/condition", "value": value },
                ]);
                let view = self.patch_node(node.name.as_str(), &ops)?;
                Ok(vec![Fact::Node(view, Source::Answer)])
            }
            Action::Tell { .. } => Ok(Vec::new()),
            Action::ReserveDeletion { version, entries, .. } => {
                if self.ledger.version != *version {
                    return Err(Refusal::Conflict);
                }
                self.version += 1;
                self.ledger = LedgerView { version: Version(self.version), entries: entries.clone() };
                Ok(vec![Fact::Ledger(self.ledger.clone())])
            }
            Action::DeleteNode { node, version, .. } => {
                let now = self.nodes.get(node.name.as_str()).ok_or(Refusal::NotFound)?;
                let now = observe::node(now);
                if now.id != *node || now.version != *version {
                    return Err(Refusal::Conflict);
                }
                let ops = json!([{ "op": "add", "path": "/metadata/deletionTimestamp", "value": "now" }]);
                let view = self.patch_node(node.name.as_str(), &ops)?;
                Ok(vec![Fact::Node(view, Source::Answer)])
            }
        }
    }

    fn removed_worker(&self, id: &WorkerRef, node: NodeName) -> Fact {
        match self.workers.get(&id.name).filter(|worker| worker.id == *id) {
            Some(leaving) => Fact::Worker((**leaving).clone(), Source::Answer),
            None => Fact::WorkerGone(id.clone(), node, Version(self.version), Source::Answer),
        }
    }
}

/// A node after a JSON patch, if the patch can be applied and the node is valid after it.
pub(crate) fn patched(node: &Value, ops: &Value) -> Result<Value, String> {
    let changed = json_patch::apply(node, ops)?;
    let taints = changed.pointer("/spec/taints").and_then(Value::as_array);
    let keys: Vec<_> = taints.into_iter().flatten().map(|taint| (&taint["key"], &taint["effect"])).collect();
    if keys.iter().enumerate().any(|(index, key)| keys[..index].contains(key)) {
        return Err("spec.taints: the same key and effect twice".to_owned());
    }
    Ok(changed)
}

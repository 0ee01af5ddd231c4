//! A restore of the store from a backup.

use std::sync::Arc;

use knr_core::ids::Version;
use serde_json::json;

use super::{Api, Change, NodeObject, Object};
use crate::observe;

impl Api {
    /// Resets all versions and keeps all objects, as if the backup had just been taken. Whatever else a backup loses,
    /// other actors may remove as well. Only a restore makes versions go back.
    pub(crate) fn restore(&mut self) {
        let mut objects: Vec<Object> = self.objects().collect();
        objects.sort_by_key(Object::version);
        self.log.clear();
        self.version = 0;
        for object in objects {
            self.version += 1;
            let object = self.put_back(object);
            let change = Change { version: Version(self.version), object, gone: false };
            self.log.entry(change.object.kind()).or_default().push(change);
        }
        self.version += 1;
        if self.ledger.version != Version::default() {
            self.ledger.version = Version(self.version);
        }
        self.compact();
    }

    fn put_back(&mut self, object: Object) -> Object {
        let version = Version(self.version);
        match object {
            Object::Node(node) => {
                let mut json = node.json.clone();
                json["metadata"]["resourceVersion"] = json!(version.0.to_string());
                let node = Arc::new(NodeObject { view: observe::node(&json), json });
                self.nodes.insert(node.view.id.name.to_string(), node.clone());
                Object::Node(node)
            }
            Object::Worker(mut worker) => {
                Arc::make_mut(&mut worker).version = version;
                self.workers.insert(worker.id.name.clone(), worker.clone());
                Object::Worker(worker)
            }
            Object::InitPod(mut pod) => {
                Arc::make_mut(&mut pod).version = version;
                self.init_pods.insert(pod.uid.clone(), pod.clone());
                Object::InitPod(pod)
            }
            Object::Pool(mut pool) => {
                Arc::make_mut(&mut pool).version = version;
                self.pools.insert(pool.view.name.clone(), pool.clone());
                Object::Pool(pool)
            }
        }
    }
}

impl Object {
    fn version(&self) -> Version {
        match self {
            Self::Node(node) => node.view.version,
            Self::Worker(worker) => worker.version,
            Self::InitPod(pod) => pod.version,
            Self::Pool(pool) => pool.version,
        }
    }
}

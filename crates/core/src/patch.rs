//! Changes to a Node as a JSON patch that cannot overwrite what others write.
//!
//! `spec.taints` is one list that several controllers write. So a patch never carries the whole list, only single
//! elements, and tests for the exact element before it removes one. Every patch is bound to the node's UID and boot,
//! and to each annotation that it replaces or depends on. If any of them is no longer what the decision was based on,
//! the API server rejects the whole patch.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::{Label, Taint};
use crate::names;
use crate::state::NodeState;
use crate::view::NodeView;

/// One step of a JSON patch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOp {
    /// Continue only if this is the value; null means that there is none.
    Test {
        /// A JSON pointer.
        path: String,
        /// The expected value.
        value: Value,
    },
    /// Set this value.
    Add {
        /// A JSON pointer.
        path: String,
        /// The new value.
        value: Value,
    },
    /// Remove the value.
    Remove {
        /// A JSON pointer.
        path: String,
    },
}

/// A JSON patch for one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct NodePatch(pub Vec<PatchOp>);

/// Builds a patch from the node as it was last seen.
#[derive(Debug)]
pub struct PatchBuilder<'a> {
    node: &'a NodeView,
    ops: Vec<PatchOp>,
    put_on: Vec<Value>,
    annotations: Vec<(&'a str, String)>,
}

impl<'a> PatchBuilder<'a> {
    /// A patch that applies to this node in this boot only.
    #[must_use]
    pub fn new(node: &'a NodeView) -> Self {
        let ops = vec![
            test("/metadata/uid".to_owned(), json!(node.id.uid)),
            test("/status/nodeInfo/bootID".to_owned(), json!(node.boot)),
        ];
        Self { node, ops, put_on: Vec::new(), annotations: Vec::new() }
    }

    /// Removes these taints, as far as they are on the node.
    #[must_use]
    pub fn take_off<'t>(mut self, taints: impl IntoIterator<Item = &'t Taint>) -> Self {
        let mut positions: Vec<usize> =
            taints.into_iter().filter_map(|taint| self.node.position(taint)).collect();
        positions.sort_unstable();
        // From the back, so that removing one does not shift the next one.
        for position in positions.into_iter().rev() {
            let path = format!("/spec/taints/{position}");
            self.ops.push(test(path.clone(), self.node.taints[position].clone()));
            self.ops.push(PatchOp::Remove { path });
        }
        self
    }

    /// Puts these taints on, as far as they are missing.
    #[must_use]
    pub fn put_on<'t>(mut self, taints: impl IntoIterator<Item = &'t Taint>) -> Self {
        let missing = taints.into_iter().filter(|taint| self.node.position(taint).is_none());
        self.put_on.extend(missing.map(|taint| json!(taint)));
        self
    }

    /// Sets a label.
    #[must_use]
    pub fn label(mut self, label: &Label) -> Self {
        let value = json!(label.value);
        if self.node.labels.is_empty() {
            self.ops.push(test("/metadata/labels".to_owned(), Value::Null));
            self.ops.push(add("/metadata/labels".to_owned(), json!({ &label.key: value })));
        } else {
            self.ops.push(add(member("labels", &label.key), value));
        }
        self
    }

    /// Makes the patch fail if the label has changed since the node was seen.
    #[must_use]
    pub fn same_label(mut self, label: &Label) -> Self {
        let seen = if self.node.labels.is_empty() {
            test("/metadata/labels".to_owned(), Value::Null)
        } else {
            test(member("labels", &label.key), json!(self.node.labels.get(&label.key)))
        };
        self.ops.push(seen);
        self
    }

    /// Removes a label, if the node has it.
    #[must_use]
    pub fn unlabel(mut self, label: &Label) -> Self {
        if let Some(value) = self.node.labels.get(&label.key) {
            let path = member("labels", &label.key);
            self.ops.push(test(path.clone(), json!(value)));
            self.ops.push(PatchOp::Remove { path });
        }
        self
    }

    /// Records a state in place of the one that was seen, and fails if that has changed.
    #[must_use]
    pub fn state(mut self, state: &NodeState) -> Self {
        self.annotations.push((names::STATE_ANNOTATION, state.to_json()));
        self
    }

    /// Makes the patch fail if an annotation has changed since the node was seen.
    #[must_use]
    pub fn unchanged(mut self, annotation: &str) -> Self {
        let seen = if self.node.annotations.is_empty() {
            test("/metadata/annotations".to_owned(), Value::Null)
        } else {
            self.seen(annotation)
        };
        self.ops.push(seen);
        self
    }

    /// Sets an annotation in place of the value that was seen, and fails if that has changed.
    #[must_use]
    pub fn annotate(mut self, key: &'a str, value: String) -> Self {
        self.annotations.push((key, value));
        self
    }

    /// Removes an annotation, and fails if it has changed since the node was seen.
    #[must_use]
    pub fn remove_annotation(mut self, key: &str) -> Self {
        if self.node.annotations.get(key).is_some() {
            let seen = self.seen(key);
            self.ops.push(seen);
            self.ops.push(PatchOp::Remove { path: member("annotations", key) });
        }
        self
    }

    #[must_use]
    pub fn build(mut self) -> NodePatch {
        self.finish_taints();
        self.finish_annotations();
        NodePatch(self.ops)
    }

    fn finish_taints(&mut self) {
        let put_on = std::mem::take(&mut self.put_on);
        if put_on.is_empty() {
            return;
        }
        if self.node.taints.is_empty() {
            // There is no list to append to. Creating one is safe only if nobody else has done so.
            self.ops.push(test("/spec/taints".to_owned(), Value::Null));
            self.ops.push(add("/spec/taints".to_owned(), Value::Array(put_on)));
        } else {
            self.ops.extend(put_on.into_iter().map(|taint| add("/spec/taints/-".to_owned(), taint)));
        }
    }

    fn finish_annotations(&mut self) {
        let annotations = std::mem::take(&mut self.annotations);
        if annotations.is_empty() {
            return;
        }
        if self.node.annotations.is_empty() {
            let all: Map<String, Value> =
                annotations.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
            self.ops.push(test("/metadata/annotations".to_owned(), Value::Null));
            self.ops.push(add("/metadata/annotations".to_owned(), Value::Object(all)));
            return;
        }
        for (key, value) in annotations {
            let seen = self.seen(key);
            self.ops.push(seen);
            self.ops.push(add(member("annotations", key), json!(value)));
        }
    }

    fn seen(&self, annotation: &str) -> PatchOp {
        test(member("annotations", annotation), json!(self.node.annotations.get(annotation)))
    }
}

fn test(path: String, value: Value) -> PatchOp {
    PatchOp::Test { path, value }
}

fn add(path: String, value: Value) -> PatchOp {
    PatchOp::Add { path, value }
}

fn member(map: &str, key: &str) -> String {
    format!("/metadata/{map}/{}", key.replace('~', "~0").replace('/', "~1"))
}

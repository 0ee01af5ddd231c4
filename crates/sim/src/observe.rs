//! Conversion of stored nodes into the view of the rules.

use jiff::Timestamp;
use knr_core::ids::{NodeRef, Version};
use knr_core::texts::Texts;
use knr_core::view::{ClaimRef, Condition, ConditionStatus, NodeView};
use serde_json::Value;

/// The name of a node.
pub(crate) fn name(node: &Value) -> &str {
    text(node, "/metadata/name")
}

/// Returns a node as the rules see it.
pub(crate) fn node(node: &Value) -> NodeView {
    NodeView {
        id: NodeRef { name: name(node).into(), uid: text(node, "/metadata/uid").into() },
        version: Version(text(node, "/metadata/resourceVersion").parse().unwrap_or(0)),
        boot: text(node, "/status/nodeInfo/bootID").into(),
        created: text(node, "/metadata/creationTimestamp").parse().unwrap_or(Timestamp::UNIX_EPOCH),
        taints: node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default(),
        labels: texts(node, "/metadata/labels"),
        annotations: texts(node, "/metadata/annotations"),
        condition: node.pointer("/status/condition").map(condition),
        ready: is_ready(node),
        leaving: node.pointer("/metadata/deletionTimestamp").is_some(),
        claim: node
            .pointer("/metadata/claim")
            .and_then(Value::as_str)
            .map(|name| ClaimRef { name: name.to_owned(), uid: name.into() }),
    }
}

/// A node without a Ready condition counts as Ready: only scenarios that need a NotReady node set the condition.
fn is_ready(node: &Value) -> bool {
    let mut conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Ready").is_none_or(|ready| ready["status"] == "True")
}

fn condition(value: &Value) -> Condition {
    Condition {
        status: match text(value, "/status") {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        },
        reason: text(value, "/reason").to_owned(),
        message: text(value, "/message").to_owned(),
    }
}

/// Returns the text at a path of an object, or an empty one.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn texts(object: &Value, path: &str) -> Texts {
    let map = object.pointer(path).and_then(Value::as_object);
    let pairs = map.into_iter().flatten();
    pairs.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

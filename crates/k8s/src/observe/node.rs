//! Nodes.

use knr_core::ids::NodeRef;
use knr_core::names;
use knr_core::view::{ClaimRef, Condition, ConditionStatus, NodeView};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Meta;
use super::condition::{SlimCondition, each};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimNode {
    pub(crate) metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    taints: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "conditions")]
    conditions: Conditions,
    node_info: NodeInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
}

/// The conditions that matter. Only the status of `Ready` is kept, because the kubelet updates the rest all the time.
#[derive(Debug, Clone, Default)]
struct Conditions {
    verified: Option<SlimCondition>,
    ready: Option<bool>,
}

fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Conditions, D::Error> {
    let mut found = Conditions::default();
    each(deserializer, |condition| match &*condition.kind {
        names::CONDITION if found.verified.is_none() => found.verified = Some(condition.into()),
        "Ready" if found.ready.is_none() => found.ready = Some(condition.status == "True"),
        _ => {}
    })?;
    Ok(found)
}

impl From<SlimNode> for NodeView {
    fn from(node: SlimNode) -> Self {
        let SlimNode { metadata, spec, status } = node;
        let claim = metadata
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.kind == "NodeClaim" && owner.api_version.starts_with("karpenter.sh/"));
        Self {
            id: NodeRef { name: metadata.name.as_str().into(), uid: metadata.uid.as_str().into() },
            version: metadata.version(),
            boot: status.node_info.boot_id.into(),
            created: metadata.created(),
            taints: spec.taints.unwrap_or_default(),
            claim: claim.map(|owner| ClaimRef { name: owner.name.clone(), uid: owner.uid.as_str().into() }),
            condition: status.conditions.verified.map(condition_view),
            ready: status.conditions.ready.unwrap_or_default(),
            leaving: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
        }
    }
}

fn condition_view(condition: SlimCondition) -> Condition {
    let status = match condition.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    Condition { status, reason: condition.reason, message: condition.message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample;
    use super::*;

    #[test]
    fn a_node_is_seen_with_its_taints_as_they_are() {
        let taint = json!({ "key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" });
        let view = NodeView::from(sample::<SlimNode>(json!({
            "metadata": {
                "name": "n1", "uid": "u1", "resourceVersion": "17",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": { "zone": "a" },
                "managedFields": [{ "manager": "kubelet" }],
                "ownerReferences": [
                    { "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c1", "uid": "cu" },
                ],
            },
            "spec": { "taints": [taint], "podCIDR": "10.0.0.0/24" },
            "status": {
                "nodeInfo": { "bootID": "b1", "kernelVersion": "6" },
                "images": [{ "names": ["x"] }],
                "conditions": [
                    { "type": "Ready", "status": "True" },
                    { "type": "NodeReadyVerified", "status": "False", "reason": "DnsTimeout", "message": "m" },
                ],
            },
        })));
        assert_eq!((view.id.to_string(), view.version.0, view.boot.as_str()), ("n1/u1".into(), 17, "b1"));
        assert_eq!(view.taints, [taint]);
        assert_eq!(view.claim, Some(ClaimRef { name: "c1".into(), uid: "cu".into() }));
        let condition = view.condition.unwrap();
        assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "DnsTimeout"));
        assert!(view.ready && !view.leaving && view.annotations.is_empty());
    }

    #[test]
    fn a_node_is_ready_only_if_its_kubelet_says_so() {
        let ready = |conditions: Value| {
            NodeView::from(sample::<SlimNode>(json!({ "status": { "conditions": conditions } }))).ready
        };
        let reported = |status: &str| {
            json!([
                { "type": "MemoryPressure", "status": "True" },
                { "type": "Ready", "status": status, "lastHeartbeatTime": "2026-01-01T00:00:00Z" },
            ])
        };
        assert!(ready(reported("True")));
        assert!(!ready(reported("False")));
        assert!(!ready(reported("Unknown")), "its kubelet has stopped reporting");
        assert!(!ready(json!([])), "its kubelet has not reported yet");
        assert!(!ready(Value::Null));
    }

    #[test]
    fn nulls_and_gaps_are_no_surprise() {
        let view = NodeView::from(sample::<SlimNode>(json!({
            "metadata": { "name": "n1", "uid": "u1", "labels": null, "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "taints": null },
        })));
        assert!(view.leaving && view.taints.is_empty() && view.condition.is_none() && view.claim.is_none());
        assert_eq!(view.version.0, 0);
    }

    #[test]
    fn a_claim_of_somebody_else_is_none() {
        let view = NodeView::from(sample::<SlimNode>(json!({
            "metadata": { "ownerReferences": [
                { "apiVersion": "example.com/v1", "kind": "NodeClaim", "name": "c1", "uid": "cu" }] },
        })));
        assert_eq!(view.claim, None);
    }
}

//! The limits of a token that was stolen from a node.

use anyhow::{Context, Result};
use knr_e2e::{Cluster, Node};
use serde_json::{Value, json};

/// The API server itself refuses every change to another node, and every change to the pod's own node that is not the
/// product's.
pub(crate) fn a_token_is_good_for_its_own_node_alone(
    cluster: &Cluster,
    pod: &Value,
    node: &Node<'_>,
) -> Result<()> {
    let thief = cluster.api().with_token_of(pod, &cluster.authority()?)?;
    let (own, other) = (format!("/api/v1/nodes/{}", node.name()), "/api/v1/nodes/n1");
    let taints = |taint: Value| json!({ "spec": { "taints": [taint] } });
    let label = |key: &str| json!({ "metadata": { "labels": { key: "mine" } } });
    let ours = json!({ "key": "node-ready/unverified", "value": "true", "effect": "NoSchedule" });
    let theirs = json!({ "key": "others.example/mine", "effect": "NoExecute" });
    let condition = |kind: &str| json!({ "status": { "conditions": [{ "type": kind, "status": "True", "reason": "Mine", "message": "" }] } });
    let own_status = format!("{own}/status");
    for (path, patch, why) in [
        (other, taints(ours.clone()), "only the node of its pod"),
        (other, label("node-ready/verified"), "only the node of its pod"),
        ("/api/v1/nodes/n1/status", condition("NodeReadyVerified"), "only the node of its pod"),
        (own.as_str(), taints(theirs), "only the taint"),
        (
            own.as_str(),
            taints(json!({ "key": "node-ready/unverified", "effect": "NoExecute" })),
            "may put on only",
        ),
        (own.as_str(), label("team"), "only the label"),
        (own.as_str(), label("node-role.kubernetes.io/control-plane"), "only the label"),
        (own.as_str(), json!({ "metadata": { "annotations": { "mine": "1" } } }), "only the annotation"),
        (own.as_str(), json!({ "spec": { "unschedulable": true } }), "nothing else of a node"),
        (own.as_str(), json!({ "metadata": { "finalizers": ["mine.example/x"] } }), "nothing else of a node"),
        (own_status.as_str(), condition("Ready"), "only the condition"),
        (
            own_status.as_str(),
            json!({ "status": { "capacity": { "cpu": "99" } } }),
            "nothing else of the status",
        ),
        (own_status.as_str(), json!({ "status": { "images": [] } }), "nothing else of the status"),
        (own_status.as_str(), label("team"), "only the label"),
    ] {
        let refused =
            thief.patch(path, &patch).err().with_context(|| format!("{path}: {patch} was let through"))?;
        let said = refused.to_string();
        assert!(said.contains(": 403: ") && said.contains(why), "{path}: {patch}: {said}");
    }
    for path in ["/api/v1/namespaces/kube-system/secrets", "/api/v1/pods", "/api/v1/nodes"] {
        let said = thief.get(path).err().context("it can read everything")?.to_string();
        assert!(said.contains(": 403: "), "{said}");
    }
    // A change that the pod itself makes is allowed, so it is the policy that refused the others. To a reader it is the
    // same state.
    let state = node.annotation("node-ready/state")?.context("no state")? + " ";
    thief.patch(&own, &json!({ "metadata": { "annotations": { "node-ready/state": state } } }))?;
    assert_eq!(node.annotation("node-ready/state")?, Some(state));
    Ok(())
}

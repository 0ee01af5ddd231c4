//! Every object and patch body that is sent. Nothing else builds one.

mod worker;

use jiff::Timestamp;
use knr_core::action::{EventReason, EventText};
use knr_core::ids::{NodeRef, Uid, Version};
use knr_core::names;
use knr_core::view::{ClaimRef, Condition, ConditionStatus, LedgerEntry, LedgerView};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use worker::worker;

/// The limits of the API server for the note and the reporting instance of an event.
const MAX_NOTE_BYTES: usize = 1024;
const MAX_INSTANCE_BYTES: usize = 128;
/// The namespace of events about cluster-scoped objects.
const EVENTS: &str = "default";
const LEDGER_KEY: &str = "deletions";

/// Returns an event about a node, or about its claim. Both are cluster-scoped.
#[must_use]
pub fn event(
    node: &NodeRef,
    claim: Option<&ClaimRef>,
    text: &EventText,
    instance: &str,
    now: Timestamp,
) -> Value {
    let on_node = json!({ "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid });
    let (regarding, related) = match claim {
        None => (on_node, Value::Null),
        Some(ClaimRef { name, uid }) => {
            let on_claim =
                json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": uid });
            (on_claim, on_node)
        }
    };
    // The report of a deletion is sent again if its answer is lost, so its name keeps a second one from being stored.
    let metadata = match text.reason {
        EventReason::NodeDeleted => {
            let uid = claim.map_or(&node.uid, |claim| &claim.uid);
            json!({ "name": format!("node-ready-deleted-{uid}"), "namespace": EVENTS })
        }
        _ => json!({ "generateName": "node-ready-", "namespace": EVENTS }),
    };
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": metadata,
        "eventTime": micro_time(now),
        "reportingController": names::MANAGER,
        "reportingInstance": cut(instance, MAX_INSTANCE_BYTES),
        "action": text.reason.as_str(),
        "reason": text.reason.as_str(),
        "regarding": regarding,
        "related": related,
        "note": cut(&text.message, MAX_NOTE_BYTES),
        "type": if text.warning { "Warning" } else { "Normal" },
    })
}

/// Returns a patch of a node's status that sets the product's condition and touches no other.
#[must_use]
pub fn condition(
    node: &NodeRef,
    condition: &Condition,
    before: Option<ConditionStatus>,
    now: Timestamp,
) -> Value {
    let status = match condition.status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    let mut patch = json!({
        "type": names::CONDITION,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": seconds(now),
    });
    // A field that is not in the patch stays as it is.
    if before != Some(condition.status) {
        patch["lastTransitionTime"] = json!(seconds(now));
    }
    json!({ "metadata": { "uid": node.uid }, "status": { "conditions": [patch] } })
}

/// Returns delete options with the preconditions of a deletion.
#[must_use]
pub fn deletion(uid: &Uid, version: Option<Version>) -> Value {
    let mut preconditions = json!({ "uid": uid });
    if let Some(version) = version {
        preconditions["resourceVersion"] = json!(version.0.to_string());
    }
    json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions })
}

/// Returns the ledger of deletions. The default version stands for a ledger that does not exist yet.
#[must_use]
pub fn ledger(namespace: &str, version: Version, entries: &[LedgerEntry]) -> Value {
    let lines: Vec<Line> = entries.iter().map(Line::from).collect();
    let mut metadata = json!({ "name": names::LEDGER, "namespace": namespace });
    if version != Version::default() {
        metadata["resourceVersion"] = json!(version.0.to_string());
    }
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": { LEDGER_KEY: json!(lines).to_string() },
    })
}

/// One deletion as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    node: String,
    uid: String,
    at: Timestamp,
}

impl From<&LedgerEntry> for Line {
    fn from(entry: &LedgerEntry) -> Self {
        Self { node: entry.node.name.to_string(), uid: entry.node.uid.to_string(), at: entry.at }
    }
}

impl From<Line> for LedgerEntry {
    fn from(line: Line) -> Self {
        Self { node: NodeRef { name: line.node.into(), uid: line.uid.into() }, at: line.at }
    }
}

/// Parses a ledger. One that cannot be parsed is an error, and never taken for empty: then nodes would be deleted
/// beyond the budget.
pub(crate) fn read_ledger(object: &Value) -> Result<LedgerView, String> {
    let text = object.pointer(&format!("/data/{LEDGER_KEY}")).and_then(Value::as_str).unwrap_or("[]");
    let lines: Vec<Line> = serde_json::from_str(text).map_err(|error| {
        format!(
            "ConfigMap {} holds no ledger ({error}): fix its key {LEDGER_KEY}, or delete it",
            names::LEDGER
        )
    })?;
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    Ok(LedgerView {
        version: crate::observe::version(version),
        entries: lines.into_iter().map(LedgerEntry::from).collect(),
    })
}

fn micro_time(at: Timestamp) -> String {
    format!("{at:.6}")
}

fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

fn cut(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeRef {
        NodeRef { name: "n1".into(), uid: "u1".into() }
    }

    #[test]
    fn an_event_fits_into_what_the_api_server_takes() {
        let text =
            EventText { reason: EventReason::VerificationFailed, message: "ü".repeat(2000), warning: true };
        let now = Timestamp::from_microsecond(1_500_000).unwrap();
        let event = event(&node(), None, &text, &"x".repeat(400), now);
        assert_eq!(event["note"].as_str().unwrap().len(), 1024);
        assert_eq!(event["reportingInstance"].as_str().unwrap().len(), 128);
        assert_eq!(event["eventTime"], "1970-01-01T00:00:01.500000Z");
        assert_eq!(event["type"], "Warning");
        let typed: k8s_openapi::api::events::v1::Event = serde_json::from_value(event).unwrap();
        assert_eq!((typed.regarding.unwrap().uid.unwrap().as_str(), typed.related), ("u1", None));
    }

    #[test]
    fn an_event_on_a_claim_names_its_node_too() {
        let text = EventText { reason: EventReason::NodeDeleted, message: "m".to_owned(), warning: true };
        let claim = ClaimRef { name: "c1".into(), uid: "cu".into() };
        let event = event(&node(), Some(&claim), &text, "me", Timestamp::UNIX_EPOCH);
        let expected =
            json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c1", "uid": "cu" });
        assert_eq!((&event["regarding"], &event["related"]["name"]), (&expected, &json!("n1")));
        assert_eq!(event["metadata"]["namespace"], "default");
    }

    #[test]
    fn a_deletion_can_be_reported_only_once_on_each_object() {
        let text = |reason| EventText { reason, message: "m".to_owned(), warning: true };
        let claim = ClaimRef { name: "c1".into(), uid: "cu".into() };
        let metadata = |claim: Option<&ClaimRef>, reason, now| {
            event(&node(), claim, &text(reason), "me", now)["metadata"].clone()
        };
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(9).unwrap());
        let deleted = EventReason::NodeDeleted;
        assert_eq!(metadata(None, deleted, early)["name"], "node-ready-deleted-u1");
        assert_eq!(metadata(None, deleted, early), metadata(None, deleted, late));
        assert_eq!(metadata(Some(&claim), deleted, early)["name"], "node-ready-deleted-cu");
        assert!(metadata(None, EventReason::VerificationFailed, early).get("name").is_none());
    }

    #[test]
    fn a_condition_names_its_own_type_alone() {
        let fit = Condition { status: ConditionStatus::True, reason: "Verified".into(), message: "m".into() };
        let patch = condition(&node(), &fit, Some(ConditionStatus::False), Timestamp::UNIX_EPOCH);
        assert_eq!(patch["metadata"], json!({ "uid": "u1" }));
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(patch["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(patch["status"]["conditions"][0]["type"], "NodeReadyVerified");
        let same = condition(&node(), &fit, Some(ConditionStatus::True), Timestamp::UNIX_EPOCH);
        assert!(same["status"]["conditions"][0].get("lastTransitionTime").is_none());
    }

    #[test]
    fn the_ledger_is_read_back_as_written() {
        let entries = vec![LedgerEntry { node: node(), at: Timestamp::UNIX_EPOCH }];
        let mut object = ledger("ns", Version(7), &entries);
        assert_eq!(object["metadata"]["resourceVersion"], "7");
        assert_eq!(read_ledger(&object).unwrap(), LedgerView { version: Version(7), entries });
        assert!(ledger("ns", Version(0), &[])["metadata"].get("resourceVersion").is_none());
        object["data"][LEDGER_KEY] = json!("[{]");
        assert!(read_ledger(&object).unwrap_err().contains("fix its key deletions"));
        object["data"] = Value::Null;
        assert!(read_ledger(&object).unwrap().entries.is_empty());
    }

    #[test]
    fn a_deletion_is_bound_to_what_was_seen() {
        assert_eq!(deletion(&"u".into(), None)["preconditions"], json!({ "uid": "u" }));
        let bound = json!({ "uid": "u", "resourceVersion": "8" });
        assert_eq!(deletion(&"u".into(), Some(Version(8)))["preconditions"], bound);
    }
}

use knr_core::view::NodeView;
use kube::core::{Status, WatchEvent};
use serde_json::{Value, json};

use super::*;
use crate::observe::{SlimNode, SlimWorker};

/// A field as Kubernetes writes it.
fn bytes(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | BYTES), varint(content.len() as u64), content.to_vec()].concat()
}

fn text(number: u64, content: &str) -> Vec<u8> {
    bytes(number, content.as_bytes())
}

fn whole(number: u64, content: i64) -> Vec<u8> {
    [varint(number << 3), varint(content.cast_unsigned())].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut written = Vec::new();
    while number >= 0x80 {
        written.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    written.push(u8::try_from(number).unwrap());
    written
}

fn entry(name: &str, value: &str) -> Vec<u8> {
    [text(1, name), text(2, value)].concat()
}

fn enveloped(kind: &str, raw: &[u8]) -> Vec<u8> {
    let types = [text(1, "v1"), text(2, kind)].concat();
    [MAGIC.to_vec(), bytes(1, &types), bytes(2, raw), text(3, ""), text(4, "")].concat()
}

/// A frame of a watch: a node of this name has come.
pub(crate) fn frame(name: &str) -> Vec<u8> {
    let node = enveloped("Node", &bytes(1, &text(1, name)));
    let event = [text(1, "ADDED"), bytes(2, &bytes(1, &node))].concat();
    [u32::try_from(event.len()).unwrap().to_be_bytes().to_vec(), event].concat()
}

fn time(seconds: i64) -> Vec<u8> {
    [whole(1, seconds), whole(2, 5)].concat()
}

fn node() -> Vec<u8> {
    let owner = [text(1, "NodeClaim"), text(3, "c1"), text(4, "cu"), text(5, "karpenter.sh/v1")].concat();
    let meta = [
        text(1, "n1"),
        text(2, ""),
        text(3, ""),
        text(5, "u1"),
        text(6, "17"),
        whole(7, 0),
        bytes(8, &time(1_767_225_600)),
        bytes(11, &entry("zone", "a")),
        bytes(11, &entry("empty", "")),
        bytes(12, &entry("note", "x")),
        bytes(13, &owner),
        bytes(17, b"managed fields, of which nothing is known here"),
    ]
    .concat();
    let first = [text(1, "a"), text(2, ""), text(3, "NoExecute"), bytes(4, &time(1_767_225_601))].concat();
    let second = [text(1, "b"), text(2, "v"), text(3, "NoSchedule")].concat();
    let spec = [text(1, "10.0.0.0/24"), bytes(5, &first), bytes(5, &second)].concat();
    let condition =
        |kind: &str, status: &str| [text(1, kind), text(2, status), text(5, "Why"), text(6, "m")].concat();
    let status = [
        bytes(4, &condition("Ready", "True")),
        bytes(4, &condition("NodeReadyVerified", "False")),
        bytes(7, &[text(1, "machine"), text(3, "b1")].concat()),
    ]
    .concat();
    [bytes(1, &meta), bytes(2, &spec), bytes(3, &status)].concat()
}

#[test]
fn a_node_is_the_same_as_in_json() {
    let raw = enveloped("Node", &node());
    let binary = NodeView::from(answer::<SlimNode>(&raw).unwrap());
    assert!(binary.ready);
    let json = json!({
        "metadata": {
            "name": "n1", "uid": "u1", "resourceVersion": "17", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "zone": "a", "empty": "" }, "annotations": { "note": "x" },
            "ownerReferences": [{ "kind": "NodeClaim", "name": "c1", "uid": "cu", "apiVersion": "karpenter.sh/v1" }],
        },
        "spec": { "taints": [
            { "key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:01Z" },
            { "key": "b", "value": "v", "effect": "NoSchedule" },
        ] },
        "status": {
            "conditions": [
                { "type": "Ready", "status": "True", "reason": "Why", "message": "m" },
                { "type": "NodeReadyVerified", "status": "False", "reason": "Why", "message": "m" },
            ],
            "nodeInfo": { "bootID": "b1" },
        },
    });
    assert_eq!(binary, NodeView::from(serde_json::from_value::<SlimNode>(json).unwrap()));
}

#[test]
fn what_one_kubelet_says_makes_no_list_unreadable() {
    let meta = |name: &str, note: &[u8]| {
        bytes(1, &[text(1, name), bytes(12, &[text(1, "note"), bytes(2, note)].concat())].concat())
    };
    let taint = |seconds| bytes(2, &bytes(5, &[text(1, "t"), bytes(4, &time(seconds))].concat()));
    let nodes = [
        [meta("n1", b"\xff!"), taint(253_402_300_799)].concat(),
        [meta("n2", b"x"), taint(i64::MAX)].concat(),
        [meta("n3", b"x"), taint(i64::MIN)].concat(),
    ];
    let nodes = nodes.iter().flat_map(|node| bytes(2, node)).collect::<Vec<_>>();
    let list: Value = answer(&enveloped("NodeList", &nodes)).unwrap();
    assert_eq!(list["items"][0]["metadata"]["annotations"]["note"], "\u{fffd}!");
    let added = |index: usize| list["items"][index]["spec"]["taints"][0]["timeAdded"].as_str().unwrap();
    assert_eq!(
        [added(0), added(1), added(2)],
        ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "-009999-01-01T00:00:00Z"]
    );
}

#[test]
fn a_pod_is_read_whatever_its_numbers_are() {
    let container = [text(1, "worker"), whole(5, -1)].concat();
    let meta = [text(1, "p"), bytes(9, &time(i64::MAX))].concat();
    let pod = [bytes(1, &meta), bytes(3, &bytes(8, &container))].concat();
    let pod: SlimWorker = answer(&enveloped("Pod", &pod)).unwrap();
    assert!(pod.metadata.deletion_timestamp.is_some());
}

#[test]
fn a_pod_tells_how_it_ended() {
    let terminated = [whole(1, -1), text(3, "Error"), text(4, "last words")].concat();
    let container = [text(1, "worker"), bytes(2, &bytes(3, &terminated)), whole(5, 3), text(8, "c")].concat();
    let status = [text(1, "Failed"), bytes(8, &container)].concat();
    let pod = [bytes(1, &text(1, "p")), bytes(2, &text(10, "n1")), bytes(3, &status)].concat();
    let raw = enveloped("Pod", &pod);
    let all: Value = answer(&raw).unwrap();
    assert_eq!(
        all,
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": { "nodeName": "n1" },
            "status": { "phase": "Failed", "containerStatuses": [{
                "name": "worker", "restartCount": 3, "containerID": "c",
                "state": { "terminated": { "exitCode": -1, "reason": "Error", "message": "last words" } },
            }] },
        })
    );
    answer::<SlimWorker>(&raw).unwrap();
}

#[test]
fn events_bookmarks_and_refusals_are_told_apart() {
    let of = |kind: &str, object: &[u8]| [text(1, kind), bytes(2, &bytes(1, object))].concat();
    let modified = of("MODIFIED", &enveloped("Node", &node()));
    let WatchEvent::Modified(seen) = event::<WatchEvent<SlimNode>>(&modified).unwrap() else { panic!() };
    assert_eq!(seen.metadata.name, "n1");
    let meta = [text(6, "99"), bytes(12, &entry("k8s.io/initial-events-end", "true"))].concat();
    let bookmark = of("BOOKMARK", &enveloped("Node", &bytes(1, &meta)));
    let WatchEvent::Bookmark(seen) = event::<WatchEvent<SlimNode>>(&bookmark).unwrap() else { panic!() };
    assert_eq!((seen.types.kind.as_str(), seen.metadata.resource_version.as_str()), ("Node", "99"));
    assert!(seen.metadata.annotations.contains_key("k8s.io/initial-events-end"));
    let cause = [text(1, "Invalid"), text(2, "m"), text(3, "metadata.uid")].concat();
    let details = [text(1, "n1"), text(3, "nodes"), bytes(4, &cause), whole(5, 0)].concat();
    let gone =
        [text(2, "Failure"), text(3, "too old"), text(4, "Expired"), bytes(5, &details), whole(6, 410)];
    let error = of("ERROR", &enveloped("Status", &gone.concat()));
    let WatchEvent::Error(status) = event::<WatchEvent<SlimNode>>(&error).unwrap() else { panic!() };
    assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (410, "Expired", "too old"));
    assert_eq!(status.details.unwrap().causes[0].field, "metadata.uid");
    assert_eq!(answer::<Status>(&enveloped("Status", &gone.concat())).unwrap().code, 410);
}

#[test]
fn what_is_wrong_is_told() {
    let said = |raw: &[u8]| answer::<SlimNode>(raw).unwrap_err().to_string();
    assert_eq!(said(b"{}"), "it does not begin as it should");
    assert_eq!(said(&enveloped("Secret", b"")), "nothing is known of the kind \"Secret\"");
}

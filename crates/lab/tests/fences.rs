//! The rules rest on what the API server does with a JSON patch, and the simulation on doing the same. Here the real one
//! is asked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::builder;
use lab::{Lab, Tool};
use serde_json::{Value, json};

const NODE: &str = "apiVersion: v1
kind: Node
metadata: { name: fence, labels: { zone: a }, annotations: { a: b } }
spec: { taints: [{ key: x/first, effect: NoSchedule }, { key: x/second, value: v, effect: NoExecute }] }
";
const BARE: &str = "apiVersion: v1
kind: Node
metadata: { name: bare }
";

#[test]
fn the_api_server_refuses_and_applies_patches_as_the_simulation_does() {
    // Nobody else may write a taint between a look and a patch.
    let lab = builder("fences")
        .flag(Tool::KubeApiserver, "--disable-admission-plugins=TaintNodesByCondition")
        .flag(Tool::KubeControllerManager, "--controllers=*,-node-lifecycle-controller")
        .temporary()
        .unwrap();
    lab.apply(NODE).unwrap();
    lab.apply(BARE).unwrap();
    let boot = r#"{"status":{"nodeInfo":{"bootID":"boot-1"}}}"#;
    lab.kubectl(["patch", "node", "fence", "--subresource=status", "--type=merge", "-p", boot]).unwrap();
    assert_eq!(get(&lab, "bare")["spec"]["taints"], Value::Null, "somebody else writes taints");
    for (name, what, ops) in cases(&get(&lab, "fence")) {
        let before = get(&lab, name);
        let expected = knr_sim::patch_node(&before, &ops);
        let real = lab.kubectl(["patch", "node", name, "--type=json", "-p", &ops.to_string()]);
        let after = get(&lab, name);
        match (expected, &real) {
            (Ok(expected), Ok(_)) => assert_eq!(written(&after), written(&expected), "{what}"),
            (Err(_), Err(refusal)) => {
                assert!(refusal.to_string().contains("invalid"), "{what} is refused otherwise: {refusal}");
                assert_eq!(written(&after), written(&before), "{what} was half done");
            }
            (expected, real) => panic!("{what}: the simulation says {expected:?}, the API server {real:?}"),
        }
    }
    a_deleted_node_is_answered_by_a_status(&lab);
}

fn a_deleted_node_is_answered_by_a_status(lab: &Lab) {
    let answer: Value =
        serde_json::from_str(&lab.kubectl(["delete", "--raw", "/api/v1/nodes/bare"]).unwrap()).unwrap();
    assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")), "{answer}");
    let finalizer = r#"{"metadata":{"finalizers":["example.com/wait"]}}"#;
    lab.kubectl(["patch", "node", "fence", "--type=merge", "-p", finalizer]).unwrap();
    let answer: Value =
        serde_json::from_str(&lab.kubectl(["delete", "--raw", "/api/v1/nodes/fence"]).unwrap()).unwrap();
    assert_eq!(answer["kind"], "Node", "{answer}");
    assert!(answer["metadata"]["deletionTimestamp"].is_string(), "{answer}");
}

/// Node, what the patch rests on, patch.
fn cases(node: &Value) -> Vec<(&'static str, &'static str, Value)> {
    let (first, second) = (node["spec"]["taints"][0].clone(), node["spec"]["taints"][1].clone());
    let uid = node["metadata"]["uid"].clone();
    let test = |path: &str, value: &Value| json!({"op": "test", "path": path, "value": value});
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let null = Value::Null;
    let label = add("/metadata/labels/node-ready~1verified", json!("true"));
    let taint = json!({"key": "node-ready/unverified", "effect": "NoSchedule"});
    let state = "/metadata/annotations/node-ready~1state";
    vec![
        (
            "fence",
            "the right UID and boot",
            json!([test("/metadata/uid", &uid), test("/status/nodeInfo/bootID", &json!("boot-1")), label]),
        ),
        (
            "fence",
            "another UID",
            json!([test("/metadata/uid", &json!("other")), add("/metadata/labels/a", json!("b"))]),
        ),
        (
            "fence",
            "another boot",
            json!([test("/status/nodeInfo/bootID", &json!("boot-2")), add("/metadata/labels/a", json!("b"))]),
        ),
        ("fence", "no state yet", json!([test(state, &null), add(state, json!("one"))])),
        ("fence", "a state where none was seen", json!([test(state, &null), add(state, json!("two"))])),
        ("fence", "the state that was seen", json!([test(state, &json!("one")), add(state, json!("two"))])),
        (
            "fence",
            "a list where none was seen",
            json!([test("/spec/taints", &null), add("/spec/taints", json!([taint]))]),
        ),
        ("fence", "a taint more", json!([add("/spec/taints/-", taint.clone())])),
        ("fence", "the same taint twice", json!([add("/spec/taints/-", taint.clone())])),
        (
            "fence",
            "another taint at this place",
            json!([test("/spec/taints/0", &second), {"op": "remove", "path": "/spec/taints/0"}]),
        ),
        ("fence", "a place that is not there", json!([{"op": "remove", "path": "/spec/taints/7"}])),
        (
            "fence",
            "this taint at this place",
            json!([test("/spec/taints/0", &first), {"op": "remove", "path": "/spec/taints/0"}]),
        ),
        (
            "bare",
            "no taints and no list",
            json!([test("/spec/taints", &null), add("/spec/taints", json!([taint]))]),
        ),
        ("bare", "an append where no map is", json!([add("/metadata/annotations/a", json!("b"))])),
        (
            "bare",
            "no annotations and no map",
            json!([test("/metadata/annotations", &null), add("/metadata/annotations", json!({"a": "b"}))]),
        ),
        ("bare", "the last taint", json!([{"op": "remove", "path": "/spec/taints/0"}])),
    ]
}

fn get(lab: &Lab, name: &str) -> Value {
    serde_json::from_str(&lab.kubectl(["get", "node", name, "-o", "json"]).unwrap()).unwrap()
}

/// What patches of ours can change.
fn written(node: &Value) -> Value {
    json!([node["spec"]["taints"], node["metadata"]["labels"], node["metadata"]["annotations"]])
}

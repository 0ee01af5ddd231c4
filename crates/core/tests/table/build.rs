//! Turns the specification of a case into objects in the API server.

use knr_core::action::worker_name;
use knr_core::ids::{NodeRef, Version, WorkerRef};
use knr_core::names;
use knr_core::state::{NodeState, PassElsewhere, Reference, StatePhase};
use knr_core::view::{
    Condition, ConditionStatus, Ending, InitPodView, NodeView, Purpose, Stage, Stamp, Waiting, WorkerView,
};
use serde_json::{Map, Value, json};

use super::spec::{ConditionSpec, Finish, KeptSpec, NodeSpec, PodSpec, StateSpec, WorkerSpec};
use super::{clock, with_day};
use crate::support::cluster::{Cluster, condition_json, put_condition};

const PASSED: &str = r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#;
const FAILED: &str =
    r#"{"checks":[{"name":"dns","outcome":{"fail":{"kind":"timeout","detail":"no answer"}}}]}"#;
/// A failure that cannot be the fault of the cluster.
const OWN_FAULT: &str =
    r#"{"checks":[{"name":"dns","outcome":{"fail":{"kind":"no-nameserver","detail":"no answer"}}}]}"#;

/// The name of a node, `n1` by default.
pub(super) fn name_of(spec: &NodeSpec) -> String {
    spec.name.clone().unwrap_or_else(|| "n1".to_owned())
}

/// Creates or changes a node.
pub(super) fn node(cluster: &mut Cluster, spec: &NodeSpec) -> NodeView {
    let name = name_of(spec);
    let mut document = cluster.nodes.get(&name).cloned().unwrap_or_else(|| {
        json!({
            "metadata": { "name": name, "uid": "a", "creationTimestamp": clock("10:00:00") },
            "spec": {},
            "status": { "nodeInfo": { "bootID": "b1" } },
        })
    });
    set(&mut document, "/metadata", "uid", spec.uid.as_ref().map(|uid| json!(uid)));
    set(&mut document, "/metadata", "creationTimestamp", spec.created.as_ref().map(|at| json!(clock(at))));
    set(&mut document, "/status/nodeInfo", "bootID", spec.boot.as_ref().map(|boot| json!(boot)));
    let taints = spec.taints.as_ref().map(|taints| taints.iter().map(taint).collect::<Vec<_>>());
    set(&mut document, "/spec", "taints", taints.map(|taints| json!(taints)));
    let labels =
        spec.labels.as_ref().map(|labels| labels.iter().map(|label| pair(label)).collect::<Map<_, _>>());
    set(&mut document, "/metadata", "labels", labels.map(Value::Object));
    for (key, value) in &spec.annotations {
        annotate(&mut document, key, value.clone());
    }
    match &spec.state {
        None => {}
        Some(StateSpec::Word(word)) if word == "none" => {
            annotate(&mut document, names::STATE_ANNOTATION, None);
        }
        Some(StateSpec::Word(word)) => panic!("{word} is no state"),
        Some(StateSpec::Kept(kept)) => {
            let text = state(&document, kept).to_json();
            annotate(&mut document, names::STATE_ANNOTATION, Some(text));
        }
    }
    if let Some(shown) = &spec.condition {
        put_condition(&mut document, condition_json(&condition(shown)));
    }
    if let Some(ready) = spec.ready {
        let status = if ready { "True" } else { "False" };
        put_condition(&mut document, json!({ "type": "Ready", "status": status }));
    }
    set(&mut document, "/metadata", "deletionTimestamp", spec.leaving.map(|_| json!(clock("10:00:00"))));
    set(&mut document, "", "claim", spec.claim.as_ref().map(|claim| json!(claim)));
    cluster.put_node(&name, document)
}

/// Sets a key. An empty list or map counts as absent, as in Kubernetes.
fn set(document: &mut Value, parent: &str, key: &str, value: Option<Value>) {
    let Some(value) = value else { return };
    let map = document.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
    if value == json!([]) || value == json!({}) {
        map.remove(key);
    } else {
        map.insert(key.to_owned(), value);
    }
}

fn annotate(document: &mut Value, key: &str, value: Option<String>) {
    let mut all = document["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    match value {
        Some(value) => drop(all.insert(key.to_owned(), json!(value))),
        None => drop(all.remove(key)),
    }
    document["metadata"].as_object_mut().unwrap().remove("annotations");
    set(document, "/metadata", "annotations", Some(Value::Object(all)));
}

fn pair(label: &str) -> (String, Value) {
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    (key.to_owned(), json!(value))
}

fn taint(raw: &Value) -> Value {
    let Some(text) = raw.as_str() else { return raw.clone() };
    match (text, text.rsplit_once(':')) {
        (names::UNVERIFIED_TAINT, _) => json!({ "key": text, "value": "true", "effect": "NoSchedule" }),
        (names::STARTUP_TAINT, _) => json!({ "key": text, "value": "wait", "effect": "NoSchedule" }),
        (_, Some((taint, effect))) => match taint.split_once('=') {
            Some((key, value)) => json!({ "key": key, "value": value, "effect": effect }),
            None => json!({ "key": taint, "effect": effect }),
        },
        (_, None) => panic!("{text} is no taint: write key=value:Effect"),
    }
}

fn state(document: &Value, spec: &KeptSpec) -> NodeState {
    let text = |path: &str| document.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let uid = spec.uid.clone().unwrap_or_else(|| text("/metadata/uid"));
    let boot = spec.boot.clone().unwrap_or_else(|| text("/status/nodeInfo/bootID"));
    let at = clock(spec.at.as_deref().unwrap_or("10:00:00"));
    let phase = match spec.phase.as_str() {
        "unverified" => StatePhase::Unverified,
        "verified" => StatePhase::Verified,
        "failed" => StatePhase::Failed,
        other => panic!("{other} is no phase"),
    };
    let failed = phase == StatePhase::Failed;
    let reference = spec.reference.as_ref().map(|text| {
        let (outcome, at) = text.split_once(' ').expect("pass or fail, and a time");
        Reference { pass: outcome == "pass", at: clock(at), requires: None }
    });
    NodeState {
        phase,
        serial: spec.serial.unwrap_or(spec.attempt.unwrap_or(1)),
        attempt: spec.attempt.unwrap_or(1),
        inconclusive: spec.inconclusive,
        next_try: spec.next_try.as_deref().map(clock),
        cause: spec.cause.clone().or(failed.then(|| "DnsTimeout".to_owned())),
        reason: spec.reason.clone().or(failed.then(|| "dns: no answer".to_owned())),
        reference,
        blame: spec.blame,
        stays_open: spec.stays_open,
        trouble: spec.trouble.as_deref().map(clock),
        passed_elsewhere: spec.passed_elsewhere.as_ref().map(|text| {
            let (node, at) = text.split_once(' ').expect("a node and a time");
            PassElsewhere { node: node.into(), at: clock(at) }
        }),
        ..NodeState::new(uid.into(), boot.into(), at)
    }
}

fn condition(spec: &ConditionSpec) -> Condition {
    match spec {
        ConditionSpec::Verified(text) => Condition {
            status: ConditionStatus::True,
            reason: "Verified".to_owned(),
            message: format!("open: {text}"),
        },
        ConditionSpec::Whole { status, reason, message } => Condition {
            status: match status.as_str() {
                "True" => ConditionStatus::True,
                "False" => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            },
            reason: reason.clone(),
            message: with_day(message),
        },
    }
}

/// Resolves `n1` or `n1/uid` to a node.
pub(super) fn node_ref(cluster: &Cluster, text: &str) -> NodeRef {
    match text.split_once('/') {
        Some((name, uid)) => NodeRef { name: name.into(), uid: uid.into() },
        None => {
            cluster.node(text).map_or_else(|| NodeRef { name: text.into(), uid: "a".into() }, |node| node.id)
        }
    }
}

/// Creates or changes a worker.
pub(super) fn worker(cluster: &mut Cluster, spec: &WorkerSpec) -> WorkerView {
    let node = node_ref(cluster, spec.node.as_deref().unwrap_or("n1"));
    let name = worker_name(&node.uid);
    let purpose = if spec.reference == Some(true) { Purpose::Reference } else { Purpose::Verify };
    let mut worker = cluster.workers.get(&name).cloned().unwrap_or_else(|| WorkerView {
        id: WorkerRef { uid: format!("pod-of-{}", node.uid).into(), name },
        version: Version::default(),
        stamp: Stamp {
            node: node.clone(),
            boot: "b1".into(),
            serial: 1,
            attempt: 1,
            purpose,
            policy: "".into(),
            requires: "".into(),
        },
        host: Some(node.name.clone()),
        stage: Stage::Pending(None),
        leaving: false,
    });
    let stamp = &mut worker.stamp;
    stamp.boot = spec.boot.as_deref().map_or(stamp.boot.clone(), Into::into);
    stamp.serial = spec.serial.unwrap_or(stamp.serial);
    stamp.attempt = spec.attempt.unwrap_or(stamp.attempt);
    worker.host = spec.host.as_deref().map(Into::into).or(worker.host);
    worker.leaving = spec.leaving.unwrap_or(worker.leaving);
    if let Some(is) = &spec.is {
        worker.stage = match (is.as_str(), is.strip_prefix("pending: ")) {
            ("running", _) => Stage::Running,
            ("pending", _) => Stage::Pending(None),
            (_, Some(why)) => Stage::Pending(Some(waiting(why))),
            (other, None) => panic!("a worker cannot be {other}"),
        };
    }
    if let Some(finished) = &spec.finished {
        worker.stage = Stage::Ended(ending(finished));
    }
    cluster.put_worker(worker)
}

fn waiting(why: &str) -> Waiting {
    let (reason, message) = why.split_once(": ").unwrap_or((why, ""));
    Waiting { reason: reason.to_owned(), message: message.to_owned() }
}

fn ending(finish: &Finish) -> Ending {
    let exited = |code, message: &str| Ending::Exited { code, message: message.to_owned() };
    match finish {
        Finish::Exit { exit, says } => exited(*exit, says),
        Finish::Word(word) => match word.as_str() {
            "pass" => exited(0, PASSED),
            "fail" => exited(1, FAILED),
            "own fault" => exited(1, OWN_FAULT),
            "evicted" => Ending::Killed("Evicted".to_owned()),
            "deadline" => Ending::Killed("the deadline of its pod passed".to_owned()),
            other => panic!("a worker cannot finish with {other}"),
        },
    }
}

/// Creates or changes an init pod.
pub(super) fn pod(cluster: &mut Cluster, spec: &PodSpec) -> InitPodView {
    let name = spec.name.clone().unwrap_or_else(|| "init".to_owned());
    let version = cluster.tick();
    let mut pod = cluster.pods.get(&name.as_str().into()).cloned().unwrap_or_else(|| InitPodView {
        uid: name.as_str().into(),
        version,
        namespace: "kube-system".to_owned(),
        name,
        host: "n1".into(),
        created: clock("10:00:10"),
        labels: [(names::INIT_POD_LABEL, names::INIT_POD_VALUE)].into_iter().collect(),
        annotations: std::collections::BTreeMap::default(),
        ready: false,
        containers: "first".to_owned(),
        leaving: false,
    });
    pod.version = version;
    pod.namespace = spec.namespace.clone().unwrap_or(pod.namespace);
    pod.host = spec.on.as_deref().map_or(pod.host, Into::into);
    pod.created = spec.created.as_deref().map_or(pod.created, clock);
    if let Some(labels) = &spec.labels {
        let text = |(key, value): (String, Value)| (key, value.as_str().unwrap().to_owned());
        pod.labels = labels.iter().map(|label| text(pair(label))).collect();
    }
    pod.annotations = spec.annotations.clone().unwrap_or(pod.annotations);
    pod.ready = spec.ready.unwrap_or(pod.ready);
    pod.containers = spec.containers.clone().unwrap_or(pod.containers);
    pod.leaving = spec.leaving.unwrap_or(pod.leaving);
    cluster.pods.insert(pod.uid.clone(), pod.clone());
    pod
}

//! The worker pod.

use knr_core::action::worker_name;
use knr_core::config::{Placement, RawObject};
use knr_core::names;
use knr_core::policy::Policy;
use knr_core::view::Stamp;
use serde_json::{Map, Value, json};

use crate::observe::purpose_word;

/// An unprivileged user that owns nothing on the node.
const USER: u32 = 65532;
/// Taints by which Kubernetes and others mark a node as not ready. A worker tolerates them, because it has to find that
/// out.
const TOLERATED: [&str; 10] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "karpenter.sh/unregistered",
    "karpenter.sh/disrupted",
];
/// The margin between the worker's timeouts and the pod's own deadline, which ends the pod if no controller watches it.
const SPARE_SECONDS: u32 = 30;

/// Returns a worker pod for a node.
#[must_use]
pub fn worker(stamp: &Stamp, policy: &Policy) -> Value {
    let settings = &policy.worker;
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": worker_name(&stamp.node.uid),
            "namespace": settings.namespace,
            "labels": Map::from_iter(names::WORKER_LABELS.map(|(key, value)| (key.to_owned(), json!(value)))),
            "annotations": stamped(stamp),
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": stamp.node.name, "uid": stamp.node.uid },
            ],
        },
        "spec": spec(stamp, policy),
    })
}

fn stamped(stamp: &Stamp) -> Value {
    json!({
        names::WORKER_NODE_ANNOTATION: stamp.node.name,
        names::WORKER_NODE_UID_ANNOTATION: stamp.node.uid,
        names::WORKER_BOOT_ANNOTATION: stamp.boot,
        names::WORKER_SERIAL_ANNOTATION: stamp.serial.to_string(),
        names::WORKER_POLICY_ANNOTATION: stamp.policy,
        names::WORKER_REQUIRES_ANNOTATION: stamp.requires,
        names::WORKER_ATTEMPT_ANNOTATION: stamp.attempt.to_string(),
        names::WORKER_PURPOSE_ANNOTATION: purpose_word(stamp.purpose),
    })
}

fn spec(stamp: &Stamp, policy: &Policy) -> Value {
    let settings = &policy.worker;
    let on_its_node = json!([{ "key": "metadata.name", "operator": "In", "values": [stamp.node.name] }]);
    let deadline = settings.pending_timeout_seconds + settings.timeout_seconds + SPARE_SECONDS;
    let mut spec = json!({
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account_name,
        "enableServiceLinks": false,
        "activeDeadlineSeconds": deadline,
        "terminationGracePeriodSeconds": 1,
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchFields": on_its_node }],
        } } },
        "tolerations": tolerations(policy),
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container(stamp, policy)],
    });
    if settings.placement == Placement::Direct {
        spec["nodeName"] = json!(stamp.node.name);
    }
    if !settings.priority_class_name.is_empty() {
        spec["priorityClassName"] = json!(settings.priority_class_name);
    }
    let secrets: Vec<Value> =
        settings.image.pull_secrets.iter().map(|name| json!({ "name": name })).collect();
    let own_checks: Vec<Value> = settings.init_containers.iter().map(|own| json!(hardened(own))).collect();
    for (field, list) in [
        ("imagePullSecrets", secrets),
        ("initContainers", own_checks),
        ("volumes", settings.volumes.iter().map(|volume| json!(volume)).collect()),
    ] {
        if !list.is_empty() {
            spec[field] = Value::Array(list);
        }
    }
    spec
}

/// Tolerates all gates by key alone: a worker must not be evicted by the taint that its result removes.
fn tolerations(policy: &Policy) -> Vec<Value> {
    let keys = policy.taints().map(|taint| taint.key.as_str()).chain(TOLERATED);
    keys.map(|key| json!({ "key": key, "operator": "Exists" }))
        .chain(policy.worker.tolerations.iter().map(|own| json!(own)))
        .collect()
}

fn container(stamp: &Stamp, policy: &Policy) -> Value {
    let settings = &policy.worker;
    let tag = match settings.image.tag.as_str() {
        "" => knr_core::VERSION,
        tag => tag,
    };
    let plan = serde_json::to_string(&settings.check_plan()).unwrap_or_default();
    let mut container = json!({
        "name": names::WORKER_CONTAINER,
        "image": format!("{}:{tag}", settings.image.repository),
        "imagePullPolicy": settings.image.pull_policy,
        "env": [
            { "name": names::NODE_NAME_VARIABLE, "value": stamp.node.name },
            { "name": names::CHECKS_VARIABLE, "value": plan },
        ],
        "resources": settings.resources,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": security_context(),
    });
    if settings.command.is_empty() {
        container["args"] = json!(["worker"]);
    } else {
        container["command"] = json!(settings.command);
    }
    if !settings.volume_mounts.is_empty() {
        container["volumeMounts"] = json!(settings.volume_mounts);
    }
    container
}

/// Returns a container of the user, hardened where the user has not set anything.
fn hardened(own: &RawObject) -> RawObject {
    let mut container = own.clone();
    container.entry("securityContext").or_insert_with(security_context);
    container.entry("terminationMessagePolicy").or_insert_with(|| json!("FallbackToLogsOnError"));
    container
}

fn security_context() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use knr_core::ids::NodeRef;
    use knr_core::view::Purpose;

    use knr_core::config::Config;

    use super::*;

    fn stamp() -> Stamp {
        Stamp {
            node: NodeRef { name: format!("n{}", "x".repeat(252)).into(), uid: "u1".into() },
            boot: "b1".into(),
            serial: 3,
            attempt: 2,
            purpose: Purpose::Verify,
            policy: "default".into(),
            requires: "abc".into(),
        }
    }

    fn pod(yaml: &str) -> Pod {
        serde_json::from_value(worker(&stamp(), &Policy::from(&Config::parse(yaml).unwrap()))).unwrap()
    }

    #[test]
    fn a_worker_is_pinned_to_its_node_and_goes_with_it() {
        let pod = pod("");
        let name = pod.metadata.name.unwrap();
        assert!(name.len() <= 63, "{name}");
        let owner = &pod.metadata.owner_references.unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Node", "u1"));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.node_name.unwrap().len(), 253);
        assert!(spec.affinity.unwrap().node_affinity.is_some());
        assert!(self::pod("worker: {placement: scheduler}").spec.unwrap().node_name.is_none());
    }

    #[test]
    fn its_stamp_is_read_back() {
        let pod = worker(&stamp(), &Policy::from(&Config::default()));
        let seen: crate::observe::SlimWorker = serde_json::from_value(pod).unwrap();
        assert_eq!(seen.view().unwrap().stamp, stamp());
    }

    #[test]
    fn a_worker_is_restricted() {
        let spec = pod("worker: {initContainers: [{name: own, image: x}]}").spec.unwrap();
        let context = spec.security_context.unwrap();
        assert_eq!(context.run_as_non_root, Some(true));
        assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
        for container in spec.containers.iter().chain(spec.init_containers.as_ref().unwrap()) {
            let context = container.security_context.as_ref().unwrap();
            assert_eq!(context.allow_privilege_escalation, Some(false), "{}", container.name);
            assert_eq!(context.capabilities.as_ref().unwrap().drop.as_ref().unwrap(), &["ALL"]);
        }
    }

    #[test]
    fn what_the_user_says_of_a_container_stands() {
        let yaml = "worker: {initContainers: [{name: own, image: x, securityContext: {privileged: true}}]}";
        let spec = pod(yaml).spec.unwrap();
        let own = spec.init_containers.unwrap().remove(0).security_context.unwrap();
        assert_eq!((own.privileged, own.capabilities), (Some(true), None));
    }

    #[test]
    fn volumes_are_mounted_where_the_user_says() {
        let yaml = "worker: {volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}]}";
        let spec = pod(yaml).spec.unwrap();
        assert_eq!(spec.volumes.unwrap()[0].name, "v");
        assert_eq!(spec.containers[0].volume_mounts.as_ref().unwrap()[0].mount_path, "/v");
    }

    #[test]
    fn every_gate_is_tolerated() {
        let yaml = "gates: [{name: a, taint: {key: example.com/a, effect: NoExecute}}]";
        let tolerations = pod(yaml).spec.unwrap().tolerations.unwrap();
        for key in ["node-ready/unverified", "example.com/a", "node.kubernetes.io/not-ready"] {
            let found = tolerations.iter().find(|it| it.key.as_deref() == Some(key)).unwrap();
            assert_eq!((found.operator.as_deref(), found.effect.as_deref()), (Some("Exists"), None));
        }
    }

    #[test]
    fn any_image_can_be_the_worker() {
        let own = pod("worker: {image: {repository: example.com/own, tag: '1'}, command: [/check, --fast]}");
        let container = &own.spec.unwrap().containers[0];
        assert_eq!(container.image.as_deref(), Some("example.com/own:1"));
        assert_eq!(container.command.as_ref().unwrap(), &["/check", "--fast"]);
        assert_eq!(container.args, None);
        let ours = pod("");
        let container = &ours.spec.unwrap().containers[0];
        assert_eq!(container.args.as_ref().unwrap(), &["worker"]);
        assert!(container.image.as_ref().unwrap().ends_with(&format!(":{}", knr_core::VERSION)));
    }
}

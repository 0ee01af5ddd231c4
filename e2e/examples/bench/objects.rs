//! Nodes and pods as the bench creates them.

use knr_core::config::Config;
use knr_core::ids::NodeRef;
use knr_core::names;
use knr_core::policy::Policy;
use knr_core::report::{CheckOutcome, CheckResult, Report};
use knr_core::view::{Purpose, Stamp};
use serde_json::{Map, Value, json};

/// The namespace of the workers and of the product's lease.
pub(crate) const NAMESPACE: &str = "bench";
const IMAGES: usize = 25;

/// The namespace, with the service account that worker pods need.
pub(crate) fn setting() -> String {
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } },
        { "apiVersion": "v1", "kind": "ServiceAccount",
          "metadata": { "name": "kube-node-ready-worker", "namespace": NAMESPACE } },
    ]})
    .to_string()
}

/// The taint of the gate.
pub(crate) fn gate() -> Value {
    json!({ "key": names::UNVERIFIED_TAINT, "value": names::UNVERIFIED_VALUE, "effect": "NoSchedule" })
}

pub(crate) fn boot_id(number: usize) -> String {
    format!("6f1c9f6e-0b7d-4f0c-9e51-{number:012x}")
}

pub(crate) fn node_name(number: usize) -> String {
    format!("ip-10-{}-{}-{}.ec2.internal", number / 65536, number / 256 % 256, number % 256)
}

/// A node as large as those of a cloud provider, 12 kB: with images, volumes and system information.
pub(crate) fn node(number: usize) -> Value {
    let name = node_name(number);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": labels(&name, number), "annotations": annotations(number) },
        "spec": {
            "providerID": format!("aws:///eu-central-1a/i-0{number:016x}"),
            "podCIDR": format!("10.{}.{}.0/24", 128 + number / 256, number % 256),
            "taints": [gate()],
        },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256) },
                { "type": "InternalDNS", "address": name }, { "type": "Hostname", "address": name },
            ],
            "capacity": { "cpu": "16", "memory": "64752000Ki", "pods": "110", "ephemeral-storage": "104845292Ki",
                          "hugepages-1Gi": "0", "hugepages-2Mi": "0" },
            "allocatable": { "cpu": "15890m", "memory": "61843936Ki", "pods": "110", "ephemeral-storage": "95551679124",
                             "hugepages-1Gi": "0", "hugepages-2Mi": "0" },
            "images": images(),
            "nodeInfo": {
                "machineID": format!("ec2{number:029x}"), "systemUUID": format!("ec2{number:05x}-1d7b-9a3f-2c44-9d0e6b1f2a3c"),
                "bootID": boot_id(number), "kernelVersion": "6.12.40-63.114.amzn2023.x86_64",
                "osImage": "Amazon Linux 2023.9", "containerRuntimeVersion": "containerd://2.2.1",
                "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

fn labels(name: &str, number: usize) -> Value {
    json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/instance-type": "m7i.4xlarge", "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m7i.4xlarge", "k8s.io/cloud-provider-aws": "5f2c1a0b9d8e7f6a5b4c3d2e1f0a9b8c",
        "failure-domain.beta.kubernetes.io/region": "eu-central-1", "failure-domain.beta.kubernetes.io/zone": "eu-central-1a",
        "topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": "eu-central-1a",
        "topology.k8s.aws/zone-id": "euc1-az2", "topology.ebs.csi.aws.com/zone": "eu-central-1a",
        "eks.amazonaws.com/capacityType": "ON_DEMAND", "eks.amazonaws.com/nodegroup": "general-purpose-workers",
        "eks.amazonaws.com/nodegroup-image": "ami-0c4f7a9b3e2d1f5a8", "eks.amazonaws.com/sourceLaunchTemplateVersion": "17",
        "eks.amazonaws.com/sourceLaunchTemplateId": "lt-0a1b2c3d4e5f6a7b8", "team.example.com/owner": "platform",
        "team.example.com/rack": format!("rack-{}", number % 40),
    })
}

fn annotations(number: usize) -> Value {
    json!({
        "kwok.x-k8s.io/node": "fake",
        "alpha.kubernetes.io/provided-node-ip": format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256),
        "node.alpha.kubernetes.io/ttl": "15",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "csi.volume.kubernetes.io/nodeid":
            format!("{{\"ebs.csi.aws.com\":\"i-0{number:016x}\",\"efs.csi.aws.com\":\"i-0{number:016x}\"}}"),
        "projectcalico.org/IPv4Address": format!("10.{}.{}.{}/19", number / 65536, number / 256 % 256, number % 256),
        "projectcalico.org/IPv4IPIPTunnelAddr": format!("192.168.{}.{}", number / 256, number % 256),
    })
}

fn images() -> Vec<Value> {
    (0..IMAGES)
        .map(|number| {
            let name = format!("602401143452.dkr.ecr.eu-central-1.amazonaws.com/team/service-{number:02}");
            let digest = format!("{number:02x}").repeat(32);
            json!({ "names": [format!("{name}@sha256:{digest}"), format!("{name}:v1.{number}.3")],
                    "sizeBytes": 48_234_112 + number * 1_048_576 })
        })
        .collect()
}

/// Resets a node to what it was when it joined: with the gate, and without any trace of a verdict.
pub(crate) fn reset() -> Value {
    json!({
        "metadata": {
            "labels": { names::VERIFIED_LABEL: null },
            "annotations": { names::STATE_ANNOTATION: null },
        },
        "spec": { "taints": [gate()] },
    })
}

/// The same for its status.
pub(crate) fn reset_status() -> Value {
    json!({ "status": { "conditions": [{ "type": names::CONDITION, "$patch": "delete" }] } })
}

/// The first worker that the product would create for this node.
pub(crate) fn worker(name: &str, uid: &str, boot: &str, config: &Config) -> Value {
    let node = NodeRef { name: name.into(), uid: uid.into() };
    let stamp = Stamp {
        node,
        boot: boot.into(),
        serial: 1,
        attempt: 1,
        purpose: Purpose::Verify,
        policy: "default".into(),
        requires: "".into(),
    };
    knr_k8s::objects::worker(&stamp, &Policy::from(config))
}

/// The status that a kubelet reports for a worker that passed.
pub(crate) fn end_of_worker() -> Value {
    let at = "2026-01-01T00:00:00Z";
    json!({ "status": { "phase": "Succeeded", "containerStatuses": [{
        "name": names::WORKER_CONTAINER, "image": "bench", "imageID": "", "ready": false, "started": false, "restartCount": 0,
        "state": { "terminated": {
            "exitCode": 0, "reason": "Completed", "message": message(), "startedAt": at, "finishedAt": at,
        }},
    }]}})
}

fn message() -> String {
    let passed = |name: &str, millis, note: &str| CheckResult {
        name: name.to_owned(),
        outcome: CheckOutcome::Pass,
        millis,
        note: note.to_owned(),
    };
    let checks = vec![
        passed("dns", 4, "kubernetes.default.svc.cluster.local is 10.96.0.1, from 10.96.0.10"),
        passed("kubernetes", 12, "v1.36.3 at 10.96.0.1:443"),
        passed("network", 9, "3 peers answer"),
        passed("services", 3, "kube-system/kube-dns at 10.96.0.10:53"),
    ];
    serde_json::to_string(&Report { checks, ..Report::default() }).unwrap_or_default()
}

/// A pod that makes one DNS query and nothing else. Like a worker, it tolerates the gate.
pub(crate) fn bare_pod(node: &str) -> Value {
    let labels = Map::from_iter([("bench".to_owned(), json!("bare"))]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("bare-{node}"), "namespace": NAMESPACE, "labels": labels },
        "spec": {
            "nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": "query", "image": lab::PROBE_IMAGE, "imagePullPolicy": "Never",
                "args": ["dns", "kubernetes.default.svc.cluster.local"],
            }],
        },
    })
}

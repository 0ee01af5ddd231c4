//! The `worker` section.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::checks::{BuiltInCheck, CheckPlan, CheckSpec};
use super::format;
use super::nodes::Effect;

/// A Kubernetes object that is passed on as written. Its fields are known only to the API server.
pub type RawObject = serde_json::Map<String, serde_json::Value>;

/// The worker: the pod that runs the checks on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Worker {
    /// The image of the worker.
    pub image: Image,
    /// Namespace in which workers run.
    #[schemars(regex(pattern = format::DNS_LABEL.pattern))]
    pub namespace: String,
    /// Service account of the worker. It needs only the permissions that the checks need.
    #[schemars(regex(pattern = format::DNS_SUBDOMAIN.pattern))]
    pub service_account_name: String,
    /// Timeout in seconds for all checks of a worker together. A worker that takes longer has failed.
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: u32,
    /// Seconds for which a worker may stay pending once its node is Ready, while its image is pulled and its network is
    /// set up. After that, the run counts as failed.
    #[schemars(range(min = 1, max = 3600))]
    pub pending_timeout_seconds: u32,
    /// Timeout in seconds for a single try of a check. Not more than `timeoutSeconds`.
    #[schemars(range(min = 1, max = 3600))]
    pub check_timeout_seconds: u32,
    /// How often a failed check is retried before the worker reports the failure.
    #[schemars(range(min = 0, max = 10))]
    pub retries: u32,
    /// DNS names or IP addresses that the DNS check looks up. All of them must succeed.
    #[schemars(length(min = 1), inner(regex(pattern = format::DOMAIN_OR_ADDRESS.pattern)))]
    pub dns_test_domains: Vec<String>,
    /// Whether the network check also connects directly to the pods behind a Service, not only to the Service.
    pub connectivity_matrix: bool,
    /// Services as `namespace/name`. The network check connects to their pods, the services check to their
    /// addresses.
    #[schemars(inner(regex(pattern = format::NAMESPACED_NAME.pattern)))]
    pub services: Vec<String>,
    /// Built-in checks that are not run.
    pub skip_checks: Vec<BuiltInCheck>,
    /// Additional checks. Each has a name and exactly one of `tcp`, `http`, `file` and `mtu`.
    pub checks: Vec<CheckSpec>,
    /// How a worker gets onto its node.
    pub placement: Placement,
    /// Priority class of the worker. Empty: the default of the cluster.
    #[schemars(regex(pattern = format::DNS_SUBDOMAIN_OR_EMPTY.pattern))]
    pub priority_class_name: String,
    /// Taints that the worker tolerates in addition to those of the gates, in the form used in pods.
    pub tolerations: Vec<Toleration>,
    /// Resource requests and limits of the worker.
    pub resources: Resources,
    /// Checks of your own: Kubernetes containers that run before the built-in checks, in this order. One that
    /// fails makes the node fail. Each needs a `name` and an `image`.
    #[schemars(schema_with = "containers")]
    pub init_containers: Vec<RawObject>,
    /// Kubernetes volumes for the init containers and for `volumeMounts`. Each needs a `name`.
    #[schemars(schema_with = "volumes")]
    pub volumes: Vec<RawObject>,
    /// Kubernetes volume mounts of the worker's own container, for checks of the kind `file`. Each needs the
    /// `name` of a volume and a `mountPath`.
    #[schemars(schema_with = "volume_mounts")]
    pub volume_mounts: Vec<RawObject>,
    /// Command of the worker, for an image of your own: exit code 0 is a pass. Empty: the built-in checks.
    pub command: Vec<String>,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            image: Image::default(),
            namespace: "kube-system".to_owned(),
            service_account_name: "kube-node-ready-worker".to_owned(),
            timeout_seconds: 300,
            pending_timeout_seconds: 120,
            check_timeout_seconds: 10,
            retries: 2,
            dns_test_domains: vec!["kubernetes.default.svc.cluster.local".to_owned()],
            connectivity_matrix: true,
            services: vec!["kube-system/kube-dns".to_owned()],
            skip_checks: Vec::new(),
            checks: Vec::new(),
            placement: Placement::Direct,
            priority_class_name: String::new(),
            tolerations: Vec::new(),
            resources: Resources::default(),
            init_containers: Vec::new(),
            volumes: Vec::new(),
            volume_mounts: Vec::new(),
            command: Vec::new(),
        }
    }
}

impl Worker {
    /// The timeout of all checks of a worker together.
    #[must_use]
    pub fn timeout(&self) -> SignedDuration {
        SignedDuration::from_secs(self.timeout_seconds.into())
    }

    /// The time within which a running worker must have ended. The pod itself carries the deadline of the checks. Ten
    /// seconds are added for the kubelet to enforce it.
    #[must_use]
    pub fn runs_within(&self) -> SignedDuration {
        self.timeout() + SignedDuration::from_secs(10)
    }

    /// How long a worker may stay pending.
    #[must_use]
    pub fn pending_timeout(&self) -> SignedDuration {
        SignedDuration::from_secs(self.pending_timeout_seconds.into())
    }

    /// How long one check may take.
    #[must_use]
    pub fn check_timeout(&self) -> SignedDuration {
        SignedDuration::from_secs(self.check_timeout_seconds.into())
    }

    /// The part of the settings that the worker itself needs.
    #[must_use]
    pub fn check_plan(&self) -> CheckPlan {
        CheckPlan {
            timeout_seconds: self.timeout_seconds,
            check_timeout_seconds: self.check_timeout_seconds,
            retries: self.retries,
            dns_test_domains: self.dns_test_domains.clone(),
            connectivity_matrix: self.connectivity_matrix,
            services: self.services.clone(),
            skip_checks: self.skip_checks.clone(),
            checks: self.checks.clone(),
        }
    }
}

fn containers(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": { "type": "string", "pattern": format::DNS_LABEL.pattern },
                "image": { "type": "string", "minLength": 1 },
            },
            "required": ["name", "image"],
        },
    })
}

fn volumes(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": { "name": { "type": "string", "pattern": format::DNS_LABEL.pattern } },
            "required": ["name"],
        },
    })
}

fn volume_mounts(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": { "type": "string", "pattern": format::DNS_LABEL.pattern },
                "mountPath": { "type": "string", "pattern": format::ABSOLUTE_PATH.pattern },
            },
            "required": ["name", "mountPath"],
        },
    })
}

/// The image of the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Image {
    /// Registry and name of the image, without a tag.
    #[schemars(regex(pattern = format::IMAGE_REPOSITORY.pattern))]
    pub repository: String,
    /// Tag of the image, with or without a digest: `1.2.0` or `1.2.0@sha256:…`. Empty: the version of the
    /// controller.
    #[schemars(regex(pattern = format::IMAGE_TAG_OR_EMPTY.pattern))]
    pub tag: String,
    /// When the kubelet pulls the image.
    pub pull_policy: PullPolicy,
    /// Names of the secrets, in the namespace of the worker, with which the image is pulled.
    #[schemars(inner(regex(pattern = format::DNS_SUBDOMAIN.pattern)))]
    pub pull_secrets: Vec<String>,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            repository: "ghcr.io/kube-node-ready/kube-node-ready".to_owned(),
            tag: String::new(),
            pull_policy: PullPolicy::IfNotPresent,
            pull_secrets: Vec::new(),
        }
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Only if the node does not have it.
    IfNotPresent,
    /// At every start.
    Always,
    /// Never: the node must already have it.
    Never,
}

/// How a worker gets onto its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// The controller sets the node name in the pod. Works even on a node that the scheduler avoids.
    Direct,
    /// The scheduler places the pod, by a node affinity. Respects the resources that are free on the node.
    Scheduler,
}

/// Resource requests and limits of the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// Kubernetes quantities that the worker requests, by resource.
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, String>,
    /// Kubernetes quantities that the worker may not exceed, by resource. There is no `cpu` limit by default, because a
    /// throttled check could fail on a healthy node.
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, String>,
}

impl Default for Resources {
    fn default() -> Self {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        Self { requests: map(&[("cpu", "50m"), ("memory", "64Mi")]), limits: map(&[("memory", "128Mi")]) }
    }
}

fn quantities(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "pattern": format::QUANTITY.pattern },
    })
}

/// A taint that the worker tolerates. The fields mean the same as in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Toleration {
    /// Key of the taint. If absent, `operator` must be `Exists`, and every taint is tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = format::LABEL_KEY.pattern))]
    pub key: Option<String>,
    /// How `value` is compared. If absent: `Equal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint, for `Equal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = format::LABEL_VALUE.pattern))]
    pub value: Option<String>,
    /// Effect of the taint. If absent: every effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Seconds for which a `NoExecute` taint is tolerated. If absent: indefinitely.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub toleration_seconds: Option<u32>,
}

/// How the value of a toleration is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// The values are equal.
    Equal,
    /// Any value.
    Exists,
}

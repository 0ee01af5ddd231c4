//! The `nodeManagement` and `gates` sections.

use std::fmt;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format;
use super::selector::Selector;
use crate::names;

/// Which nodes are gated, by which taints, and what happens to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeManagement {
    /// Whether a failed node is deleted after a fair trial, so that its autoscaler replaces it. Limited by
    /// `limits.deletion`.
    pub delete_failed_nodes: bool,
    /// The taints of the verification gate. They stay on a node until its checks have passed.
    #[schemars(length(min = 1))]
    pub taints: Vec<Taint>,
    /// Label that is set on a node when its checks have passed.
    pub verified_label: Label,
    /// What happens when a verified node comes back with another boot ID.
    pub on_reboot: OnReboot,
    /// Whether nodes that never had the gate, and run nothing but DaemonSet pods, are also closed and checked. Not allowed
    /// together with a `NoExecute` taint, which would evict pods that are scheduled there at that moment.
    pub backfill: bool,
    /// Label selectors in kubectl's syntax. A node that matches any of them is left alone.
    pub exclude: Vec<Selector>,
    /// Whether control plane nodes are also gated.
    pub include_control_plane: bool,
    /// Names of startup gates that must be open before the verification gate may open.
    #[schemars(inner(regex(pattern = format::DNS_LABEL.pattern)))]
    pub after: Vec<String>,
}

impl Default for NodeManagement {
    fn default() -> Self {
        Self {
            delete_failed_nodes: false,
            taints: vec![Taint {
                key: names::UNVERIFIED_TAINT.to_owned(),
                value: names::UNVERIFIED_VALUE.to_owned(),
                effect: Effect::NoSchedule,
            }],
            verified_label: Label::default(),
            on_reboot: OnReboot::Verify,
            backfill: false,
            exclude: vec![Selector::equals("kubernetes.azure.com/mode", "system")],
            include_control_plane: false,
            after: Vec::new(),
        }
    }
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taint {
    /// Key of the taint.
    #[schemars(regex(pattern = format::LABEL_KEY.pattern))]
    pub key: String,
    /// Value of the taint.
    #[serde(default)]
    #[schemars(regex(pattern = format::LABEL_VALUE.pattern))]
    pub value: String,
    /// What the taint does to pods that do not tolerate it.
    pub effect: Effect,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:{}", self.key, self.value, self.effect)
    }
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Effect {
    /// Such pods are not scheduled onto the node.
    NoSchedule,
    /// The scheduler avoids the node for such pods.
    PreferNoSchedule,
    /// Such pods are not scheduled onto the node, and those that run there are evicted.
    NoExecute,
}

impl Effect {
    /// The word Kubernetes uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Label {
    /// Key of the label.
    #[schemars(regex(pattern = format::LABEL_KEY.pattern))]
    pub key: String,
    /// Value of the label.
    #[schemars(regex(pattern = format::LABEL_VALUE.pattern))]
    pub value: String,
}

impl Default for Label {
    fn default() -> Self {
        Self { key: names::VERIFIED_LABEL.to_owned(), value: names::VERIFIED_VALUE.to_owned() }
    }
}

/// What happens when a verified node comes back with another boot ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnReboot {
    /// It stays open while it is checked again, and is closed if it fails.
    Verify,
    /// It is closed first and checked again. While the cluster is suspected, or too many nodes are closed
    /// (`limits.deletion.maxFailingPercent`), it stays open and is checked as with `verify`.
    Close,
    /// Nothing.
    Ignore,
}

/// A startup gate: a taint that stays on a node until the init pods on that node are ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StartupGate {
    /// Name of the gate, for `after`, metrics and messages. It must be unique, and must not be `verification`.
    #[schemars(regex(pattern = format::DNS_LABEL.pattern))]
    pub name: String,
    /// The taint that is removed when the gate opens.
    pub taint: Taint,
    /// Namespaces in which init pods are looked for. Pods elsewhere cannot open the gate.
    #[schemars(length(min = 1), inner(regex(pattern = format::DNS_LABEL.pattern)))]
    pub namespaces: Vec<String>,
    /// Label selector of the init pods, in kubectl's syntax.
    pub pod_selector: Selector,
    /// Annotation with which an init pod reports that it is done; its value is then `true`.
    #[schemars(regex(pattern = format::LABEL_KEY.pattern))]
    pub ready_annotation: String,
    /// Whether only the annotation counts, and not the readiness of the pod.
    pub annotation_only: bool,
    /// Minimum number of seconds for which the gate stays closed, even if its init pods are ready sooner.
    #[schemars(range(min = 0, max = 86400))]
    pub minimum_hold_seconds: u32,
    /// Annotation that is set on the node when the gate opens; its value is the time in Unix seconds.
    #[schemars(regex(pattern = format::LABEL_KEY.pattern))]
    pub completed_annotation: String,
    /// Names of gates that must be open before this one may open, including `verification`. If absent: the gate listed
    /// before this one. If empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(inner(regex(pattern = format::DNS_LABEL.pattern)))]
    pub after: Option<Vec<String>>,
}

impl Default for StartupGate {
    fn default() -> Self {
        Self {
            name: "startup".to_owned(),
            taint: Taint {
                key: names::STARTUP_TAINT.to_owned(),
                value: names::STARTUP_VALUE.to_owned(),
                effect: Effect::NoSchedule,
            },
            namespaces: vec!["kube-system".to_owned()],
            pod_selector: Selector::equals(names::INIT_POD_LABEL, names::INIT_POD_VALUE),
            ready_annotation: names::READY_ANNOTATION.to_owned(),
            annotation_only: false,
            minimum_hold_seconds: 0,
            completed_annotation: names::COMPLETED_ANNOTATION.to_owned(),
            after: None,
        }
    }
}

impl StartupGate {
    /// The minimum time for which the gate stays closed.
    #[must_use]
    pub fn minimum_hold(&self) -> SignedDuration {
        SignedDuration::from_secs(self.minimum_hold_seconds.into())
    }
}

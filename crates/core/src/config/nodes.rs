//! The `nodeManagement` and `gates` sections.

use std::fmt;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format;
use super::selector::Selector;
use crate::names;

/// Which nodes are gated, by what, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeManagement {
    /// Whether a failed node is deleted, so that its autoscaler replaces it. Bounded by `limits.deletion`.
    pub delete_failed_nodes: bool,
    /// The taints of the verification gate. They stay on a node until its checks have passed.
    #[schemars(length(min = 1))]
    pub taints: Vec<Taint>,
    /// Label that a node gets when its checks have passed.
    pub verified_label: Label,
    /// What happens when a verified node comes back with another boot ID.
    pub on_reboot: OnReboot,
    /// Whether nodes that never had the gate and run no pods of users are closed and checked, too. Not allowed together with
    /// a `NoExecute` taint, which would evict pods that are scheduled there at that moment.
    pub backfill: bool,
    /// Label selectors as kubectl takes them. A node that matches any of them is left alone.
    pub exclude: Vec<Selector>,
    /// Whether control plane nodes are gated, too.
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
    /// It is checked again and stays open meanwhile; it is closed if the checks fail.
    Verify,
    /// It is closed at once and checked again.
    Close,
    /// Nothing.
    Ignore,
}

/// A startup gate: a taint that stays on a node until the init pods on that node are ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StartupGate {
    /// Name of the gate, for `after`, metrics and messages. No other gate has it, and it is not `verification`.
    #[schemars(regex(pattern = format::DNS_LABEL.pattern))]
    pub name: String,
    /// The taint that goes when the gate opens.
    pub taint: Taint,
    /// Namespaces in which init pods are looked for. Pods elsewhere cannot open the gate.
    #[schemars(length(min = 1), inner(regex(pattern = format::DNS_LABEL.pattern)))]
    pub namespaces: Vec<String>,
    /// Label selector, as kubectl takes it, of the init pods.
    pub pod_selector: Selector,
    /// Annotation by which an init pod says, with the value `true`, that it is done.
    #[schemars(regex(pattern = format::LABEL_KEY.pattern))]
    pub ready_annotation: String,
    /// Whether only the annotation counts, and not the readiness of the pod.
    pub annotation_only: bool,
    /// Seconds the gate stays closed at least, even if its init pods are ready sooner.
    #[schemars(range(min = 0, max = 86400))]
    pub minimum_hold_seconds: u32,
    /// Annotation put on the node when the gate opens; its value is the time in unix seconds.
    #[schemars(regex(pattern = format::LABEL_KEY.pattern))]
    pub completed_annotation: String,
    /// Names of gates that must be open before this one may open; `verification` may be among them. Absent: the
    /// gate listed before this one. An empty list: none.
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
    /// How long the gate stays closed at least.
    #[must_use]
    pub fn minimum_hold(&self) -> SignedDuration {
        SignedDuration::from_secs(self.minimum_hold_seconds.into())
    }
}

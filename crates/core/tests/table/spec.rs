//! What can be written in a case. Everything that is left out has a sensible default; a misspelt key is an error.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A case, or a further step of one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Scene {
    /// The promise that is kept; on a step, what happens.
    pub(crate) name: Option<String>,
    /// The time; 10:00:30 unless told otherwise, on a step that of the step before.
    pub(super) now: Option<String>,
    /// The configuration, where it differs from the default.
    pub(super) config: Option<Value>,
    /// Who applies the rules.
    #[serde(default)]
    pub(super) mode: ModeSpec,
    /// Whether this replica leads; yes unless told otherwise.
    pub(super) lead: Option<bool>,
    /// All this was there before we came. Otherwise we saw it come.
    #[serde(default)]
    pub(super) found: bool,
    /// Kinds of objects that have not been listed yet: nodes, workers, pods, pools, ledger.
    #[serde(default)]
    pub(super) unlisted: Vec<String>,
    pub(super) node: Option<NodeSpec>,
    #[serde(default)]
    pub(super) nodes: Vec<NodeSpec>,
    pub(super) worker: Option<WorkerSpec>,
    #[serde(default)]
    pub(super) workers: Vec<WorkerSpec>,
    /// Init pods.
    pub(super) pod: Option<PodSpec>,
    #[serde(default)]
    pub(super) pods: Vec<PodSpec>,
    /// Karpenter's `NodePool`s and the startup taints they list.
    pub(super) pools: Option<BTreeMap<String, Vec<String>>>,
    /// Reserved deletions: node and time.
    pub(super) ledger: Option<BTreeMap<String, String>>,
    /// What runs on a node: `idle`, or a pod.
    #[serde(default)]
    pub(super) occupancy: BTreeMap<String, String>,
    /// What disappears: `node n1`, `worker n1`, `pod init`.
    #[serde(default)]
    pub(super) gone: Vec<String>,
    /// The changes of this step happen before the orders are carried out, and no watch has told of them yet.
    #[serde(default)]
    pub(super) unseen: bool,
    /// What comes of the orders given so far.
    pub(super) answer: Option<Answer>,
    /// Only the orders for these nodes are answered.
    #[serde(default)]
    pub(super) answer_for: Vec<String>,
    /// Only so many orders are answered, those that were given first.
    pub(super) answer_oldest: Option<usize>,
    /// Verified nodes on which the checks failed again and again.
    #[serde(default)]
    pub(super) unsound: Vec<String>,
    /// Of these, the ones on which they pass again.
    #[serde(default)]
    pub(super) sound: Vec<String>,
    /// Nodes that are read afresh, with their workers.
    #[serde(default)]
    pub(super) read: Vec<String>,
    /// Everything is listed again.
    #[serde(default)]
    pub(super) relist: bool,
    pub(super) expect: Option<Expect>,
    /// What happens next.
    #[serde(default)]
    pub(super) then: Vec<Scene>,
}

/// A controller, or a pod on the node itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ModeSpec {
    #[default]
    Controller,
    DaemonSet,
}

/// `done`, `done, but nobody heard`, `conflict`, `unavailable`, `unknown`, or the reason of a refusal.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Word(String),
    Refused { refused: String },
}

/// A node. On a later step, what is told replaces what was.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct NodeSpec {
    pub(super) name: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) boot: Option<String>,
    pub(super) created: Option<String>,
    /// `key=value:Effect`, a gate's key alone, or a whole object.
    pub(super) taints: Option<Vec<Value>>,
    /// `key=value`.
    pub(super) labels: Option<Vec<String>>,
    /// Null removes one.
    pub(super) annotations: BTreeMap<String, Option<String>>,
    /// What the node carries, or `none`.
    pub(super) state: Option<StateSpec>,
    /// `verified on attempt 1`, or a whole condition.
    pub(super) condition: Option<ConditionSpec>,
    /// A node is Ready unless it says otherwise.
    pub(super) ready: Option<bool>,
    pub(super) leaving: Option<bool>,
    pub(super) claim: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum StateSpec {
    Word(String),
    Kept(Box<KeptSpec>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct KeptSpec {
    pub(super) phase: String,
    pub(super) uid: Option<String>,
    pub(super) boot: Option<String>,
    pub(super) serial: Option<u32>,
    pub(super) attempt: Option<u32>,
    #[serde(default)]
    pub(super) inconclusive: u32,
    pub(super) at: Option<String>,
    pub(super) next_try: Option<String>,
    pub(super) cause: Option<String>,
    pub(super) reason: Option<String>,
    /// `pass` or `fail`, and when: `pass 10:00:00`.
    pub(super) reference: Option<String>,
    /// Whose fault the last run without cost was.
    pub(super) blame: Option<knr_core::fault::Blame>,
    #[serde(default)]
    pub(super) stays_open: bool,
    /// Where the checks passed meanwhile, and when: `n2 10:00:00`.
    pub(super) compared: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ConditionSpec {
    Verified(String),
    Whole { status: String, reason: String, message: String },
}

/// A worker. On a later step, what is told replaces what was.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct WorkerSpec {
    /// The node, `n1` or `n1/uid`.
    #[serde(rename = "for")]
    pub(super) node: Option<String>,
    /// Where it ran; its node unless told otherwise.
    pub(super) host: Option<String>,
    pub(super) boot: Option<String>,
    pub(super) serial: Option<u32>,
    pub(super) attempt: Option<u32>,
    pub(super) reference: Option<bool>,
    /// `pending`, `pending: why` or `running`.
    pub(super) is: Option<String>,
    /// `pass`, `fail`, `evicted`, `deadline`, or an exit code and a message.
    pub(super) finished: Option<Finish>,
    pub(super) leaving: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Finish {
    Word(String),
    Exit { exit: i32, says: String },
}

/// An init pod. On a later step, what is told replaces what was.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) on: Option<String>,
    pub(super) created: Option<String>,
    pub(super) labels: Option<Vec<String>>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
    pub(super) ready: Option<bool>,
    pub(super) containers: Option<String>,
    pub(super) leaving: Option<bool>,
}

/// What must be. What is left out of `do`, `withhold` and `ask` must not be there at all; re-reading everything once
/// an interval goes without saying.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Expect {
    #[serde(default, rename = "do")]
    pub(super) orders: Vec<String>,
    #[serde(default)]
    pub(super) withhold: Vec<String>,
    pub(super) ask: Option<Vec<String>>,
    /// The sentence for the first node of the case, or for each of several; null: none.
    pub(super) say: Option<Say>,
    pub(super) phase: Option<String>,
    /// When to decide again: a time, or `never`.
    pub(super) wake: Option<String>,
    /// The steps of the patch of the one order.
    pub(super) patch: Option<Vec<String>>,
    /// Events that follow from the answers to orders, or from what shows that an order was carried out.
    pub(super) events: Option<Vec<String>>,
    /// The taints of the first node, by key.
    pub(super) taints: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Say {
    One(String),
    Each(BTreeMap<String, Option<String>>),
}

//! The format of a case. Every omitted key has a sensible default; a misspelt key is an error.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A case, or a further step of one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Scene {
    /// The promise that the case verifies; on a step, what happens.
    pub(crate) name: Option<String>,
    /// The time. Defaults to 10:00:30; on a step, to the time of the previous step.
    pub(super) now: Option<String>,
    /// The configuration, where it differs from the default.
    pub(super) config: Option<Value>,
    /// Who applies the rules.
    #[serde(default)]
    pub(super) mode: ModeSpec,
    /// Whether this replica leads. Defaults to true; on a step, to no change.
    pub(super) lead: Option<bool>,
    /// All objects existed before this replica started. Otherwise it saw them appear.
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
    /// The occupancy of nodes: `idle`, or a pod.
    #[serde(default)]
    pub(super) occupancy: BTreeMap<String, String>,
    /// Objects that disappear: `node n1`, `worker n1`, `pod init`.
    #[serde(default)]
    pub(super) gone: Vec<String>,
    /// The changes of this step happen before the orders are carried out, and no watch has shown them yet.
    #[serde(default)]
    pub(super) unseen: bool,
    /// The answer to the orders given so far.
    pub(super) answer: Option<Answer>,
    /// Only the orders for these nodes are answered.
    #[serde(default)]
    pub(super) answer_for: Vec<String>,
    /// Only this many orders are answered, oldest first.
    pub(super) answer_oldest: Option<usize>,
    /// Verified nodes on which the checks failed repeatedly.
    #[serde(default)]
    pub(super) unsound: Vec<String>,
    /// Those of them on which the checks pass again.
    #[serde(default)]
    pub(super) sound: Vec<String>,
    /// Nodes that are read again from the API server, with their workers.
    #[serde(default)]
    pub(super) read: Vec<String>,
    /// Everything is listed again.
    #[serde(default)]
    pub(super) relist: bool,
    pub(super) expect: Option<Expect>,
    /// Further steps.
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

/// `done`, `done, but nobody heard`, `conflict`, `unavailable`, `unknown`, or the reason for a refusal.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Word(String),
    Refused { refused: String },
}

/// A node. On a later step, the given keys replace the earlier values.
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
    /// Null removes an annotation.
    pub(super) annotations: BTreeMap<String, Option<String>>,
    /// The recorded state, or `none`.
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
    /// Whose fault the last run that cost no attempt was.
    pub(super) blame: Option<knr_core::fault::Blame>,
    #[serde(default)]
    pub(super) stays_open: bool,
    /// Where the checks passed in the meantime, and when: `n2 10:00:00`.
    pub(super) passed_elsewhere: Option<String>,
    /// When the cluster was last in trouble, by the clock of an earlier leader.
    pub(super) trouble: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ConditionSpec {
    Verified(String),
    Whole { status: String, reason: String, message: String },
}

/// A worker. On a later step, the given keys replace the earlier values.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct WorkerSpec {
    /// The node, `n1` or `n1/uid`.
    #[serde(rename = "for")]
    pub(super) node: Option<String>,
    /// Where it ran. Defaults to its node.
    pub(super) host: Option<String>,
    pub(super) boot: Option<String>,
    pub(super) serial: Option<u32>,
    pub(super) attempt: Option<u32>,
    pub(super) reference: Option<bool>,
    /// `pending`, `pending: why` or `running`.
    pub(super) is: Option<String>,
    /// `pass`, `fail`, `own fault`, `evicted`, `deadline`, or an exit code and a message.
    pub(super) finished: Option<Finish>,
    pub(super) leaving: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Finish {
    Word(String),
    Exit { exit: i32, says: String },
}

/// An init pod. On a later step, the given keys replace the earlier values.
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

/// The expected result. Anything that `do`, `withhold` and `ask` do not list must not occur. Without `ask`, reading
/// everything again once per interval is allowed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Expect {
    #[serde(default, rename = "do")]
    pub(super) orders: Vec<String>,
    #[serde(default)]
    pub(super) withhold: Vec<String>,
    pub(super) ask: Option<Vec<String>>,
    /// The sentence for the first node of the case, or for each of several. Null means none.
    pub(super) say: Option<Say>,
    pub(super) phase: Option<String>,
    /// When to decide again: a time, or `never`.
    pub(super) wake: Option<String>,
    /// The operations of the patch of the first order.
    pub(super) patch: Option<Vec<String>>,
    /// Events that result from the answers to orders, or from facts that show that an order was carried out.
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

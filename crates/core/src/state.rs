//! The state that the controller keeps on the node itself, so that a restart of the controller changes nothing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fault::Blame;
use crate::ids::{BootId, NodeName, PolicyName, Requires, Uid};
use crate::texts::shortened;

/// Longer reasons are truncated, because every reader of the Node gets the annotation.
const MAX_REASON_CHARS: usize = 400;
const MAX_BYTES: usize = 8192;
const VERSION: u32 = 1;
/// No controller counts this far: larger numbers were not written by one.
const MAX_COUNT: u32 = 1_000_000_000;

/// The annotation `node-ready/state`: the result of the last worker and its consequences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// The version of this format.
    #[serde(rename = "v")]
    pub version: u32,
    /// The node that this state is about. Annotations can outlive their node, in backups and templates.
    pub uid: Uid,
    /// The boot in which the phase was reached.
    pub boot: BootId,
    /// The phase by the last verdict.
    pub phase: StatePhase,
    /// The number of the last worker whose result is part of this state. The next worker gets the next number, so an
    /// older result can never be taken for a newer one.
    pub serial: u32,
    /// Failed attempts in a row, or the attempt that passed.
    pub attempt: u32,
    /// Runs in a row that cost no attempt: they gave no verdict, or the fault was not the node's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inconclusive: u32,
    /// When this was written. For a pass, the earliest time at which the evidence can have been made.
    pub at: Timestamp,
    /// The node is not tried again before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// The check and kind of failure as one word, for the condition: `DnsTimeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The reason, for humans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whose fault the last run that cost no attempt was, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blame: Option<Blame>,
    /// The node failed while it was open, and was not closed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stays_open: bool,
    /// The run elsewhere that passed the same checks between two failures of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_elsewhere: Option<PassElsewhere>,
    /// The policy of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyName>,
    /// The fingerprint of what the last run had to check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<Requires>,
    /// The boot in which the last run that cost no attempt took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_boot: Option<BootId>,
    /// When the checks last failed, if runs without a verdict followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// When the cluster was last in trouble, so that a new leader does not count failures from before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Timestamp>,
    /// The result of the last reference run on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
}

/// The recorded phase of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatePhase {
    /// No verdict yet.
    Unverified,
    /// The last verdict was a pass.
    Verified,
    /// The last verdict was a fail, or too many runs gave none.
    Failed,
}

/// The pass elsewhere that shows a failure to be the node's own: the node failed, the checks passed there, and the node
/// failed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassElsewhere {
    /// The node on which they passed.
    pub node: NodeName,
    /// When that run was started.
    pub at: Timestamp,
}

/// The result of a reference run on a verified node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Whether the checks passed.
    pub pass: bool,
    /// The earliest time at which the run can have started.
    pub at: Timestamp,
    /// The fingerprint of what the run had to check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<Requires>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl NodeState {
    /// A state in which nothing is known yet.
    #[must_use]
    pub fn new(uid: Uid, boot: BootId, at: Timestamp) -> Self {
        Self {
            version: VERSION,
            uid,
            boot,
            phase: StatePhase::Unverified,
            serial: 0,
            attempt: 0,
            inconclusive: 0,
            blame: None,
            stays_open: false,
            passed_elsewhere: None,
            policy: None,
            requires: None,
            run_boot: None,
            at,
            next_try: None,
            cause: None,
            reason: None,
            failed_at: None,
            trouble: None,
            reference: None,
        }
    }

    /// Reads the annotation. Text that no controller wrote counts as no state at all.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let state = serde_json::from_str::<Self>(text).ok()?;
        let is_plausible = state.serial.max(state.attempt).max(state.inconclusive) <= MAX_COUNT;
        (state.version == VERSION && is_plausible).then_some(state)
    }

    /// The text of the annotation.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The last verdict was a failure that cost an attempt.
    #[must_use]
    pub fn is_own_failure(&self) -> bool {
        self.phase == StatePhase::Failed && self.attempt > 0 && self.blame.is_none()
    }

    /// When the checks last failed since the last pass, by the fault of the node or of the cluster.
    #[must_use]
    pub fn last_failure(&self) -> Option<Timestamp> {
        let is_failed = self.phase == StatePhase::Failed && self.attempt > 0;
        let is_failing = is_failed || self.inconclusive > 0 && self.blame == Some(Blame::Cluster);
        self.failed_at.or(is_failing.then_some(self.at))
    }

    /// The checks failed, by the fault of the node or of the cluster, and have not passed since.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.last_failure().is_some()
    }

    /// There is no verdict, and the state says why.
    #[must_use]
    pub fn says_why(&self) -> bool {
        self.inconclusive > 0 || self.phase == StatePhase::Unverified && self.cause.is_some()
    }

    /// The reason for the last result.
    #[must_use]
    pub fn why(&self) -> &str {
        self.reason.as_deref().unwrap_or("no reason was kept")
    }

    /// Sets the cause and the reason, which is truncated if it is too long.
    #[must_use]
    pub fn because(mut self, cause: &str, reason: &str) -> Self {
        self.cause = Some(cause.to_owned());
        self.reason = Some(shortened(reason, MAX_REASON_CHARS).into_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> NodeState {
        NodeState::new("u1".into(), "b1".into(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_annotation_is_small_and_read_back_as_written() {
        let text = state().to_json();
        assert_eq!(
            text,
            r#"{"v":1,"uid":"u1","boot":"b1","phase":"unverified","serial":0,"attempt":0,"at":"1970-01-01T00:00:00Z"}"#
        );
        let full = NodeState {
            phase: StatePhase::Failed,
            inconclusive: 2,
            next_try: Some(Timestamp::UNIX_EPOCH),
            reference: Some(Reference { pass: true, at: Timestamp::UNIX_EPOCH, requires: None }),
            ..state().because("DnsTimeout", "dns: no answer")
        };
        assert_eq!(NodeState::parse(&full.to_json()), Some(full));
    }

    #[test]
    fn foreign_text_is_no_state() {
        let other_version = state().to_json().replace("\"v\":1", "\"v\":2");
        let padded = format!("{}{}", state().to_json(), " ".repeat(MAX_BYTES));
        let uncounted = state().to_json().replace("\"serial\":0", "\"serial\":4294967295");
        for text in ["", "{}", "true", other_version.as_str(), padded.as_str(), uncounted.as_str()] {
            assert_eq!(NodeState::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_limit_itself_still_fits() {
        let text = state().to_json();
        let padded = format!("{text}{}", " ".repeat(MAX_BYTES - text.len()));
        assert_eq!((padded.len(), NodeState::parse(&padded)), (MAX_BYTES, Some(state())));
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let kept = state().because("X", &"ü".repeat(MAX_REASON_CHARS + 1)).reason.unwrap();
        assert_eq!(kept.chars().count(), MAX_REASON_CHARS + 1);
        assert!(kept.ends_with('…'));
        let whole = state().because("X", &"ü".repeat(MAX_REASON_CHARS)).reason.unwrap();
        assert!(!whole.ends_with('…'));
    }
}

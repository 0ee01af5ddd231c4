//! The only place that writes. One action is one request, and its outcome is returned in the terms of the rules.

use jiff::Timestamp;
use knr_core::action::Action;
use knr_core::engine::Outcome;
use knr_core::ids::{NodeName, NodeRef, Version};
use knr_core::names;
use knr_core::patch::NodePatch;
use knr_core::policy::Policies;
use knr_core::texts::shortened;
use knr_core::view::{ClaimRef, LedgerEntry, NodeView};
use knr_core::world::{Fact, Source};
use kube::core::Status;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::Instant;

use crate::api::{Api, Body, Failed, Target};
use crate::calls::Call;
use crate::objects;
use crate::observe::{SlimNode, SlimWorker};

/// The field manager, which the API server records in the objects.
pub(crate) const BY_US: &str = "fieldManager=kube-node-ready";

/// A longer reason for a refusal is truncated. It begins with who refused.
const MAX_REFUSAL_CHARS: usize = 300;

/// Carries out actions.
#[derive(Clone)]
pub struct Actor {
    api: Api,
    instance: String,
}

/// Why an action failed, before it is translated into the terms of the rules.
enum Trouble {
    Failed(Failed),
    /// The objects have changed since the action was decided.
    Changed,
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

type Facts = Result<Vec<Fact>, Trouble>;

impl Actor {
    /// Creates an actor. `instance` is the reporting instance in events.
    #[must_use]
    pub fn new(api: Api, instance: String) -> Self {
        Self { api, instance }
    }

    /// Carries out an action, and stops waiting for the answer at the deadline. Nothing is sent after the deadline.
    pub async fn carry_out(
        &self,
        action: &Action,
        policies: &Policies,
        now: Timestamp,
        deadline: Instant,
    ) -> Outcome {
        let done = match action {
            Action::StartWorker { stamp } => {
                // The policy under which this was decided no longer exists.
                let Some(policy) = policies.named(&stamp.policy) else { return Outcome::Conflict };
                let pod = objects::worker(stamp, policy);
                self.api
                    .send(Call::CreateWorker, Target::query(BY_US), Body::Json(&pod), deadline)
                    .await
                    .map(worker)
            }
            Action::RemoveWorker { worker, .. } => {
                let options = objects::deletion(&worker.uid, None);
                let target = Target::named(&worker.name);
                self.api.send(Call::DeleteWorker, target, Body::Json(&options), deadline).await.map(removed)
            }
            Action::OpenGate { node, patch, .. }
            | Action::CloseGate { node, patch, .. }
            | Action::Record { node, patch, .. } => self.patch(&node.name, patch, deadline).await,
            Action::SetCondition { node, condition, before, .. } => {
                let patch = objects::condition(node, condition, *before, now);
                let target = Target { name: Some(node.name.as_str()), query: BY_US, ..Target::default() };
                self.api
                    .send(Call::PatchNodeStatus, target, Body::StrategicMerge(&patch), deadline)
                    .await
                    .map(changed)
            }
            Action::SendEvent { node, claim, event } => {
                let event = objects::event(node, claim.as_ref(), event, &self.instance, now);
                let sent = self.api.send::<_, IgnoredAny>(
                    Call::CreateEvent,
                    Target::query(BY_US),
                    Body::Json(&event),
                    deadline,
                );
                sent.await.map(|_| Vec::new())
            }
            Action::ReserveDeletion { version, entries, .. } => {
                return settle(self.reserve(*version, entries, deadline).await);
            }
            Action::DeleteNode { node, version, claim, .. } => {
                return settle(self.delete(node, *version, claim.as_ref(), deadline).await);
            }
        };
        settle(done.map_err(Trouble::from))
    }

    async fn patch(
        &self,
        node: &NodeName,
        patch: &NodePatch,
        deadline: Instant,
    ) -> Result<Vec<Fact>, Failed> {
        let target = Target { name: Some(node.as_str()), query: BY_US, ..Target::default() };
        self.api.send(Call::PatchNode, target, Body::JsonPatch(patch), deadline).await.map(changed)
    }

    /// Reserves a deletion in the ledger. If somebody deleted the ledger, it is created again: its entries are known.
    async fn reserve(&self, version: Version, entries: &[LedgerEntry], deadline: Instant) -> Facts {
        let namespace = &self.api.namespaces().own;
        let target = Target { name: Some(names::LEDGER), query: BY_US, ..Target::default() };
        let kept = if version == Version::default() {
            None
        } else {
            let object = objects::ledger(namespace, version, entries);
            match self.api.send::<_, Value>(Call::UpdateLedger, target, Body::Json(&object), deadline).await {
                Err(failed) if failed.code() == Some(404) => None,
                kept => Some(kept?),
            }
        };
        let kept = if let Some(kept) = kept {
            kept
        } else {
            let object = objects::ledger(namespace, Version::default(), entries);
            self.api.send(Call::CreateLedger, Target::query(BY_US), Body::Json(&object), deadline).await?
        };
        let ledger = objects::read_ledger(&kept).map_err(Failed::Unreadable)?;
        Ok(vec![Fact::Ledger(ledger)])
    }

    /// Deletes a node, or its claim if it has one. The deletion of a claim cannot depend on the node's version, and the
    /// node's reference to its claim is under the control of the kubelet. Both are therefore read again just before.
    async fn delete(
        &self,
        node: &NodeRef,
        version: Version,
        claim: Option<&ClaimRef>,
        deadline: Instant,
    ) -> Facts {
        let Some(claim) = claim else {
            let options = objects::deletion(&node.uid, Some(version));
            let target = Target::named(node.name.as_str());
            let answer = self.api.send(Call::DeleteNode, target, Body::Json(&options), deadline).await?;
            return Ok(vec![left(node, version, answer)]);
        };
        let (now, _) = self.api.node(&node.name, deadline).await?;
        if now.is_none_or(|now| now.id != *node || now.version != version) {
            return Err(Trouble::Changed);
        }
        if !self.api.claims(claim, &node.name, deadline).await? {
            return Err(Trouble::Changed);
        }
        let options = objects::deletion(&claim.uid, None);
        let target = Target::named(&claim.name);
        self.api.send::<_, Value>(Call::DeleteClaim, target, Body::Json(&options), deadline).await?;
        Ok(Vec::new())
    }
}

fn changed(node: SlimNode) -> Vec<Fact> {
    vec![Fact::Node(NodeView::from(node), Source::Answer)]
}

/// A deleted node with finalizers of others is answered with the node. Any other is gone at once, and answered with a
/// status.
fn left(node: &NodeRef, version: Version, answer: Value) -> Fact {
    match SlimNode::deserialize(answer) {
        Ok(left) if left.metadata.deletion_timestamp.is_some() => Fact::Node(left.into(), Source::Answer),
        Ok(_) | Err(_) => Fact::NodeGone(node.clone(), version),
    }
}

fn worker(pod: SlimWorker) -> Vec<Fact> {
    pod.view().map(|view| Fact::Worker(view, Source::Answer)).into_iter().collect()
}

/// A pod that has ended, or that is on no node, is gone at once and answered with its last state.
fn removed(pod: SlimWorker) -> Vec<Fact> {
    if pod.metadata.deletion_timestamp.is_some() {
        return worker(pod);
    }
    let version = pod.metadata.version();
    let gone = pod.identity();
    gone.map(|(id, stamp)| Fact::WorkerGone(id, stamp.node.name, version, Source::Answer))
        .into_iter()
        .collect()
}

fn settle(done: Facts) -> Outcome {
    match done {
        Ok(facts) => Outcome::Done(facts),
        Err(Trouble::Changed) => Outcome::Conflict,
        Err(Trouble::Failed(failed)) => outcome(&failed),
    }
}

/// Returns the outcome of a failed request.
pub(crate) fn outcome(failed: &Failed) -> Outcome {
    match failed {
        Failed::NoConnection(_) => Outcome::Unavailable,
        Failed::NoAnswer(_) | Failed::Unreadable(_) => Outcome::Unknown,
        Failed::Status(status) => by_status(status),
    }
}

fn by_status(status: &Status) -> Outcome {
    match status.code {
        _ if is_by_admission(status) => Outcome::Refused(refusal(status)),
        404 if is_about_a_namespace(status) => Outcome::Refused(refusal(status)),
        404 | 409 => Outcome::Conflict,
        422 if is_contradiction(status) => Outcome::Conflict,
        429 | 503 => Outcome::Unavailable,
        400..=499 => Outcome::Refused(refusal(status)),
        _ => Outcome::Unknown,
    }
}

/// Returns whether an admission webhook denied the request, or could not be called. The webhook chooses the status
/// code, but nothing was written in any case.
fn is_by_admission(status: &Status) -> bool {
    status.message.starts_with("admission webhook ") || status.message.contains("failed calling webhook ")
}

/// Returns who refused and why, as the API server reports it: a quota, an admission policy, a webhook, Pod Security. On
/// one line.
fn refusal(status: &Status) -> String {
    let said = status.message.split_whitespace().collect::<Vec<_>>().join(" ");
    match said.as_str() {
        "" => format!("status {} {}", status.code, status.reason).trim_end().to_owned(),
        said => shortened(said, MAX_REFUSAL_CHARS).into_owned(),
    }
}

/// Returns whether the namespace of the object does not exist.
fn is_about_a_namespace(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
}

/// Returns whether a test in a patch failed, which is reported without a cause, or the UID differs. Any other 422 names
/// the invalid field.
fn is_contradiction(status: &Status) -> bool {
    let causes = status.details.as_ref().map_or(&[][..], |details| details.causes.as_slice());
    causes.is_empty() || causes.iter().any(|cause| cause.field == "metadata.uid")
}

/// Returns a short name for metrics.
#[must_use]
pub const fn action_name(action: &Action) -> &'static str {
    match action {
        Action::StartWorker { .. } => "start_worker",
        Action::RemoveWorker { .. } => "remove_worker",
        Action::OpenGate { .. } => "open_gate",
        Action::CloseGate { .. } => "close_gate",
        Action::Record { .. } => "record",
        Action::SetCondition { .. } => "set_condition",
        Action::SendEvent { .. } => "event",
        Action::ReserveDeletion { .. } => "reserve_deletion",
        Action::DeleteNode { .. } => "delete_node",
    }
}

/// Returns a short name for metrics.
#[must_use]
pub const fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done(_) => "done",
        Outcome::Conflict => "conflict",
        Outcome::Refused(_) => "refused",
        Outcome::Unavailable => "unavailable",
        Outcome::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests;

//! The controller's writes.

use knr_core::action::{Action, worker_name};
use knr_core::ids::{NodeName, NodeRef, Uid, Version, WorkerRef};
use knr_core::view::{Condition, ConditionStatus, LedgerView, Stage};
use knr_core::world::{Fact, Source};
use serde_json::json;

use super::{Api, Refusal, new_worker};

impl Api {
    /// Carries out an action as the product does, with the same preconditions.
    pub(crate) fn carry_out(&mut self, action: &Action) -> Result<Vec<Fact>, Refusal> {
        match action {
            Action::StartWorker { stamp } => {
                let id = WorkerRef { name: worker_name(&stamp.node.uid), uid: Uid::from("") };
                let pod = new_worker(id, stamp.clone(), Version(0), Stage::Pending(None));
                let worker = self.create_worker(pod)?;
                Ok(vec![Fact::Worker(worker, Source::Answer)])
            }
            Action::RemoveWorker { worker, .. } => {
                let node = self.workers.get(&worker.name).map(|known| known.stamp.node.name.clone());
                self.delete_worker(worker)?;
                Ok(node.map(|node| self.removed_worker(worker, node)).into_iter().collect())
            }
            Action::OpenGate { node, patch, .. }
            | Action::CloseGate { node, patch, .. }
            | Action::Record { node, patch, .. } => {
                let view = self.patch_node(node.name.as_str(), &json!(patch))?;
                Ok(vec![Fact::Node(view, Source::Answer)])
            }
            Action::SetCondition { node, condition, .. } => self.set_condition(node, condition),
            Action::SendEvent { .. } => Ok(Vec::new()),
            Action::ReserveDeletion { version, entries, .. } => {
                if self.ledger.version != *version {
                    return Err(Refusal::Conflict);
                }
                self.version += 1;
                self.ledger = LedgerView { version: Version(self.version), entries: entries.clone() };
                Ok(vec![Fact::Ledger(self.ledger.clone())])
            }
            Action::DeleteNode { node, version, claim, .. } => {
                let now = &self.nodes.get(node.name.as_str()).ok_or(Refusal::NotFound)?.view;
                if now.id != *node || now.version != *version {
                    return Err(Refusal::Conflict);
                }
                if claim.is_some() {
                    // Karpenter deletes the node.
                    return Ok(Vec::new());
                }
                let ops = json!([{ "op": "add", "path": "/metadata/deletionTimestamp", "value": "now" }]);
                let view = self.patch_node(node.name.as_str(), &ops)?;
                Ok(vec![Fact::Node(view, Source::Answer)])
            }
        }
    }

    fn set_condition(&mut self, node: &NodeRef, condition: &Condition) -> Result<Vec<Fact>, Refusal> {
        let status = match condition.status {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        };
        let value = json!({ "status": status, "reason": condition.reason, "message": condition.message });
        let ops = json!([
            { "op": "test", "path": "/metadata/uid", "value": node.uid },
            { "op": "add", "path": "/status/condition", "value": value },
        ]);
        let view = self.patch_node(node.name.as_str(), &ops)?;
        Ok(vec![Fact::Node(view, Source::Answer)])
    }

    fn removed_worker(&self, id: &WorkerRef, node: NodeName) -> Fact {
        match self.workers.get(&id.name).filter(|worker| worker.id == *id) {
            Some(leaving) => Fact::Worker((**leaving).clone(), Source::Answer),
            None => Fact::WorkerGone(id.clone(), node, Version(self.version), Source::Answer),
        }
    }
}

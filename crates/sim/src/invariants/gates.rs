//! S1, S2 and S5: what opens and closes gates, and that nothing else is changed.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use knr_core::action::{Action, Closing, worker_name};
use knr_core::config::{Config, Effect, Taint};
use knr_core::names;
use knr_core::state::StatePhase;
use knr_core::view::{Ending, NodeView, Stage};
use serde_json::Value;

use super::{Monitor, Rule, Write, is_closed, is_labelled, our_taints, state_of};
use crate::api::{Api, NodeObject};

/// A process that closes an idle node has found it idle within the interval and this time.
const FOUND_IDLE_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// A judgement of the monitoring is acted upon within this time, or not at all.
const ACTED_UPON_WITHIN: SignedDuration = SignedDuration::from_secs(30);

impl Monitor {
    /// S2.
    pub(super) fn nothing_of_others(&mut self, config: &Config, before: &NodeObject, after: &NodeObject) {
        let name = before.view.id.name.as_str();
        let theirs = |node: &NodeView| -> Vec<Value> {
            let positions: Vec<usize> = our_taints(config).filter_map(|taint| node.position(taint)).collect();
            let all = node.taints.iter().enumerate();
            all.filter(|(index, _)| !positions.contains(index)).map(|(_, taint)| taint.clone()).collect()
        };
        if theirs(&before.view) != theirs(&after.view) {
            self.violate(name, Rule::S2, "a taint of somebody else was removed, added or moved");
        }
        let mut keys =
            vec![names::STATE_ANNOTATION.to_owned(), config.node_management.verified_label.key.clone()];
        keys.extend(config.gates.iter().map(|gate| gate.completed_annotation.clone()));
        // The controller removes a request for an attempt together with the result of the attempt, and never adds one.
        if !after.view.annotations.contains_key(names::RETRY_ANNOTATION) {
            keys.push(names::RETRY_ANNOTATION.to_owned());
        }
        for map in ["/metadata/labels", "/metadata/annotations"] {
            let theirs = |node: &NodeObject| -> BTreeMap<String, Value> {
                let map = node.json.pointer(map).and_then(Value::as_object).into_iter().flatten();
                map.filter(|(key, _)| !keys.contains(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
            };
            if theirs(before) != theirs(after) {
                self.violate(name, Rule::S2, format_args!("{map} of somebody else were changed"));
            }
        }
    }

    /// S1.
    pub(super) fn evidence(&mut self, write: &Write<'_>, before: &NodeView, after: &NodeView) {
        let (config, name) = (write.config(), after.id.name.as_str());
        let id = (after.id.uid.clone(), after.boot.clone());
        let verification = &config.node_management.taints;
        let opened = is_closed(before, verification) && !is_closed(after, verification);
        let labelled = !is_labelled(before, config) && is_labelled(after, config);
        if (opened || labelled) && !self.proofs.contains(&id) && !self.is_heard_again(write.api, before) {
            self.violate(
                name,
                Rule::S1,
                "opened without a worker that ended well on this node in this boot, and since it last failed",
            );
        }
        for gate in &config.gates {
            let taint = std::slice::from_ref(&gate.taint);
            let opens = is_closed(before, taint) && !is_closed(after, taint);
            let is_ready = |(uid, boot, component, namespace): &(_, _, &str, &str)| {
                let labels = [(names::INIT_POD_LABEL, *component)].into_iter().collect();
                (uid, boot) == (&id.0, &id.1)
                    && gate.namespaces.iter().any(|known| known == namespace)
                    && gate.pod_selector.matches(&labels)
            };
            if opens && !self.init_proofs.iter().any(is_ready) {
                let how =
                    format!("gate {} opened without an init pod that was ready in this boot", gate.name);
                self.violate(name, Rule::S1, how);
            }
        }
        let labels = &after.labels;
        if (opened || labelled)
            && labels.contains_key(names::KARPENTER_POOL_LABEL)
            && labels.get(names::KARPENTER_REGISTERED_LABEL).is_none()
        {
            self.violate(name, Rule::Karpenter, "opened before Karpenter has registered the node");
        }
        if opened != labelled && opened && !is_labelled(before, config) {
            self.violate(name, Rule::S1, "opened without the label in the same write");
        }
    }

    /// Returns whether an operator has removed the state, which starts everything over, while the first worker is still
    /// there. It passed on this node in this boot. By design its result may count again, even if the label was removed
    /// after it ended.
    fn is_heard_again(&self, api: &Api, node: &NodeView) -> bool {
        state_of(node).is_none()
            && self.ended_well.contains(&(node.id.uid.clone(), node.boot.clone()))
            && api.worker(&worker_name(&node.id.uid)).is_some_and(|worker| {
                let stamp = &worker.stamp;
                let ended_well = matches!(&worker.stage, Stage::Ended(Ending::Exited { code: 0, .. }));
                (&stamp.node, &stamp.boot, stamp.serial) == (&node.id, &node.boot, 1)
                    && ended_well
                    && !worker.leaving
            })
    }

    /// S5.
    pub(super) fn reason_to_close(&mut self, write: &Write<'_>, before: &NodeView, after: &NodeView) {
        let config = write.config();
        let is_new = |taint: &&Taint| before.position(taint).is_none() && after.position(taint).is_some();
        let added: Vec<&Taint> = our_taints(config).filter(is_new).collect();
        if added.is_empty() {
            return;
        }
        self.pool_knows(write, before, &added);
        self.is_idle(write, before, &added);
        let taints = &config.node_management.taints;
        if is_closed(before, taints) || !is_closed(after, taints) {
            return;
        }
        let name = before.id.name.as_str();
        let state = state_of(before);
        let verified = state.as_ref().is_some_and(|state| state.phase == StatePhase::Verified);
        let rebooted = state.as_ref().is_some_and(|state| state.boot != before.boot);
        let found_unsound = self.unsound.get(&before.id.uid).copied();
        let since = write.now - ACTED_UPON_WITHIN;
        // On a paused node a judgement waits until the pause ends, and the checks run again after it.
        let failed_since = self.runs.has_failed_since(&before.id.uid, &before.boot, since);
        // A run without a verdict leaves the node on probation, even once its label is back.
        let is_on_probation =
            found_unsound.is_some() || state.as_ref().is_some_and(|state| state.inconclusive > 0);
        if found_unsound.is_some_and(|at| at > since) || is_on_probation && failed_since {
            return;
        }
        if is_labelled(before, config) && !rebooted {
            self.violate(name, Rule::S5, "a verified node was closed for no stated reason");
        }
        let failed_open = state.as_ref().is_some_and(|state| state.stays_open);
        if !verified && !failed_open && !config.node_management.backfill {
            self.violate(name, Rule::S5, "a node that was not ours was closed");
        }
        if verified {
            self.void_proof(&before.id.uid);
        }
    }

    fn pool_knows(&mut self, write: &Write<'_>, node: &NodeView, added: &[&Taint]) {
        let Some(pool) = node.labels.get(names::KARPENTER_POOL_LABEL) else { return };
        let since = write.outages.cut_off_since(self.pools.unknown_since(write.request.decided));
        if !added.iter().all(|taint| self.pools.knew(pool, &taint.key, since)) {
            self.violate(
                node.id.name.as_str(),
                Rule::Karpenter,
                "a node was closed although its NodePool does not know the gate",
            );
        }
    }

    /// A node that is closed only because it never had the gate must be idle.
    fn is_idle(&mut self, write: &Write<'_>, node: &NodeView, added: &[&Taint]) {
        let name = node.id.name.as_str();
        let is_backfill = matches!(write.action(), Action::CloseGate { because: Closing::Backfill, .. });
        let machine = write.machines.get(name).filter(|machine| machine.uid == node.id.uid);
        let Some(since) = machine.and_then(|machine| machine.busy).filter(|_| is_backfill) else { return };
        let within = write.config().reconciliation.interval() + FOUND_IDLE_WITHIN;
        if since + within < write.request.decided {
            self.violate(name, Rule::S5, "a node that never had the gate was closed although pods run there");
        }
        if added.iter().any(|taint| taint.effect == Effect::NoExecute) {
            self.violate(name, Rule::Eviction, "a node that never had the gate was closed, and pods evicted");
        }
    }
}

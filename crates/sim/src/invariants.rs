//! The rules that may never break, checked at every write of ours against what is really so.

mod end;

pub(crate) use end::at_end;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::action::Action;
use knr_core::config::{Config, Taint};
use knr_core::ids::{BootId, Uid};
use knr_core::names;
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{Ending, NodeView, Stage};
use serde_json::Value;

use crate::api::Api;
use crate::observe;

/// Two leaders that both see a node open and tidy up come close to this.
const WRITES_A_SECOND: usize = 20;

/// A rule that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    /// Which one, and how.
    pub(crate) rule: String,
    /// Where.
    pub(crate) node: String,
}

/// Who knows what is really so, and holds every write of ours against it.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    broken: Option<Broken>,
    /// A worker ended well on this node in this boot, and nothing has happened since that asks for another proof.
    proofs: BTreeSet<(Uid, BootId)>,
    /// A worker ended well on this node in this boot, whatever has happened since.
    ended_well: BTreeSet<(Uid, BootId)>,
    /// An init pod was truly ready on this node in this boot.
    init_proofs: BTreeSet<(Uid, BootId)>,
    /// When a worker last ended well on some node.
    passed: BTreeMap<Uid, Timestamp>,
    /// Until when requests can arrive that were sent while deletion was asked for.
    pub(crate) asked_until: Timestamp,
    /// When we deleted nodes.
    deletions: Vec<Timestamp>,
    /// Writes for each node, events told included.
    writes: BTreeMap<Uid, usize>,
    /// Workers started for each node.
    workers: BTreeMap<Uid, usize>,
    /// When a verdict against a node was last recorded.
    failed: BTreeMap<Uid, Timestamp>,
    /// Writes for each node in the present second.
    burst: BTreeMap<Uid, (i64, usize)>,
}

impl Monitor {
    /// A rule was broken.
    pub(crate) fn violate(&mut self, node: &str, rule: impl Into<String>) {
        self.broken.get_or_insert(Broken { rule: rule.into(), node: node.to_owned() });
    }

    /// The first rule that was broken.
    #[must_use]
    pub(crate) fn broken(&self) -> Option<Broken> {
        self.broken.clone()
    }

    /// A worker really ended well on this machine.
    pub(crate) fn worker_passed(&mut self, uid: &Uid, boot: &BootId, now: Timestamp) {
        self.proofs.insert((uid.clone(), boot.clone()));
        self.ended_well.insert((uid.clone(), boot.clone()));
        self.passed.insert(uid.clone(), now);
    }

    /// All init pods are really ready on this machine.
    pub(crate) fn init_pod_ready(&mut self, uid: &Uid, boot: &BootId) {
        self.init_proofs.insert((uid.clone(), boot.clone()));
    }

    /// A person removes the verified label: what the node had proven until then no longer counts, unless it had to
    /// be proven again anyway.
    pub(crate) fn label_removed(&mut self, node: &NodeView, config: &Config) {
        let verified = state_of(node)
            .is_some_and(|state| state.phase == StatePhase::Verified && state.boot == node.boot);
        if verified && is_labelled(node, config) && !is_closed(node, &config.node_management.taints) {
            self.void_proof(&node.id.uid);
        }
    }

    fn void_proof(&mut self, uid: &Uid) {
        self.proofs.retain(|(proven, _)| proven != uid);
    }

    /// The most writes that any node has cost.
    pub(crate) fn most_writes(&self) -> usize {
        self.writes.values().copied().max().unwrap_or(0)
    }

    /// The most workers that were started for any node.
    pub(crate) fn most_workers(&self) -> usize {
        self.workers.values().copied().max().unwrap_or(0)
    }

    /// Holds a write of ours that was carried out against the rules.
    pub(crate) fn after(
        &mut self,
        api: &Api,
        config: &Config,
        action: &Action,
        before: Option<Arc<Value>>,
        now: Timestamp,
    ) {
        *self.writes.entry(action.node().uid.clone()).or_default() += 1;
        let name = action.node().name.as_str();
        self.no_storm(action, now);
        let after = api.node(name);
        if let Action::StartWorker { .. } = action {
            *self.workers.entry(action.node().uid.clone()).or_default() += 1;
            self.one_worker(api, action);
        }
        let (Some(before), Some(after)) = (before, after) else { return };
        self.nothing_of_others(config, &before, after);
        if before != *after && is_excluded(&observe::node(&before), config) {
            self.violate(name, "a node that is none of our business was changed");
        }
        let (before, after) = (observe::node(&before), observe::node(after));
        if state_of(&before) != state_of(&after)
            && state_of(&after).is_some_and(|state| state.phase == StatePhase::Failed)
        {
            self.failed.insert(after.id.uid.clone(), now);
        }
        self.evidence(api, config, &before, &after);
        self.reason_to_close(config, &before, &after);
        if let Action::DeleteNode { .. } = action {
            self.right_to_delete(api, config, &before, now);
        }
    }

    /// Nothing is tried again and again without a pause.
    fn no_storm(&mut self, action: &Action, now: Timestamp) {
        let burst = self.burst.entry(action.node().uid.clone()).or_default();
        *burst = if burst.0 == now.as_second() { (burst.0, burst.1 + 1) } else { (now.as_second(), 1) };
        if burst.1 > WRITES_A_SECOND {
            self.violate(action.node().name.as_str(), "a storm of writes to one node");
        }
    }

    /// S3.
    fn one_worker(&mut self, api: &Api, action: &Action) {
        let node = action.node();
        let live = api
            .workers()
            .filter(|worker| worker.stamp.node == *node && !matches!(worker.stage, Stage::Ended(_)));
        if live.count() > 1 {
            self.violate(node.name.as_str(), "S3: two live workers for one node");
        }
    }

    /// S2.
    fn nothing_of_others(&mut self, config: &Config, before: &Value, after: &Value) {
        let name = observe::name(before).to_owned();
        let ours = our_taints(config);
        let theirs = |node: &Value| -> Vec<Value> {
            let view = observe::node(node);
            let positions: Vec<usize> = ours.iter().filter_map(|taint| view.position(taint)).collect();
            let all = view.taints.into_iter().enumerate();
            all.filter(|(index, _)| !positions.contains(index)).map(|(_, taint)| taint).collect()
        };
        if theirs(before) != theirs(after) {
            self.violate(&name, "S2: a taint of somebody else was removed, added or moved");
        }
        let mut keys =
            vec![names::STATE_ANNOTATION.to_owned(), config.node_management.verified_label.key.clone()];
        keys.extend(config.gates.iter().map(|gate| gate.completed_annotation.clone()));
        for map in ["/metadata/labels", "/metadata/annotations"] {
            let theirs = |node: &Value| -> BTreeMap<String, Value> {
                let map = node.pointer(map).and_then(Value::as_object).into_iter().flatten();
                map.filter(|(key, _)| !keys.contains(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
            };
            if theirs(before) != theirs(after) {
                self.violate(&name, format!("S2: {map} of somebody else were changed"));
            }
        }
    }

    /// S1.
    fn evidence(&mut self, api: &Api, config: &Config, before: &NodeView, after: &NodeView) {
        let id = (after.id.uid.clone(), after.boot.clone());
        let verification = &config.node_management.taints;
        let opened = is_closed(before, verification) && !is_closed(after, verification);
        let labelled = !is_labelled(before, config) && is_labelled(after, config);
        if (opened || labelled) && !self.proofs.contains(&id) && !self.is_heard_anew(api, before) {
            self.violate(
                after.id.name.as_str(),
                "S1: opened without a worker that ended well on this node in this boot",
            );
        }
        for gate in &config.gates {
            let taint = std::slice::from_ref(&gate.taint);
            if is_closed(before, taint) && !is_closed(after, taint) && !self.init_proofs.contains(&id) {
                let rule =
                    format!("S1: gate {} opened without an init pod that was ready in this boot", gate.name);
                self.violate(after.id.name.as_str(), rule);
            }
        }
        let labels = &after.labels;
        if (opened || labelled)
            && labels.contains_key(names::KARPENTER_POOL_LABEL)
            && labels.get(names::KARPENTER_REGISTERED_LABEL).is_none()
        {
            self.violate(after.id.name.as_str(), "opened before Karpenter has registered the node");
        }
        if opened != labelled && opened && !is_labelled(before, config) {
            self.violate(after.id.name.as_str(), "opened without the label in the same write");
        }
    }

    /// A person has removed the state, which starts everything anew, and the first worker is still there. It ended well on
    /// this node in this boot, and by the design may be heard once more, even if the label was removed after it ended.
    fn is_heard_anew(&self, api: &Api, node: &NodeView) -> bool {
        let mut workers = api.workers();
        state_of(node).is_none()
            && self.ended_well.contains(&(node.id.uid.clone(), node.boot.clone()))
            && workers.any(|worker| {
                let stamp = &worker.stamp;
                let ended_well = matches!(&worker.stage, Stage::Ended(Ending::Exited { code: 0, .. }));
                (&stamp.node, &stamp.boot, stamp.serial) == (&node.id, &node.boot, 1)
                    && ended_well
                    && !worker.leaving
            })
    }

    /// S5.
    fn reason_to_close(&mut self, config: &Config, before: &NodeView, after: &NodeView) {
        let taints = &config.node_management.taints;
        if is_closed(before, taints) || !is_closed(after, taints) {
            return;
        }
        let state = state_of(before);
        let verified = state.as_ref().is_some_and(|state| state.phase == StatePhase::Verified);
        let rebooted = state.is_some_and(|state| state.boot != before.boot);
        let had_label = is_labelled(before, config);
        if had_label && !rebooted {
            self.violate(before.id.name.as_str(), "S5: a verified node was closed for no stated reason");
        }
        if !verified && !config.node_management.backfill {
            self.violate(before.id.name.as_str(), "S5: a node that was not ours was closed");
        }
        if before.labels.get(names::KARPENTER_POOL_LABEL).is_some_and(|pool| pool == "unaware") {
            self.violate(
                before.id.name.as_str(),
                "a node was closed although its NodePool does not know the gate",
            );
        }
        if verified {
            self.void_proof(&before.id.uid);
        }
    }

    /// S4.
    fn right_to_delete(&mut self, api: &Api, config: &Config, node: &NodeView, now: Timestamp) {
        let name = node.id.name.as_str();
        let state = state_of(node);
        let hour = SignedDuration::from_hours(1);
        let limits = &config.limits.deletion;
        let used_up = state.as_ref().is_some_and(|state| {
            state.phase == StatePhase::Failed && state.attempt >= config.reconciliation.max_retries
        });
        let reserved = api.ledger().entries.iter().any(|entry| entry.node == node.id);
        let control_plane = names::CONTROL_PLANE_LABELS.iter().any(|label| node.labels.contains_key(label));
        self.deletions.retain(|at| now.duration_since(*at) < hour);
        self.deletions.push(now);
        let failed = self.failed.get(&node.id.uid);
        let others_pass = self.passed.iter().any(|(uid, at)| *uid != node.id.uid && Some(at) > failed);
        let rules = [
            (config.node_management.delete_failed_nodes || self.asked_until > now, "nobody asked for it"),
            (used_up, "attempts are left"),
            (reserved, "no right was reserved"),
            (!control_plane, "it is a control plane node"),
            (others_pass, "no other node has passed since it failed"),
            (self.deletions.len() <= limits.max_per_hour as usize, "the budget is used up"),
        ];
        for (holds, otherwise) in rules {
            if !holds {
                self.violate(name, format!("S4: a node was deleted although {otherwise}"));
            }
        }
    }

    /// A number for the state that a node is in, its identity aside.
    #[must_use]
    pub(crate) fn fingerprint(api: &Api, config: &Config, name: &str) -> Option<u64> {
        let node = observe::node(api.node(name)?);
        let state = state_of(&node);
        let mut hasher = DefaultHasher::new();
        (is_closed(&node, &config.node_management.taints), is_labelled(&node, config), node.leaving)
            .hash(&mut hasher);
        node.taints.len().hash(&mut hasher);
        if let Some(state) = &state {
            (state.phase as u8, state.attempt, state.inconclusive, state.boot == node.boot).hash(&mut hasher);
        }
        for worker in api.workers().filter(|worker| worker.stamp.node.name == node.id.name) {
            let current = worker.stamp.serial == state.as_ref().map_or(0, |state| state.serial) + 1;
            let progress = match &worker.stage {
                Stage::Pending(_) => 0,
                Stage::Running => 1,
                Stage::Ended(_) => 2,
            };
            (current, progress, worker.leaving, worker.stamp.node == node.id).hash(&mut hasher);
            (worker.stamp.boot == node.boot).hash(&mut hasher);
        }
        Some(hasher.finish())
    }
}

/// Control plane nodes and those that the configuration excludes.
fn is_excluded(node: &NodeView, config: &Config) -> bool {
    names::CONTROL_PLANE_LABELS.iter().any(|label| node.labels.contains_key(label))
        || config.node_management.exclude.iter().any(|selector| selector.matches(&node.labels))
}

fn our_taints(config: &Config) -> Vec<Taint> {
    let startup = config.gates.iter().map(|gate| gate.taint.clone());
    config.node_management.taints.iter().cloned().chain(startup).collect()
}

fn is_closed(node: &NodeView, taints: &[Taint]) -> bool {
    taints.iter().any(|taint| node.position(taint).is_some())
}

fn is_labelled(node: &NodeView, config: &Config) -> bool {
    let label = &config.node_management.verified_label;
    node.labels.get(&label.key) == Some(&label.value)
}

fn state_of(node: &NodeView) -> Option<NodeState> {
    let text = node.annotations.get(names::STATE_ANNOTATION)?;
    NodeState::parse(text).filter(|state| state.uid == node.id.uid)
}

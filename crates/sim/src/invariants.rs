//! The rules that may never break, checked at every decision and every write against what is really so.

mod brake;
mod deletion;
mod end;
mod gates;
mod managed;
mod rule;
mod runs;
mod slots;
mod verdicts;

pub(crate) use end::at_end;
pub(crate) use rule::Rule;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use knr_core::action::{Action, worker_name};
use knr_core::config::{Config, Taint};
use knr_core::engine::Outcome;
use knr_core::ids::{BootId, NodeName, Uid};
use knr_core::names;
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{Ending, NodeView, PoolView, Stage};

use crate::actors::Machine;
use crate::api::{Api, NodeObject};
use crate::outages::Outages;
use crate::run::Decided;
use crate::scenario::InitPod;
use crate::writers::Request;
use brake::Closings;
use managed::{Managed, Pools};
use runs::Runs;

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

/// A write that was just carried out, and what is really so.
pub(crate) struct Write<'a> {
    /// The API server after it.
    pub(crate) api: &'a Api,
    /// All machines.
    pub(crate) machines: &'a BTreeMap<String, Machine>,
    /// All outages.
    pub(crate) outages: &'a Outages,
    /// The write.
    pub(crate) request: &'a Request,
    /// The node before it.
    pub(crate) before: Option<Arc<NodeObject>>,
    /// The time.
    pub(crate) now: Timestamp,
}

impl Write<'_> {
    fn action(&self) -> &Action {
        &self.request.order.action
    }

    fn config(&self) -> &Config {
        &self.request.config
    }
}

/// Who knows what is really so, and holds every write against it.
#[derive(Debug)]
pub(crate) struct Monitor {
    broken: Option<Broken>,
    /// A worker ended well on this node in this boot, and nothing has happened since that asks for another proof.
    proofs: BTreeSet<(Uid, BootId)>,
    /// A worker ended well on this node in this boot, whatever has happened since.
    ended_well: BTreeSet<(Uid, BootId)>,
    /// An init pod of this component in this namespace was truly ready on this node in this boot.
    init_proofs: BTreeSet<(Uid, BootId, &'static str, &'static str)>,
    /// All runs of the checks.
    runs: Runs,
    /// When nodes were deleted by the controller.
    deletions: BTreeMap<Uid, Timestamp>,
    /// Writes for each node, events told included.
    writes: BTreeMap<Uid, usize>,
    /// Workers started for each node.
    workers: BTreeMap<Uid, usize>,
    /// When a verdict against a node was last recorded.
    failed: BTreeMap<Uid, Timestamp>,
    /// Writes for each node in the present second.
    burst: BTreeMap<Uid, (i64, usize)>,
    /// How many nodes there were to look after.
    managed: Managed,
    /// Karpenter's pools.
    pools: Pools,
    /// Closings that were decided and may still be under way.
    closings: Closings,
    /// Nodes whose orders are under way or came to nothing.
    held: slots::Held,
    /// Nodes that somebody opened, so that the controller leaves them alone.
    by_hand: BTreeSet<Uid>,
    /// When the checks last failed too often in a row on a verified node that is monitored.
    unsound: BTreeMap<Uid, Timestamp>,
}

impl Monitor {
    /// A monitor that has seen nothing yet.
    #[must_use]
    pub(crate) fn new(pools: &[PoolView], now: Timestamp) -> Self {
        Self {
            broken: None,
            proofs: BTreeSet::new(),
            ended_well: BTreeSet::new(),
            init_proofs: BTreeSet::new(),
            runs: Runs::default(),
            deletions: BTreeMap::new(),
            writes: BTreeMap::new(),
            workers: BTreeMap::new(),
            failed: BTreeMap::new(),
            burst: BTreeMap::new(),
            managed: Managed::default(),
            pools: Pools::new(pools, now),
            closings: Closings::default(),
            held: slots::Held::default(),
            by_hand: BTreeSet::new(),
            unsound: BTreeMap::new(),
        }
    }

    /// A rule was broken.
    pub(crate) fn violate(&mut self, node: &str, rule: Rule, how: impl std::fmt::Display) {
        if self.broken.is_none() {
            self.broken = Some(Broken { rule: format!("{rule}: {how}"), node: node.to_owned() });
        }
    }

    /// The first rule that was broken.
    #[must_use]
    pub(crate) fn broken(&self) -> Option<Broken> {
        self.broken.clone()
    }

    /// A worker begins to run.
    pub(crate) fn run_began(&mut self, worker: &Uid, now: Timestamp) {
        self.runs.began(worker, now);
    }

    /// A worker will never end by itself.
    pub(crate) fn run_hangs(&mut self, worker: &Uid) {
        self.runs.hangs(worker);
    }

    /// A worker really ended well on this machine.
    pub(crate) fn run_passed(&mut self, worker: &Uid, node: &Uid, boot: &BootId, now: Timestamp) {
        self.proofs.insert((node.clone(), boot.clone()));
        self.ended_well.insert((node.clone(), boot.clone()));
        self.runs.passed(worker, node, now);
    }

    /// The checks really failed on this machine.
    pub(crate) fn run_failed(&mut self, worker: &Uid, node: &Uid, boot: &BootId, now: Timestamp) {
        self.runs.failed(worker, node, boot, now);
    }

    /// An init pod is really ready on this machine.
    pub(crate) fn init_pod_ready(&mut self, uid: &Uid, boot: &BootId, pod: InitPod) {
        self.init_proofs.insert((uid.clone(), boot.clone(), pod.component, pod.namespace));
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

    /// Somebody opened a node, by hand or by taking its taint out of the configuration.
    pub(crate) fn opened_by_hand(&mut self, uid: &Uid) {
        self.by_hand.insert(uid.clone());
    }

    /// The checks failed too often in a row on a verified node that is monitored.
    pub(crate) fn found_unsound(&mut self, uid: &Uid, now: Timestamp) {
        self.unsound.insert(uid.clone(), now);
    }

    /// A node has changed or is gone.
    pub(crate) fn node_changed(
        &mut self,
        name: &NodeName,
        is: Option<&NodeView>,
        config: &Config,
        now: Timestamp,
    ) {
        self.managed.note(name, is.is_some_and(|node| is_managed(node, config)), now);
    }

    /// The configuration was edited.
    pub(crate) fn config_changed(&mut self, api: &Api, config: &Config, now: Timestamp) {
        for (_, node) in api.nodes() {
            self.node_changed(&node.view.id.name, Some(&node.view), config, now);
        }
    }

    /// The pools were edited.
    pub(crate) fn pools_changed(&mut self, pools: &[PoolView], now: Timestamp) {
        self.pools.note(pools, now);
    }

    /// The most writes that any node has cost.
    pub(crate) fn most_writes(&self) -> usize {
        self.writes.values().copied().max().unwrap_or(0)
    }

    /// The most workers that were started for any node.
    pub(crate) fn most_workers(&self) -> usize {
        self.workers.values().copied().max().unwrap_or(0)
    }

    /// Holds what a process has decided against the rules.
    pub(crate) fn decided(&mut self, decided: &Decided<'_>, leading: bool, sole: bool, now: Timestamp) {
        if leading {
            self.brake_is_needed(decided);
        }
        if decided.orders.is_empty() {
            return;
        }
        if !leading {
            self.violate("", Rule::S6, "a replica that does not lead gives orders");
        }
        if decided.config.reconciliation.dry_run {
            self.violate("", Rule::S6, "orders are given in a dry run");
        }
        self.slots(decided);
        // What another leader closes at the same time cannot be known.
        if sole {
            self.brake(decided, now);
        }
    }

    /// Holds a request that is about to be sent against the configuration which its sender has by now.
    pub(crate) fn sent(&mut self, request: &Request, config: &Config, api: &Api) {
        let node = request.order.action.node();
        let is_deletion = matches!(request.order.action, Action::DeleteNode { .. });
        let is_asked_for = config.node_management.delete_failed_nodes
            && api.node(node.name.as_str()).is_none_or(|node| !is_excluded(&node.view, config));
        if is_deletion && !is_asked_for {
            self.violate(node.name.as_str(), Rule::OldConfig, "a node is deleted that is not to be any more");
        }
    }

    /// An order was taken back before it was sent.
    pub(crate) fn not_sent(&mut self, request: &Request) {
        self.closings.forget(request);
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self, request: &Request, outcome: &Outcome) {
        self.held.answered(request, outcome);
        match outcome {
            Outcome::Done(_) | Outcome::Unknown => {}
            Outcome::Conflict | Outcome::Refused(_) | Outcome::Unavailable => {
                self.closings.forget(request);
            }
        }
    }

    /// Holds a write that was carried out against the rules.
    pub(crate) fn after(&mut self, write: &Write<'_>) {
        let (action, config) = (write.action(), write.config());
        let (name, uid) = (action.node().name.as_str(), &action.node().uid);
        *self.writes.entry(uid.clone()).or_default() += 1;
        self.no_storm(action, write.now);
        let after = write.api.node(name);
        if let Action::StartWorker { .. } = action {
            *self.workers.entry(uid.clone()).or_default() += 1;
            if let Some(worker) = write.api.worker(&worker_name(uid)) {
                self.runs.made(&worker.id.uid, write.now);
            }
            self.one_worker(write.api, action);
        }
        let (Some(before), Some(after)) = (&write.before, after) else { return };
        self.nothing_of_others(config, before, after);
        if before != after && is_excluded(&before.view, config) {
            self.violate(name, Rule::Scope, "a node was changed that is to be left alone");
        }
        let (before, after) = (&before.view, &after.view);
        self.recorded(write, before, after);
        self.evidence(write, before, after);
        self.reason_to_close(write, before, after);
        if let Action::DeleteNode { claim, .. } = action {
            if *claim != before.claim {
                self.violate(name, Rule::S4, "a node was deleted without its NodeClaim");
            }
            self.right_to_delete(write, before);
        }
    }

    /// Nothing is tried again and again without a pause.
    fn no_storm(&mut self, action: &Action, now: Timestamp) {
        let burst = self.burst.entry(action.node().uid.clone()).or_default();
        *burst = if burst.0 == now.as_second() { (burst.0, burst.1 + 1) } else { (now.as_second(), 1) };
        if burst.1 > WRITES_A_SECOND {
            self.violate(action.node().name.as_str(), Rule::Storm, "too many writes to one node in a second");
        }
    }

    /// S3.
    fn one_worker(&mut self, api: &Api, action: &Action) {
        let node = action.node();
        let live = api
            .workers()
            .filter(|worker| worker.stamp.node == *node && !matches!(worker.stage, Stage::Ended(_)));
        if live.count() > 1 {
            self.violate(node.name.as_str(), Rule::S3, "two live workers for one node");
        }
    }

    /// A number for the state that a node is in, its identity aside.
    #[must_use]
    pub(crate) fn fingerprint(api: &Api, config: &Config, name: &str) -> Option<u64> {
        let node = &api.node(name)?.view;
        let state = state_of(node);
        let mut hasher = DefaultHasher::new();
        (is_closed(node, &config.node_management.taints), is_labelled(node, config), node.leaving)
            .hash(&mut hasher);
        node.taints.len().hash(&mut hasher);
        if let Some(state) = &state {
            (state.phase as u8, state.attempt, state.inconclusive, state.boot == node.boot).hash(&mut hasher);
        }
        let worker = api.worker(&worker_name(&node.id.uid));
        if let Some(worker) = worker {
            let current = worker.stamp.serial == state.as_ref().map_or(0, |state| state.serial) + 1;
            let progress = match &worker.stage {
                Stage::Pending(_) => 0,
                Stage::Running => 1,
                Stage::Ended(Ending::Exited { code: 0, .. }) => 2,
                Stage::Ended(_) => 3,
            };
            (current, progress, worker.leaving, worker.stamp.boot == node.boot).hash(&mut hasher);
        }
        Some(hasher.finish())
    }
}

/// Control plane nodes and those that the configuration excludes.
fn is_excluded(node: &NodeView, config: &Config) -> bool {
    let settings = &config.node_management;
    let control_plane = names::CONTROL_PLANE_LABELS.iter().any(|label| node.labels.contains_key(label));
    (control_plane && !settings.include_control_plane)
        || settings.exclude.iter().any(|selector| selector.matches(&node.labels))
}

/// Nodes that the controller looks after.
fn is_managed(node: &NodeView, config: &Config) -> bool {
    !node.leaving
        && !is_excluded(node, config)
        && (is_closed(node, &config.node_management.taints)
            || node.annotations.contains_key(names::STATE_ANNOTATION))
}

fn is_paused(node: &NodeView) -> bool {
    node.annotations.get(names::PAUSED_ANNOTATION).is_some_and(|value| value != "false")
}

fn our_taints(config: &Config) -> impl Iterator<Item = &Taint> {
    config.node_management.taints.iter().chain(config.gates.iter().map(|gate| &gate.taint))
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

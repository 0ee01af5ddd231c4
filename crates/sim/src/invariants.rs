//! The rules that must never break, checked against the true state of the cluster at every decision and every write.

mod brake;
mod closings;
mod deletion;
mod end;
mod fingerprint;
mod gates;
mod managed;
mod node;
mod recovery;
mod rule;
mod runs;
mod slots;
mod trial;
mod verdicts;

pub(crate) use end::at_end;
pub(crate) use recovery::look;
pub(crate) use rule::Rule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use knr_core::action::{Action, Closing, worker_name};
use knr_core::config::{Config, OnReboot};
use knr_core::engine::Outcome;
use knr_core::fault::Blame;
use knr_core::ids::{BootId, NodeName, Uid};
use knr_core::state::StatePhase;
use knr_core::view::{NodeView, PoolView, Stage};

use crate::actors::Machine;
use crate::api::{Api, NodeObject};
use crate::outages::Outages;
use crate::run::Decided;
use crate::scenario::InitPod;
use crate::writers::Request;
use brake::FailedAgain;
use closings::Closings;
use managed::{Count, Pools};
use node::{
    is_closed, is_excluded, is_in_scope, is_labelled, is_managed, is_open, is_paused, is_unproven,
    our_taints, state_of,
};
use recovery::Recovery;
use runs::Runs;
use trial::Knowledge;

/// The limit of writes to one node. Two leaders that both see a node open and clean up come close to it.
const WRITES_A_SECOND: usize = 20;

/// A rule that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    /// The rule, and how it was broken.
    pub(crate) rule: String,
    /// The node, or empty if the rule is about the cluster.
    pub(crate) node: String,
}

/// A write that was just carried out, and the true state of the cluster.
pub(crate) struct Write<'a> {
    /// The API server after the write.
    pub(crate) api: &'a Api,
    /// All machines.
    pub(crate) machines: &'a BTreeMap<String, Machine>,
    /// All outages.
    pub(crate) outages: &'a Outages,
    /// The write.
    pub(crate) request: &'a Request,
    /// The node before the write.
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

/// Knows the true state of the cluster, and checks every decision and every write against the rules.
#[derive(Debug)]
pub(crate) struct Monitor {
    broken: Option<Broken>,
    /// Nodes and boots with a worker that passed, where nothing has happened since that requires another proof.
    proofs: BTreeSet<(Uid, BootId)>,
    /// Nodes and boots with a worker that passed, regardless of what has happened since.
    ended_well: BTreeSet<(Uid, BootId)>,
    /// Nodes and boots on which an init pod of this component in this namespace was really ready.
    init_proofs: BTreeSet<(Uid, BootId, &'static str, &'static str)>,
    /// All runs of the checks.
    runs: Runs,
    /// What each process has learned of failures and trouble.
    knowledge: Knowledge,
    /// When the controller deleted each node.
    deletions: BTreeMap<Uid, Timestamp>,
    /// Writes for each node, including Kubernetes events.
    writes: BTreeMap<Uid, usize>,
    /// Workers started for each node.
    workers: BTreeMap<Uid, usize>,
    /// When a verdict against a node was last recorded.
    failed: BTreeMap<Uid, Timestamp>,
    /// Writes for each node in the current second.
    burst: BTreeMap<Uid, (i64, usize)>,
    /// The number of managed nodes over time.
    managed: Count,
    /// The number of nodes in scope over time.
    in_scope: Count,
    /// Karpenter's pools over time.
    pools: Pools,
    /// Closings of nodes that failed again, which were decided and may still be in flight.
    failed_again: FailedAgain,
    /// What each process has closed.
    closings: Closings,
    /// Since when each closed node must be on its way to being open.
    recovery: Recovery,
    /// Nodes whose orders are in flight or have failed.
    held: slots::Held,
    /// Nodes that somebody opened by hand. The controller leaves them alone.
    by_hand: BTreeSet<Uid>,
    /// When monitoring last found that the checks fail too often in a row on a verified node.
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
            knowledge: Knowledge::default(),
            deletions: BTreeMap::new(),
            writes: BTreeMap::new(),
            workers: BTreeMap::new(),
            failed: BTreeMap::new(),
            burst: BTreeMap::new(),
            managed: Count::default(),
            in_scope: Count::default(),
            pools: Pools::new(pools, now),
            failed_again: FailedAgain::default(),
            closings: Closings::default(),
            recovery: Recovery::default(),
            held: slots::Held::default(),
            by_hand: BTreeSet::new(),
            unsound: BTreeMap::new(),
        }
    }

    /// Records a broken rule. Only the first one is kept.
    pub(crate) fn violate(&mut self, node: &str, rule: Rule, how: impl std::fmt::Display) {
        if self.broken.is_none() {
            self.broken = Some(Broken { rule: format!("{rule}: {how}"), node: node.to_owned() });
        }
    }

    /// Returns the first rule that was broken.
    #[must_use]
    pub(crate) fn broken(&self) -> Option<Broken> {
        self.broken.clone()
    }

    /// A worker starts running.
    pub(crate) fn run_began(&mut self, worker: &Uid, now: Timestamp) {
        self.runs.began(worker, now);
    }

    /// A worker will never end by itself, on a broken machine or because of an outage.
    pub(crate) fn run_hangs(&mut self, worker: &Uid, in_outage: bool) {
        self.runs.hangs(worker, in_outage);
    }

    /// A worker really passed on this machine.
    pub(crate) fn run_passed(&mut self, worker: &Uid, node: &Uid, boot: &BootId, now: Timestamp) {
        self.proofs.insert((node.clone(), boot.clone()));
        self.ended_well.insert((node.clone(), boot.clone()));
        self.runs.passed(worker, node, now);
    }

    /// The checks really failed on this machine: whose fault the report shows it to be, and whether only an outage made
    /// them fail.
    pub(crate) fn run_failed(
        &mut self,
        worker: &Uid,
        node: (&Uid, &BootId),
        why: (Blame, bool),
        now: Timestamp,
    ) {
        self.runs.failed(worker, node, why, now);
    }

    /// An init pod is really ready on this machine.
    pub(crate) fn init_pod_ready(&mut self, uid: &Uid, boot: &BootId, pod: InitPod) {
        self.init_proofs.insert((uid.clone(), boot.clone(), pod.component, pod.namespace));
    }

    /// An operator removes the verified label. The earlier proof no longer counts, unless the node had to be verified
    /// again anyway.
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

    /// Somebody opened a node, by hand or by removing its taint from the configuration.
    pub(crate) fn opened_by_hand(&mut self, uid: &Uid) {
        self.by_hand.insert(uid.clone());
    }

    /// Monitoring found that the checks fail too often in a row on a verified node.
    pub(crate) fn found_unsound(&mut self, uid: &Uid, now: Timestamp) {
        self.unsound.insert(uid.clone(), now);
    }

    /// A node was changed or removed.
    pub(crate) fn node_changed(
        &mut self,
        name: &NodeName,
        is: Option<&NodeView>,
        config: &Config,
        now: Timestamp,
    ) {
        self.managed.note(name, is.is_some_and(|node| is_managed(node, config)), now);
        self.in_scope.note(name, is.is_some_and(|node| is_in_scope(node, config)), now);
        if is.is_none_or(|node| !node.ready || !is_in_scope(node, config)) {
            self.recovery.touched(Some(name.as_str()));
        }
        if let Some(node) = is.filter(|node| is_open(node, config)) {
            self.closings.opened(&node.id.uid);
        }
    }

    /// The configuration was edited.
    pub(crate) fn config_changed(&mut self, api: &Api, config: &Config, now: Timestamp) {
        self.touched(None);
        for (_, node) in api.nodes() {
            self.node_changed(&node.view.id.name, Some(&node.view), config, now);
        }
    }

    /// Something happened that may delay the verification of a node, or of all nodes.
    pub(crate) fn touched(&mut self, node: Option<&str>) {
        self.recovery.touched(node);
    }

    /// An event about a node was lost, or about a pool.
    pub(crate) fn event_lost(&mut self, node: Option<&NodeName>, now: Timestamp) {
        match node {
            Some(node) => self.recovery.lost(node.as_str(), now + brake::LEARNED_WITHIN),
            None => self.pools.lost(now),
        }
    }

    /// The pools were edited.
    pub(crate) fn pools_changed(&mut self, pools: &[PoolView], now: Timestamp) {
        self.pools.note(pools, now);
    }

    /// Returns the most writes that any node has cost.
    pub(crate) fn most_writes(&self) -> usize {
        self.writes.values().copied().max().unwrap_or(0)
    }

    /// Returns the most workers that were started for any node.
    pub(crate) fn most_workers(&self) -> usize {
        self.workers.values().copied().max().unwrap_or(0)
    }

    /// Checks the decisions of a process against the rules.
    pub(crate) fn decided(&mut self, decided: &Decided<'_>, leading: bool, sole: bool, now: Timestamp) {
        if leading {
            self.brake_is_needed(decided);
        }
        self.learned(decided, now);
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
        // A leader cannot know which nodes another leader closes at the same time.
        if sole {
            self.brake(decided, now);
            self.may_close_and_charge(decided, now);
        }
    }

    /// Checks a request that is about to be sent against the current configuration of its sender.
    pub(crate) fn sent(&mut self, request: &Request, config: &Config, api: &Api) {
        let (name, settings) = (&request.order.action.node().name, &config.node_management);
        let is_excluded = || api.node(name.as_str()).is_some_and(|node| is_excluded(&node.view, config));
        let is_forbidden = match &request.order.action {
            Action::DeleteNode { .. } => !settings.delete_failed_nodes || is_excluded(),
            Action::CloseGate { because: Closing::Backfill, .. } => !settings.backfill,
            Action::CloseGate { because: Closing::Rebooted, .. } => settings.on_reboot != OnReboot::Close,
            _ => false,
        };
        if is_forbidden {
            let how = format!("{} although the configuration forbids it by now", request.order.action);
            self.violate(name.as_str(), Rule::OldConfig, how);
        }
    }

    /// An order was withdrawn before it was sent.
    pub(crate) fn not_sent(&mut self, request: &Request) {
        self.failed_again.forget(request);
        self.closings.settled(request);
    }

    /// A process leads no longer, or has learned of a restore.
    pub(crate) fn starts_over(&mut self, replica: usize, life: u32) {
        self.closings.forget((replica, life));
        self.held.starts_over((replica, life));
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self, request: &Request, outcome: &Outcome, now: Timestamp) {
        self.held.answered(request, outcome);
        self.reference_known(request, outcome, now);
        self.closings.settled(request);
        match outcome {
            Outcome::Done(_) | Outcome::Unknown => {}
            Outcome::Conflict | Outcome::Refused(_) | Outcome::Unavailable => {
                self.failed_again.forget(request);
            }
        }
    }

    /// Checks a write that was carried out against the rules.
    pub(crate) fn after(&mut self, write: &Write<'_>) {
        let (action, config) = (write.action(), write.config());
        let (name, uid) = (action.node().name.as_str(), &action.node().uid);
        *self.writes.entry(uid.clone()).or_default() += 1;
        self.no_storm(action, write.now);
        self.closings.carried_out(write.request);
        let after = write.api.node(name);
        if let Action::StartWorker { stamp } = action {
            *self.workers.entry(uid.clone()).or_default() += 1;
            if let Some(worker) = write.api.worker(&worker_name(uid)) {
                self.runs.made(&worker.id.uid, stamp, write.now);
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
        self.reference_recorded(write, before, after);
        self.evidence(write, before, after);
        self.reason_to_close(write, before, after);
        if let Action::DeleteNode { claim, .. } = action {
            if *claim != before.claim {
                self.violate(name, Rule::S4, "a node was deleted without its NodeClaim");
            }
            self.right_to_delete(write, before);
        }
    }

    /// Nothing is retried in a tight loop.
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
}

//! L3: when many nodes fail at once, the cluster is suspected: nothing is deleted, and no open node is closed.
//!
//! The brake is on while more than one and more than `maxFailingPercent` of the managed nodes fail. A node that fails is
//! one of those that fail, so the bound holds at every single closing and deletion: the nodes that fail then, this one
//! among them, are no more than `max(1, floor(maxFailingPercent / 100 * managed))`. From this follows that no more nodes
//! than that are ever closed because they failed again and still are, if they are tried again at least every two minutes.
//!
//! What counts as failing is what the process that decides cannot say it did not know, so the bound is checked when it
//! decides, not when its request arrives: meanwhile further nodes may fail.
//!
//! - One by one ([`Rule::Brake`]): nodes that carry a failure of the last two minutes and are closed, and those whose
//!   closing this process has ordered and not yet heard of.
//! - At once ([`Rule::BrakeAtOnce`]): also nodes whose worker it knows to have failed, though that is not yet recorded. If
//!   more nodes than the threshold are found to have failed since the last decision, none of them is closed.
//!
//! Slack: of the managed nodes the most are taken that there were in ten minutes, for so long it may take to learn that
//! a node is gone. While two processes lead, neither can know what the other closes at the same time, and nothing is checked.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use knr_core::action::{Action, Closing};
use knr_core::explain::Trouble;
use knr_core::ids::{NodeRef, Uid};
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{NodeView, Purpose, Stage};
use knr_core::world::NodeEntry;

use super::{Monitor, Rule, is_closed, is_excluded, is_paused};
use crate::run::Decided;
use crate::writers::Request;

/// A node that keeps failing is tried again, and found to fail again, within this time.
const RECENT: SignedDuration = SignedDuration::from_mins(2);
/// How long it may take to learn that a node is gone.
const LEARNED_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// An order that was not answered after this long is not under way any more: queue, request and patience.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(45);

/// Closings that were decided and may still be under way, by replica, its life and the node.
#[derive(Debug, Default)]
pub(super) struct Closings(BTreeMap<(usize, u32, Uid), Timestamp>);

impl Closings {
    fn note(&mut self, decided: &Decided<'_>, node: &Uid, now: Timestamp) {
        self.0.insert((decided.replica, decided.life, node.clone()), now);
    }

    /// A request was answered, and was not carried out.
    pub(super) fn forget(&mut self, request: &Request) {
        let node = request.order.action.node().uid.clone();
        self.0.remove(&(request.replica, request.life, node));
    }

    fn under_way(&mut self, decided: &Decided<'_>, now: Timestamp) -> BTreeSet<Uid> {
        self.0.retain(|_, at| now.duration_since(*at) < UNDER_WAY);
        let own = self.0.keys().filter(|(id, life, _)| (*id, *life) == (decided.replica, decided.life));
        own.map(|(_, _, node)| node.clone()).collect()
    }
}

/// It was closed and has passed since, or a person has opened it since, or its closing has not been carried out yet and it
/// is not known to fail.
fn counts_no_longer(decided: &Decided<'_>, uid: &Uid) -> bool {
    let taints = &decided.config.node_management.taints;
    decided.engine.world().entries().any(|(_, entry)| {
        let is_open = |view: &NodeView| view.id.uid == *uid && !is_closed(view, taints);
        let is_well = |state: &NodeState| match state.phase {
            StatePhase::Verified => state.cause.is_none(),
            StatePhase::Failed | StatePhase::Unverified => !state.stays_open,
        };
        entry.view.as_ref().is_some_and(is_open) && entry.state.as_ref().is_some_and(is_well)
    })
}

impl Monitor {
    /// Holds closings and deletions that were just decided against the brake.
    pub(super) fn brake(&mut self, decided: &Decided<'_>, now: Timestamp) {
        for order in decided.orders {
            match &order.action {
                Action::CloseGate { node, because: Closing::FailedAgain, .. } => {
                    self.closings.note(decided, &node.uid, now);
                    self.hold_against_brake(decided, node, "closed", now);
                }
                Action::DeleteNode { node, .. } => self.hold_against_brake(decided, node, "deleted", now),
                _ => {}
            }
        }
    }

    /// The brake is on only for nodes that are looked after and may fail now: anything else would keep it on for good.
    pub(super) fn brake_is_needed(&mut self, decided: &Decided<'_>) {
        let Some(Trouble::ManyFail { failing, .. }) = decided.engine.trouble() else { return };
        // A worker fails as well by not starting or not ending in time.
        let may_fail = |_: &Self, entry: &NodeEntry| {
            !entry.workers.is_empty() || entry.state.as_ref().is_some_and(NodeState::is_failing)
        };
        let known = self.failing(decided, may_fail).len();
        if failing > known {
            let how = format!("{failing} nodes count as failing, and {known} that are looked after may fail");
            self.violate("", Rule::BrakeStuck, how);
        }
    }

    fn hold_against_brake(&mut self, decided: &Decided<'_>, node: &NodeRef, what: &str, now: Timestamp) {
        let managed = self.managed.most_since(now - LEARNED_WITHIN);
        let limits = &decided.config.limits.deletion;
        let mut failing = self.closings.under_way(decided, now);
        failing.retain(|uid| !counts_no_longer(decided, uid));
        failing.insert(node.uid.clone());
        failing.extend(
            self.failing(decided, |monitor, entry| monitor.has_recorded_failure(decided, entry, now)),
        );
        if limits.too_many_failing(failing.len(), managed) {
            let how = format!("a node is {what} although {} of {managed} nodes fail", failing.len());
            self.violate(node.name.as_str(), Rule::Brake, how);
        }
        failing.extend(self.failing(decided, Self::has_known_failure));
        if limits.too_many_failing(failing.len(), managed) {
            let how =
                format!("a node is {what} although {} of {managed} nodes are known to fail", failing.len());
            self.violate(node.name.as_str(), Rule::BrakeAtOnce, how);
        }
    }

    /// Nodes that are looked after and of which the process knows that they fail.
    fn failing(&self, decided: &Decided<'_>, fails: impl Fn(&Self, &NodeEntry) -> bool) -> BTreeSet<Uid> {
        let entries = decided.engine.world().entries().map(|(_, entry)| entry);
        let failing = entries.filter_map(|entry| {
            let view = entry.view.as_ref()?;
            let counts = !view.leaving && !is_excluded(view, decided.config) && !is_paused(view);
            (counts && fails(self, entry)).then(|| view.id.uid.clone())
        });
        failing.collect()
    }

    /// It carries the failure, and is closed.
    fn has_recorded_failure(&self, decided: &Decided<'_>, entry: &NodeEntry, now: Timestamp) -> bool {
        let (Some(view), Some(state)) = (&entry.view, &entry.state) else { return false };
        let recorded = self.failed.get(&view.id.uid);
        state.phase == StatePhase::Failed
            && state.is_failing()
            && state.boot == view.boot
            && is_closed(view, &decided.config.node_management.taints)
            && recorded.is_some_and(|at| now.duration_since(*at) < RECENT)
    }

    /// Its worker has failed, which is not recorded yet.
    fn has_known_failure(&self, entry: &NodeEntry) -> bool {
        let Some(view) = &entry.view else { return false };
        let next = entry.state.as_ref().map_or(0, |state| state.serial) + 1;
        entry.workers.values().map(|worker| &worker.view).any(|worker| {
            let stamp = &worker.stamp;
            (&stamp.node, &stamp.boot, stamp.serial, stamp.purpose)
                == (&view.id, &view.boot, next, Purpose::Verify)
                && matches!(worker.stage, Stage::Ended(_))
                && !worker.leaving
                && self.runs.has_failed(&worker.id.uid)
        })
    }
}

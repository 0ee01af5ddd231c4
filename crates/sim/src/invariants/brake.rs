//! L3: when many nodes fail at once, the cluster is suspected. Then no node is deleted, and no open node is closed.
//!
//! The brake is on while more than one node and more than `maxFailingPercent` of the managed nodes fail. The node that
//! is closed or deleted is itself one of the failing nodes, so this bound holds at every closing and deletion: at most
//! `max(1, floor(maxFailingPercent / 100 * managed))` nodes fail at that time. It follows that at any time no more
//! nodes than that are closed because they failed again, if they are tried again at least every two minutes.
//!
//! Only failures that the deciding process must know of count. The bound is therefore checked when it decides, not when
//! its request arrives: in the meantime more nodes may fail.
//!
//! - One by one ([`Rule::Brake`]): closed nodes with a failure that was recorded in the last two minutes, whether as a
//!   failed attempt or, while the brake is on, as the fault of the cluster; and nodes whose closing this process has
//!   ordered without an answer so far.
//! - At once ([`Rule::BrakeAtOnce`]): also nodes whose worker the process knows to have failed, although that is not
//!   recorded yet. If more nodes than the threshold have failed since the last decision, none of them is closed.
//!
//! Slack: the number of managed nodes is the maximum of the last ten minutes, because it may take that long to learn
//! that a node is gone. While two processes lead, nothing is checked, because neither can know what the other closes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use knr_core::action::{Action, Closing};
use knr_core::explain::Trouble;
use knr_core::fault::Blame;
use knr_core::ids::{NodeRef, Uid};
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{Purpose, Stage};
use knr_core::world::NodeEntry;

use super::{Monitor, Rule, is_closed, is_excluded, is_paused};
use crate::run::Decided;
use crate::writers::Request;

/// A node that keeps failing is tried again, and fails again, within this time.
const RECENT: SignedDuration = SignedDuration::from_mins(2);
/// The maximum time that it may take to learn that a node is gone.
pub(super) const LEARNED_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// An order without an answer after this time is no longer in flight. It covers the queue, the request and a margin.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(50);

/// Closings of nodes that failed again, which were decided and may still be in flight, by replica, its life and the node.
#[derive(Debug, Default)]
pub(super) struct FailedAgain(BTreeMap<(usize, u32, Uid), Timestamp>);

impl FailedAgain {
    fn note(&mut self, decided: &Decided<'_>, node: &Uid, now: Timestamp) {
        self.0.insert((decided.replica, decided.life, node.clone()), now);
    }

    /// Drops a request that was not carried out.
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

/// Returns whether a node was closed and has passed since, was opened by an operator since, is still open and not known
/// to fail, or is known to be gone.
fn counts_no_longer(decided: &Decided<'_>, uid: &Uid) -> bool {
    let taints = &decided.config.node_management.taints;
    let is_well = |state: &NodeState| match state.phase {
        StatePhase::Verified => state.cause.is_none(),
        StatePhase::Failed | StatePhase::Unverified => !state.stays_open,
    };
    let mut known = decided.engine.world().entries().map(|(_, entry)| entry);
    let seen = known.find_map(|entry| Some((entry.view.as_ref().filter(|view| view.id.uid == *uid)?, entry)));
    seen.is_none_or(|(view, entry)| !is_closed(view, taints) && entry.state.as_ref().is_some_and(is_well))
}

impl Monitor {
    /// Checks closings and deletions that were just decided against the brake.
    pub(super) fn brake(&mut self, decided: &Decided<'_>, now: Timestamp) {
        for order in decided.orders {
            match &order.action {
                Action::CloseGate { node, because: Closing::FailedAgain, .. } => {
                    self.failed_again.note(decided, &node.uid, now);
                    self.hold_against_brake(decided, node, "closed", now);
                }
                Action::DeleteNode { node, .. } => self.hold_against_brake(decided, node, "deleted", now),
                _ => {}
            }
        }
    }

    /// Only managed nodes that may be failing now turn the brake on. Any other node would keep it on for good.
    pub(super) fn brake_is_needed(&mut self, decided: &Decided<'_>) {
        let Some(Trouble::ManyFail { failing, .. }) = decided.engine.trouble() else { return };
        // A worker also fails by not starting or not ending in time.
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
        let mut failing = self.failed_again.under_way(decided, now);
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

    /// Returns whether a process must know that too many nodes fail at once.
    pub(super) fn is_in_trouble(&self, decided: &Decided<'_>, now: Timestamp) -> bool {
        let managed = self.managed.most_since(now - LEARNED_WITHIN);
        let required = &decided.engine.policies().fallback().requires;
        let failing = self.failing(decided, |monitor, entry| {
            let is_required = entry.workers.values().all(|worker| worker.view.stamp.requires == *required);
            let recorded = entry.state.as_ref().and_then(|state| state.requires.as_ref());
            let is_recorded_required = recorded.is_none_or(|recorded| recorded == required);
            is_recorded_required && monitor.has_recorded_failure(decided, entry, now)
                || is_required && monitor.has_known_failure(entry)
        });
        decided.config.limits.deletion.too_many_failing(failing.len(), managed)
    }

    /// Returns the managed nodes that the process knows to fail.
    fn failing(&self, decided: &Decided<'_>, fails: impl Fn(&Self, &NodeEntry) -> bool) -> BTreeSet<Uid> {
        let entries = decided.engine.world().entries().map(|(_, entry)| entry);
        let failing = entries.filter_map(|entry| {
            let view = entry.view.as_ref()?;
            let counts = !view.leaving && !is_excluded(view, decided.config) && !is_paused(view);
            (counts && fails(self, entry)).then(|| view.id.uid.clone())
        });
        failing.collect()
    }

    /// Returns whether a failure is recorded on the node, and the node is closed.
    fn has_recorded_failure(&self, decided: &Decided<'_>, entry: &NodeEntry, now: Timestamp) -> bool {
        let (Some(view), Some(state)) = (&entry.view, &entry.state) else { return false };
        let recorded = self.failed.get(&view.id.uid);
        state.is_failing()
            && *state.run_boot.as_ref().unwrap_or(&state.boot) == view.boot
            && is_closed(view, &decided.config.node_management.taints)
            && recorded.is_some_and(|at| now.duration_since(*at) < RECENT)
    }

    /// Returns whether the node's worker has failed, which is not recorded yet.
    fn has_known_failure(&self, entry: &NodeEntry) -> bool {
        let Some(view) = &entry.view else { return false };
        let next = entry.state.as_ref().map_or(0, |state| state.serial) + 1;
        entry.workers.values().map(|worker| &worker.view).any(|worker| {
            let stamp = &worker.stamp;
            (&stamp.node, &stamp.boot, stamp.serial, stamp.purpose)
                == (&view.id, &view.boot, next, Purpose::Verify)
                && matches!(worker.stage, Stage::Ended(_))
                && !worker.leaving
                && matches!(self.runs.blame(&worker.id.uid), Some(Blame::Node | Blame::Cluster))
        })
    }
}

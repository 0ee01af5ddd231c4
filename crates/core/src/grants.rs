//! What is scarce across the cluster, and who gets it: worker slots, closings of open nodes, final attempts, deletions.
//!
//! A decision about one node asks here before it takes any of these. Slots, final attempts and deletions count from the
//! moment they are granted, so nodes that ask in the same turn do not all get the last one. No node is closed or charged
//! while the cluster is suspected; for that, results count from when they are known, before anything is decided.

pub(crate) mod fleet;
pub(crate) mod slots;

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::action::Action;
use crate::explain::{NotDeleted, Trouble};
use crate::ids::{NodeName, NodeRef};
use crate::policy::Policy;
use crate::view::LedgerEntry;
use crate::world::World;
use fleet::Fleet;
use slots::Slots;

#[derive(Debug, Default)]
pub struct Grants {
    pub(crate) fleet: Fleet,
    pub(crate) slots: Slots,
    /// Nodes on which the attempt is under way that may lead to their deletion.
    final_attempts: BTreeSet<NodeName>,
    /// The node whose deletion is being reserved. There is one ledger, so only one reservation at a time can succeed.
    reserving: Option<NodeName>,
}

/// Whether a node may be deleted.
pub(crate) enum Deletion {
    Denied(NotDeleted),
    /// The ledger has an entry for it.
    Reserved,
    /// It may be reserved, by this.
    Free(Action),
}

impl Grants {
    /// Why no node may be closed, charged with an attempt or deleted now: the cluster itself is suspected.
    pub(crate) fn trouble(&self, policy: &Policy, now: Timestamp) -> Option<Trouble> {
        self.fleet.trouble(&policy.limits, now)
    }

    /// Whether a node may be deleted within the budget of an hour.
    pub(crate) fn deletion(
        &self,
        node: &NodeRef,
        policy: &Policy,
        world: &World,
        now: Timestamp,
    ) -> Deletion {
        let Some(ledger) = world.ledger() else { return Deletion::Denied(NotDeleted::LedgerUnread) };
        let mut entries: Vec<LedgerEntry> = world.recent_deletions(now).cloned().collect();
        if entries.iter().any(|entry| entry.node == *node) {
            return Deletion::Reserved;
        }
        if self.reserving.as_ref().is_some_and(|other| *other != node.name) {
            return Deletion::Denied(NotDeleted::Reserving);
        }
        if let Some(denied) = self.over_budget(entries.len(), policy) {
            return Deletion::Denied(denied);
        }
        entries.push(LedgerEntry { node: node.clone(), at: now });
        Deletion::Free(Action::ReserveDeletion { node: node.clone(), version: ledger.version, entries })
    }

    /// Why a node does not get its final attempt now, if it does not: no more of them are under way than nodes may still be
    /// deleted.
    pub(crate) fn final_attempt(
        &self,
        node: &NodeName,
        policy: &Policy,
        world: &World,
        now: Timestamp,
    ) -> Option<NotDeleted> {
        let others = self.final_attempts.iter().filter(|other| *other != node).count();
        let denied = self.over_budget(world.recent_deletions(now).count() + others, policy);
        denied.map(|_| NotDeleted::OthersFirst)
    }

    fn over_budget(&self, used: usize, policy: &Policy) -> Option<NotDeleted> {
        let allowed = policy.limits.per_hour(self.fleet.managed());
        (used >= allowed).then_some(NotDeleted::Budget { used, allowed })
    }

    /// Takes note of whether a final attempt is under way on a node.
    pub(crate) fn note_final_attempt(&mut self, node: &NodeName, is_under_way: bool) {
        if is_under_way {
            self.final_attempts.insert(node.clone());
        } else {
            self.final_attempts.remove(node);
        }
    }

    /// An order was given.
    pub(crate) fn ordered(&mut self, action: &Action) {
        match action {
            Action::StartWorker { .. } => self.slots.asked_for += 1,
            Action::ReserveDeletion { node, .. } => self.reserving = Some(node.name.clone()),
            _ => {}
        }
    }

    /// An order is no longer under way, whatever came of it.
    pub(crate) fn settled(&mut self, node: &NodeName, was_for_worker: bool) {
        self.slots.asked_for -= usize::from(was_for_worker);
        self.reserving.take_if(|reserving| reserving == node);
    }

    /// Nothing that was granted is under way any more.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.final_attempts.clear();
        self.reserving = None;
    }
}

#[cfg(test)]
mod tests;

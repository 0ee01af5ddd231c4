//! Grants of everything that is scarce across the cluster: worker slots, reference runs, closings of open nodes, final
//! attempts, deletions.
//!
//! A decision about one node asks here first. All of these count from the moment they are granted, so nodes that ask in
//! the same turn do not all get the last one. While the cluster is suspected, no node is closed or charged with an
//! attempt. For that purpose, results count as soon as they are known, before anything is decided.

pub(crate) mod fleet;
mod references;
pub(crate) mod slots;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::explain::{KeptOpen, NotDeleted, Trouble};
use crate::ids::{NodeName, NodeRef};
use crate::policy::Policy;
use crate::view::{LedgerEntry, Purpose};
use crate::world::World;
use fleet::{Counted, Fleet};
use references::References;
use slots::Slots;

/// A deletion happens within this long after it was reserved, or is reserved again. Otherwise the hour of its entry
/// would be over before an hour has passed since the deletion.
const RESERVED_FOR: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Default)]
pub struct Grants {
    pub(crate) fleet: Fleet,
    pub(crate) slots: Slots,
    /// Nodes whose final attempt, which may lead to their deletion, is under way.
    final_attempts: BTreeSet<NodeName>,
    /// Nodes that are closed if nothing runs there that would suffer. What runs there is being found out.
    asked: BTreeSet<NodeName>,
    pub(crate) references: References,
    /// The node whose deletion is being reserved. There is one ledger, so only one reservation at a time can succeed.
    reserving: Option<NodeName>,
    /// Nodes with an order that closes or deletes them, and that may not have been sent yet.
    harmful: BTreeSet<NodeName>,
}

/// Whether a node may be deleted.
pub(crate) enum Deletion {
    Denied(NotDeleted),
    /// The ledger has an entry for the node.
    Reserved,
    /// It may be reserved, by this action.
    Free(Action),
}

impl Grants {
    /// Returns why the cluster itself is suspected, if it is. No node may then be closed, charged with an attempt or
    /// deleted.
    pub(crate) fn trouble(&self, policy: &Policy, now: Timestamp) -> Option<Trouble> {
        self.fleet.trouble(&policy.limits, now)
    }

    /// Returns why an open node may not be closed now, if it may not: the cluster is suspected, or so many nodes are
    /// closed that closing one more could leave too little of the cluster open.
    pub(crate) fn closing(&self, node: &NodeName, policy: &Policy, now: Timestamp) -> Option<KeptOpen> {
        if let Some(trouble) = self.trouble(policy, now) {
            return Some(KeptOpen::Trouble(trouble));
        }
        let closed = self.closed_besides(node, policy);
        let of = self.fleet.in_scope();
        let is_denied = policy.limits.too_many_failing(closed + 1, of);
        is_denied.then_some(KeptOpen::ManyClosed { closed, of })
    }

    fn closed_besides(&self, node: &NodeName, policy: &Policy) -> usize {
        let counted = if policy.backfill { Counted::Closed } else { Counted::Unproven };
        self.fleet.closed_besides(node, counted)
    }

    /// Returns whether it is worth a request to find out what runs on a node: it could be closed even if all other nodes
    /// that are asked about are closed.
    pub(crate) fn may_ask(&self, node: &NodeName, policy: &Policy) -> bool {
        let others = self.asked.len() - usize::from(self.asked.contains(node));
        let closed = self.closed_besides(node, policy) + others;
        !policy.limits.too_many_failing(closed + 1, self.fleet.in_scope())
    }

    /// Records whether it is being found out what runs on a node.
    pub(crate) fn note_asked(&mut self, node: &NodeName, is_asked: bool) {
        if is_asked {
            self.asked.insert(node.clone());
        } else {
            self.asked.remove(node);
        }
    }

    /// A node is open, and nothing is under way that closes it.
    pub(crate) fn note_open(&mut self, node: &NodeName) {
        self.fleet.expect_closed(node, false);
    }

    /// Decides whether a node may be deleted within the hourly budget.
    pub(crate) fn deletion(
        &self,
        node: &NodeRef,
        policy: &Policy,
        world: &World,
        now: Timestamp,
    ) -> Deletion {
        let Some(ledger) = world.ledger() else { return Deletion::Denied(NotDeleted::LedgerUnread) };
        let is_this = |entry: &LedgerEntry| entry.node == *node;
        let holds = |entry: &LedgerEntry| now.duration_since(entry.at).abs() < RESERVED_FOR;
        if world.recent_deletions(now).any(|entry| is_this(entry) && holds(entry)) {
            return Deletion::Reserved;
        }
        let others = world.recent_deletions(now).filter(|entry| !is_this(entry));
        let mut entries: Vec<LedgerEntry> = others.cloned().collect();
        if self.reserving.as_ref().is_some_and(|other| *other != node.name) {
            return Deletion::Denied(NotDeleted::Reserving);
        }
        if let Some(denied) = self.over_budget(entries.len(), policy) {
            return Deletion::Denied(denied);
        }
        entries.push(LedgerEntry { node: node.clone(), at: now });
        Deletion::Free(Action::ReserveDeletion { node: node.clone(), version: ledger.version, entries })
    }

    /// Returns why a node is denied its final attempt, if it is. There are never more of them under way than nodes may
    /// still be deleted.
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

    /// Records whether a final attempt is under way on a node.
    pub(crate) fn note_final_attempt(&mut self, node: &NodeName, is_under_way: bool) {
        if is_under_way {
            self.final_attempts.insert(node.clone());
        } else {
            self.final_attempts.remove(node);
        }
    }

    /// Returns whether a reference run is under way or ordered. There is at most one at a time.
    pub(crate) fn runs_reference(&self) -> bool {
        self.references.is_ordered() || self.fleet.runs_reference()
    }

    /// From when on a reference run may be ordered, if a node waits for one and none is under way.
    pub(crate) fn reference_due(&self) -> Option<Timestamp> {
        self.references.due().filter(|_| !self.runs_reference())
    }

    /// Returns whether a reference run is under way, or could be made on another node than this one.
    pub(crate) fn can_make_reference(&self, node: &NodeName) -> bool {
        self.runs_reference() || self.fleet.references().any(|name| name != node)
    }

    /// Counts what an order uses up.
    pub(crate) fn ordered(&mut self, action: &Action, now: Timestamp) {
        match action {
            Action::StartWorker { stamp } => {
                self.slots.ordered.insert(stamp.node.name.clone());
                if stamp.purpose == Purpose::Reference {
                    self.fleet.asked_for_reference(&stamp.node.name, now);
                    self.references.order(&stamp.node.name, now);
                }
            }
            Action::CloseGate { node, .. } => {
                self.fleet.expect_closed(&node.name, true);
                self.harmful.insert(node.name.clone());
            }
            Action::ReserveDeletion { node, .. } => {
                self.reserving = Some(node.name.clone());
                self.harmful.insert(node.name.clone());
            }
            Action::DeleteNode { node, .. } => {
                self.harmful.insert(node.name.clone());
            }
            _ => {}
        }
    }

    /// Nodes with an order that closes or deletes them. None is to be sent while the cluster is suspected.
    pub(crate) fn harmful(&self) -> impl Iterator<Item = &NodeName> {
        self.harmful.iter()
    }

    /// No order is in flight for a node any more, and what became of the last one is known.
    pub(crate) fn settled(&mut self, node: &NodeName) {
        self.slots.ordered.remove(node);
        self.harmful.remove(node);
        self.reserving.take_if(|reserving| reserving == node);
        self.references.settled(node);
    }

    /// Forgets everything that was granted.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.final_attempts.clear();
        self.asked.clear();
        self.fleet.expect_nothing();
        self.reserving = None;
        self.harmful.clear();
        self.references = References::default();
    }
}

#[cfg(test)]
mod tests;

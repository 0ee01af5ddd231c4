//! Slots: a node without any attempt gets a worker before those that are tried again, however long these have waited.

use std::collections::BTreeMap;

use knr_core::action::Action;
use knr_core::engine::Outcome;
use knr_core::explain::{self, Wait};
use knr_core::ids::{NodeName, NodeRef};
use knr_core::state::StatePhase;
use knr_core::view::Purpose;

use super::{Monitor, Rule, is_closed};
use crate::run::Decided;
use crate::writers::Request;

/// A replica, its life, and a node.
type Key = (usize, u32, NodeName);

/// Orders that are in flight or had no effect. Such a node may have to wait.
#[derive(Debug, Default)]
pub(super) struct Held {
    why: BTreeMap<Key, Why>,
    /// The order that was carried out last.
    done: BTreeMap<Key, Action>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// An order with this ticket.
    UnderWay(u64),
    CameToNothing,
}

impl Held {
    /// A process reads every node again that had an order in flight, whatever the answer.
    pub(super) fn starts_over(&mut self, (replica, life): (usize, u32)) {
        let own = self.why.iter_mut().filter(|((id, its_life, _), _)| (*id, *its_life) == (replica, life));
        own.for_each(|(_, why)| *why = Why::CameToNothing);
    }

    pub(super) fn answered(&mut self, request: &Request, outcome: &Outcome) {
        let key = (request.replica, request.life, request.order.action.node().name.clone());
        let is_done = matches!(outcome, Outcome::Done(_));
        // The same order twice in a row had no effect the first time: the node is read again.
        let is_again = is_done
            && self.done.insert(key.clone(), request.order.action.clone()).as_ref()
                == Some(&request.order.action);
        if !is_done || is_again {
            self.why.insert(key, Why::CameToNothing);
        } else if self.why.get(&key) == Some(&Why::UnderWay(request.order.ticket)) {
            self.why.remove(&key);
        }
    }
}

impl Monitor {
    /// Checks the workers that are started against the nodes that wait for one.
    pub(super) fn slots(&mut self, decided: &Decided<'_>) {
        let mut again = decided.orders.iter().filter_map(|order| tried_before(decided, &order.action));
        if let Some(node) = again.next()
            && let Some(newcomer) = self.newcomer(decided)
        {
            let how = format!("{node} is tried again while {newcomer} waits for its first worker");
            self.violate(newcomer.name.as_str(), Rule::Slots, how);
        }
        for order in decided.orders {
            let key = (decided.replica, decided.life, order.action.node().name.clone());
            let why = self.held.why.entry(key).or_insert(Why::UnderWay(order.ticket));
            if matches!(why, Why::UnderWay(_)) {
                *why = Why::UnderWay(order.ticket);
            }
        }
    }

    /// Returns a node that is Ready, was never tried, and waits only for a slot.
    fn newcomer(&self, decided: &Decided<'_>) -> Option<NodeRef> {
        let waiting =
            decided.engine.explanations().filter(|(_, shown)| shown.why == explain::Why::Wait(Wait::Slot));
        let mut newcomers = waiting.filter_map(|(name, _)| {
            let entry = decided.engine.world().entry(name)?;
            let view = entry.view.as_ref()?;
            let is_ordered = decided.orders.iter().any(|order| order.action.node() == &view.id)
                || self.held.why.contains_key(&(decided.replica, decided.life, name.clone()));
            let is_new = entry.state.is_none() && entry.workers.is_empty() && view.ready;
            (is_new && !is_ordered).then(|| view.id.clone())
        });
        newcomers.next()
    }
}

fn tried_before<'a>(decided: &Decided<'_>, action: &'a Action) -> Option<&'a NodeRef> {
    let Action::StartWorker { stamp } = action else { return None };
    let entry = decided.engine.world().entry(&stamp.node.name)?;
    let (view, state) = (entry.view.as_ref()?, entry.state.as_ref()?);
    let is_closed = is_closed(view, &decided.config.node_management.taints);
    let was_tried = !is_closed || state.boot == view.boot && state.phase != StatePhase::Verified;
    (stamp.purpose == Purpose::Verify && was_tried).then_some(&stamp.node)
}

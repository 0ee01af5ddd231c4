//! Orders that have not been sent yet, and events.
//!
//! There is at most one order for each node. It can be taken back as long as it waits: because its node has changed,
//! because the configuration has, or because it was decided too long ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use knr_core::action::{Action, EventReason, Removal};
use knr_core::engine::{LONGEST_QUEUE, Order};
use knr_core::ids::NodeName;
use knr_core::view::ConditionStatus;
use tokio::time::Instant;

/// An event that could not be sent for this long is dropped.
const EVENT_EXPIRES: Duration = Duration::from_secs(30);
/// The ticket of an event, which is no order: nothing depends on what comes of it.
const EVENT_TICKET: u64 = u64::MAX;

/// Kinds of writes, by how much depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Opens or closes a node.
    Gate,
    /// An event that reports the deletion of a node. It is never dropped under load.
    Deletion,
    /// Leads to the next step in the life of a node.
    Step,
    /// Shows on the node that it was verified.
    Condition,
    /// Removes a worker that nothing waits for.
    Removal,
    /// An event.
    Event,
}

impl Lane {
    pub(super) fn of(action: &Action) -> Self {
        match action {
            Action::OpenGate { .. } | Action::CloseGate { .. } => Self::Gate,
            Action::StartWorker { .. }
            | Action::Record { .. }
            | Action::ReserveDeletion { .. }
            | Action::DeleteNode { .. }
            | Action::RemoveWorker { why: Removal::Heard | Removal::Outdated | Removal::NodeGone, .. } => {
                Self::Step
            }
            Action::SetCondition { condition, .. } if condition.status != ConditionStatus::True => Self::Step,
            Action::SetCondition { .. } => Self::Condition,
            Action::RemoveWorker { why: Removal::Spent, .. } => Self::Removal,
            Action::SendEvent { event, .. } if event.reason == EventReason::NodeDeleted => Self::Deletion,
            Action::SendEvent { .. } => Self::Event,
        }
    }
}

/// A write that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) order: Order,
    /// Since when. An order that was taken back and given again keeps its place.
    pub(super) since: Instant,
    /// When it was decided.
    decided: Instant,
}

/// All that waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By ticket, and so by when they were decided.
    orders: BTreeMap<u64, Waiting>,
    by_node: BTreeMap<NodeName, u64>,
    /// Since when each order waits, and its ticket.
    lanes: BTreeMap<Lane, BTreeSet<(Instant, u64)>>,
    events: Events,
    deletions: Events,
}

type Events = VecDeque<(Instant, Action)>;

impl Queue {
    /// Takes an order. If it does the same as `before`, which was taken back, it gets its place.
    pub(super) fn take(&mut self, order: Order, before: Option<&Waiting>) {
        let decided = Instant::now();
        let same = before.filter(|before| is_same_work(&before.order.action, &order.action));
        let since = same.map_or(decided, |before| before.since);
        // The rules give a second order for a node only if they no longer expect an answer to the first.
        let name = &order.action.node().name;
        drop(self.by_node.get(name).copied().and_then(|first| self.remove(first)));
        self.by_node.insert(name.clone(), order.ticket);
        self.lanes.entry(Lane::of(&order.action)).or_default().insert((since, order.ticket));
        self.orders.insert(order.ticket, Waiting { order, since, decided });
    }

    /// Takes an event.
    pub(super) fn tell(&mut self, event: Action) {
        let events = match Lane::of(&event) {
            Lane::Deletion => &mut self.deletions,
            Lane::Gate | Lane::Step | Lane::Condition | Lane::Removal | Lane::Event => &mut self.events,
        };
        events.push_back((Instant::now(), event));
    }

    pub(super) fn len(&self) -> usize {
        self.orders.len() + self.deletions.len() + self.events.len()
    }

    /// Since when the first of a lane has waited.
    pub(super) fn oldest(&self, lane: Lane) -> Option<Instant> {
        match lane {
            Lane::Event => self.events.front().map(|(since, _)| *since),
            Lane::Deletion => self.deletions.front().map(|(since, _)| *since),
            Lane::Gate | Lane::Step | Lane::Condition | Lane::Removal => {
                self.lanes.get(&lane)?.first().map(|(since, _)| *since)
            }
        }
    }

    /// When the first order will be too old to be sent.
    pub(super) fn next_late(&self) -> Option<Instant> {
        self.orders.first_key_value().map(|(_, first)| first.decided + longest_wait())
    }

    /// The one of a lane that has waited longest.
    pub(super) fn next(&mut self, lane: Lane) -> Option<Waiting> {
        let (since, action) = match lane {
            Lane::Event => self.events.pop_front()?,
            Lane::Deletion => self.deletions.pop_front()?,
            Lane::Gate | Lane::Step | Lane::Condition | Lane::Removal => {
                let (_, ticket) = self.lanes.get(&lane)?.first().copied()?;
                return self.remove(ticket);
            }
        };
        let order = Order { ticket: EVENT_TICKET, action };
        Some(Waiting { order, since, decided: since })
    }

    /// Takes back the orders of these nodes.
    pub(super) fn take_back<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeName>) -> Vec<Waiting> {
        nodes
            .filter_map(|node| self.by_node.get(node).copied().and_then(|ticket| self.remove(ticket)))
            .collect()
    }

    /// Takes back the orders that were decided so long ago that the rules are about to look into them.
    pub(super) fn take_back_late(&mut self) -> Vec<Waiting> {
        let (now, mut late) = (Instant::now(), Vec::new());
        while let Some((ticket, _)) =
            self.orders.first_key_value().filter(|(_, first)| first.decided + longest_wait() <= now)
        {
            let ticket = *ticket;
            late.extend(self.remove(ticket));
        }
        late
    }

    /// Drops the events that are too old, and says how many.
    pub(super) fn drop_old_events(&mut self) -> usize {
        let before = self.events.len();
        while self.events.pop_front_if(|(since, _)| since.elapsed() >= EVENT_EXPIRES).is_some() {}
        before - self.events.len()
    }

    /// Drops all events, and says how many.
    pub(super) fn drop_events(&mut self) -> usize {
        std::mem::take(&mut self.events).len() + std::mem::take(&mut self.deletions).len()
    }

    /// Forgets all orders.
    pub(super) fn clear(&mut self) {
        self.orders.clear();
        self.by_node.clear();
        self.lanes.clear();
    }

    fn remove(&mut self, ticket: u64) -> Option<Waiting> {
        let waiting = self.orders.remove(&ticket)?;
        self.by_node.remove(&waiting.order.action.node().name);
        if let Some(lane) = self.lanes.get_mut(&Lane::of(&waiting.order.action)) {
            lane.remove(&(waiting.since, ticket));
        }
        Some(waiting)
    }
}

fn longest_wait() -> Duration {
    Duration::try_from(LONGEST_QUEUE).unwrap_or_default()
}

/// A condition says since when it has been so, so another condition does not take the place of the last one.
fn is_same_work(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::SetCondition { condition: one, .. }, Action::SetCondition { condition: other, .. })
            if one != other =>
        {
            false
        }
        _ => one.is_like(other),
    }
}

#[cfg(test)]
mod tests;

//! Orders that have not been sent yet, and events.
//!
//! There is at most one order for each node. It can be taken back as long as it waits: because its node has changed,
//! because the configuration has, or because it was decided too long ago.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::Lane;
use crate::action::Action;
use crate::engine::{LONGEST_QUEUE, Order};
use crate::ids::NodeName;
use crate::schedule::Schedule;

/// An event that could not be sent for this long is dropped.
const EVENT_EXPIRES: SignedDuration = SignedDuration::from_secs(30);
/// The ticket of an event, which is not an order: nothing depends on its outcome.
const EVENT_TICKET: u64 = u64::MAX;

/// A write that waits.
#[derive(Debug)]
pub struct QueuedWrite {
    pub order: Order,
    /// The start of its wait. An order that is taken back and given again keeps its place.
    pub since: Timestamp,
    pub decided: Timestamp,
    /// Since when the API server has not taken it, for an event that is sent again.
    pub failing: Option<Timestamp>,
}

/// All waiting writes.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    orders: BTreeMap<NodeName, QueuedWrite>,
    /// By the start of the wait; orders of the same time in the order in which they were decided.
    lanes: BTreeMap<Lane, Schedule<(Timestamp, u64), NodeName>>,
    /// By the time of the decision.
    ages: Schedule<Timestamp, NodeName>,
    events: VecDeque<QueuedWrite>,
    deletions: VecDeque<QueuedWrite>,
    /// Reports of deletions that the API server did not take, and when they are sent again.
    resting: Vec<(Timestamp, QueuedWrite)>,
}

impl Backlog {
    /// Adds an order, and replaces the order that its node has. The rules give a second order for a node only if they
    /// no longer expect an answer to the first.
    pub(super) fn take(&mut self, order: Order, before: Option<&QueuedWrite>, now: Timestamp) {
        let same = before.filter(|before| is_same_work(&before.order.action, &order.action));
        let since = same.map_or(now, |before| before.since);
        let name = order.action.node().name.clone();
        drop(self.remove(&name));
        self.lanes.entry(Lane::of(&order.action)).or_default().set(&name, Some((since, order.ticket)));
        self.ages.set(&name, Some(now));
        self.orders.insert(name, QueuedWrite { order, since, decided: now, failing: None });
    }

    pub(super) fn report(&mut self, event: Action, now: Timestamp) {
        let events = self.events_like(&event);
        let order = Order { ticket: EVENT_TICKET, action: event };
        events.push_back(QueuedWrite { order, since: now, decided: now, failing: None });
    }

    /// Puts an event back that was taken out and not sent.
    pub(super) fn put_back(&mut self, event: QueuedWrite) {
        self.events_like(&event.order.action).push_front(event);
    }

    fn events_like(&mut self, event: &Action) -> &mut VecDeque<QueuedWrite> {
        if event.reports_deletion() { &mut self.deletions } else { &mut self.events }
    }

    pub(super) fn len(&self) -> usize {
        self.orders.len() + self.deletions.len() + self.resting.len() + self.events.len()
    }

    /// The time since which the first write of a lane has waited.
    pub(super) fn oldest(&self, lane: Lane) -> Option<Timestamp> {
        match lane {
            Lane::Event => self.events.front().map(|event| event.since),
            Lane::Deletion => self.deletions.front().map(|event| event.since),
            Lane::Gate | Lane::Step | Lane::Unverified | Lane::Waiting | Lane::Verified | Lane::Removal => {
                self.lanes.get(&lane)?.first().map(|((since, _), _)| *since)
            }
        }
    }

    /// Removes and returns the write of a lane that has waited longest.
    pub(super) fn next(&mut self, lane: Lane) -> Option<QueuedWrite> {
        match lane {
            Lane::Event => self.events.pop_front(),
            Lane::Deletion => self.deletions.pop_front(),
            Lane::Gate | Lane::Step | Lane::Unverified | Lane::Waiting | Lane::Verified | Lane::Removal => {
                let (_, name) = self.lanes.get(&lane)?.first()?.clone();
                self.remove(&name)
            }
        }
    }

    /// The time from which an order must no longer be sent.
    pub(super) fn first_late(&self) -> Option<Timestamp> {
        self.ages.first().map(|(decided, _)| *decided + LONGEST_QUEUE)
    }

    /// Removes and returns an order that must no longer be sent.
    pub(super) fn next_late(&mut self, now: Timestamp) -> Option<QueuedWrite> {
        let name = self.ages.pop_until(&(now - LONGEST_QUEUE))?;
        self.remove(&name)
    }

    pub(super) fn remove(&mut self, name: &NodeName) -> Option<QueuedWrite> {
        let waiting = self.orders.remove(name)?;
        self.ages.set(name, None);
        if let Some(lane) = self.lanes.get_mut(&Lane::of(&waiting.order.action)) {
            lane.set(name, None);
        }
        Some(waiting)
    }

    /// Removes and returns all orders.
    pub(super) fn clear(&mut self) -> Vec<QueuedWrite> {
        self.lanes.clear();
        self.ages.clear();
        std::mem::take(&mut self.orders).into_values().collect()
    }

    pub(super) fn rest(&mut self, report: QueuedWrite, until: Timestamp) {
        self.resting.push((until, report));
    }

    /// Lets the reports wait for a slot that have rested for long enough.
    pub(super) fn end_rests(&mut self, now: Timestamp) {
        let rested = self.resting.extract_if(.., |(until, _)| *until <= now);
        self.deletions.extend(rested.map(|(_, report)| report));
    }

    /// The time at which the first report has rested for long enough.
    pub(super) fn first_rested(&self) -> Option<Timestamp> {
        self.resting.iter().map(|(until, _)| *until).min()
    }

    pub(super) fn drop_reports(&mut self) -> usize {
        std::mem::take(&mut self.deletions).len() + std::mem::take(&mut self.resting).len()
    }

    pub(super) fn drop_events(&mut self) -> usize {
        std::mem::take(&mut self.events).len()
    }

    pub(super) fn drop_old_events(&mut self, now: Timestamp) -> usize {
        let before = self.events.len();
        let is_old = |event: &mut QueuedWrite| now.duration_since(event.since) >= EVENT_EXPIRES;
        while self.events.pop_front_if(is_old).is_some() {}
        before - self.events.len()
    }
}

/// Returns whether two orders do the same work. A condition carries the time of its transition, so a different
/// condition does not get the place of the previous one.
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

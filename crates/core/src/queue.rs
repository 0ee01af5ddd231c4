//! The queue of writes: which write is sent next, and how many are in flight at once.
//!
//! | lane | when it is sent |
//! |---|---|
//! | events that report a deletion, then gates, then steps | at once; the report of a deletion also again, for an hour, until the API server takes it |
//! | conditions that say why a node is not verified | when no gate or step waits; after 20 s in any case |
//! | conditions that only say what a node waits for, conditions of verified nodes | when it is quiet; after 20 s in any case |
//! | removals of workers | when it is quiet; after a minute in any case |
//! | events | when it is quiet; after 20 s unless the main capacity is used up; after 30 s they are dropped |
//!
//! Conditions take at most half of the main capacity. However many closed nodes say why they are closed, there is room for
//! the next step of another node. Each opening causes one condition, and due conditions have as much of it as openings
//! have: they cannot fall behind, however many gates open and however slow the API server is.

mod backlog;
mod lane;
#[cfg(test)]
pub(crate) mod testing;

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::engine::Order;
use crate::ids::NodeName;
use backlog::Backlog;
pub use backlog::QueuedWrite;
use lane::Lane;

/// It is quiet once no gate or step has been in flight for this long. While many gates open one after another, anything
/// else would take the API server's time from the next gate.
const QUIET: SignedDuration = SignedDuration::from_millis(250);

/// The report of a deletion that the API server did not take is sent again after it has failed for as long once more,
/// but not sooner or later than this.
const SHORTEST_REST: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_REST: SignedDuration = SignedDuration::from_mins(1);
/// The report of a deletion is given up after it has failed for this long. An API server keeps events for an hour, too.
const LONGEST_FAILING: SignedDuration = SignedDuration::from_hours(1);

/// The number of writes that may be in flight at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// For gates, steps and conditions. The latter may take half of them.
    pub main: usize,
    /// For everything else.
    pub spare: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { main: 42, spare: 8 }
    }
}

impl Capacity {
    fn conditions(self) -> usize {
        (self.main / 2).max(1)
    }
}

/// Waiting writes, and the number of writes in flight.
#[derive(Debug)]
pub struct Queue {
    backlog: Backlog,
    capacity: Capacity,
    foreground: usize,
    /// Conditions of nodes that are not verified.
    unverified: usize,
    /// Conditions of verified nodes.
    verified: usize,
    spare: usize,
    /// When a gate or a step was last sent or answered.
    busy: Timestamp,
}

impl Queue {
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        let (backlog, busy) = (Backlog::default(), Timestamp::MIN);
        Self { backlog, capacity, foreground: 0, unverified: 0, verified: 0, spare: 0, busy }
    }

    /// Queues an order. If it does the same work as `before`, which was taken back, it gets the place of that.
    pub fn take(&mut self, order: Order, before: Option<&QueuedWrite>, now: Timestamp) {
        self.backlog.take(order, before, now);
    }

    /// Queues an event.
    pub fn report(&mut self, event: Action, now: Timestamp) {
        self.backlog.report(event, now);
    }

    /// Puts an event back that was not sent after all. It keeps its place and its history.
    pub fn put_back(&mut self, event: QueuedWrite) {
        self.backlog.put_back(event);
    }

    /// Queues the report of a deletion again, because the API server did not take it. Returns whether it is sent again.
    pub fn send_again(&mut self, mut report: QueuedWrite, now: Timestamp) -> bool {
        let failing = now.duration_since(*report.failing.get_or_insert(now));
        if failing >= LONGEST_FAILING {
            return false;
        }
        self.backlog.rest(report, now + failing.clamp(SHORTEST_REST, LONGEST_REST));
        true
    }

    /// When the next report of a deletion is sent again.
    #[must_use]
    pub fn first_report(&self) -> Option<Timestamp> {
        self.backlog.first_rested()
    }

    /// The number of waiting writes.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// The number of writes in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_main() + self.spare
    }

    /// Takes back the unsent orders of these nodes.
    pub fn take_back<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeName>) -> Vec<QueuedWrite> {
        nodes.filter_map(|node| self.backlog.remove(node)).collect()
    }

    /// Takes back the orders that have waited so long that they must no longer be sent.
    pub fn take_back_late(&mut self, now: Timestamp) -> Vec<QueuedWrite> {
        std::iter::from_fn(|| self.backlog.next_late(now)).collect()
    }

    /// Takes back all unsent orders.
    pub fn take_back_all(&mut self) -> Vec<QueuedWrite> {
        self.backlog.clear()
    }

    /// Drops the unsent events, and returns their number. Those that report a deletion stay until they can be sent:
    /// nothing else in the cluster shows for long that a node was deleted, and why.
    pub fn drop_events(&mut self) -> usize {
        self.backlog.drop_events()
    }

    /// Drops the reports of deletions too, and returns their number.
    pub fn drop_reports(&mut self) -> usize {
        self.backlog.drop_reports()
    }

    /// Drops the events that have waited too long, and returns their number.
    pub fn drop_old_events(&mut self, now: Timestamp) -> usize {
        self.backlog.drop_old_events(now)
    }

    /// Returns the write to send next, and counts it as in flight.
    pub fn next(&mut self, now: Timestamp) -> Option<QueuedWrite> {
        self.backlog.end_rests(now);
        let lane = self.next_main(now).or_else(|| self.next_spare(now))?;
        let next = self.backlog.next(lane)?;
        *self.under_way(lane) += 1;
        if lane.is_foreground() {
            self.busy = now;
        }
        Some(next)
    }

    /// Records that a write is no longer in flight.
    pub fn answered(&mut self, action: &Action, now: Timestamp) {
        let lane = Lane::of(action);
        *self.under_way(lane) -= 1;
        if lane.is_foreground() {
            self.busy = now;
        }
    }

    /// The next time at which something can be sent or has to be taken back, even if no write is answered until then.
    #[must_use]
    pub fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let due = [Lane::Waiting, Lane::Verified, Lane::Removal, Lane::Event].map(|lane| self.due(lane));
        let waits_for_quiet = self.foreground == 0 && due.iter().any(Option::is_some);
        let quiet = waits_for_quiet.then(|| self.busy + QUIET);
        let all = due.into_iter().chain([quiet, self.backlog.first_late(), self.backlog.first_rested()]);
        all.flatten().filter(|at| *at > now).min()
    }

    fn next_main(&self, now: Timestamp) -> Option<Lane> {
        if self.all_main_are_taken() {
            return None;
        }
        let has_room = self.unverified + self.verified < self.capacity.conditions();
        let conditions =
            [Lane::Unverified, Lane::Waiting, Lane::Verified].map(|lane| Some((self.due(lane)?, lane)));
        let is_due = |(due, _): &(Timestamp, Lane)| has_room && *due <= now;
        if let Some((_, lane)) = conditions.into_iter().flatten().filter(is_due).min() {
            return Some(lane);
        }
        let waits = |lane: &Lane| self.backlog.oldest(*lane).is_some();
        let foreground = [Lane::Deletion, Lane::Gate, Lane::Step].into_iter().find(waits);
        let of_closed = [(Lane::Unverified, true), (Lane::Waiting, self.is_quiet(now))];
        let condition = || of_closed.into_iter().find(|(lane, may_go)| *may_go && has_room && waits(lane));
        foreground.or_else(|| condition().map(|(lane, _)| lane))
    }

    fn next_spare(&self, now: Timestamp) -> Option<Lane> {
        let is_quiet = self.is_quiet(now);
        let taken = if is_quiet { self.verified + self.spare } else { self.spare };
        if taken >= self.capacity.spare {
            return None;
        }
        if is_quiet && self.backlog.oldest(Lane::Verified).is_some() {
            return Some(Lane::Verified);
        }
        let may_go = |(lane, due): &(Lane, Timestamp)| {
            is_quiet || *due <= now && !(*lane == Lane::Event && self.all_main_are_taken())
        };
        let candidates = [Lane::Removal, Lane::Event].map(|lane| Some((lane, self.due(lane)?)));
        candidates.into_iter().flatten().filter(may_go).min_by_key(|(_, due)| *due).map(|(lane, _)| lane)
    }

    fn is_quiet(&self, now: Timestamp) -> bool {
        self.foreground == 0 && now.duration_since(self.busy) >= QUIET
    }

    fn all_main_are_taken(&self) -> bool {
        self.in_main() >= self.capacity.main
    }

    fn in_main(&self) -> usize {
        self.foreground + self.unverified + self.verified
    }

    /// The time at which the first write of a lane has yielded for long enough.
    fn due(&self, lane: Lane) -> Option<Timestamp> {
        self.backlog.oldest(lane).map(|since| since + lane.yields_for())
    }

    fn under_way(&mut self, lane: Lane) -> &mut usize {
        match lane {
            Lane::Gate | Lane::Deletion | Lane::Step => &mut self.foreground,
            Lane::Unverified | Lane::Waiting => &mut self.unverified,
            Lane::Verified => &mut self.verified,
            Lane::Removal | Lane::Event => &mut self.spare,
        }
    }
}

#[cfg(test)]
mod tests;

//! Which write is sent next, and how many are under way at once.
//!
//! | lane | when it is sent |
//! |---|---|
//! | events that report a deletion, then gates, then steps | at once |
//! | conditions of verified nodes | when it is quiet; after 20 s in any case, with up to half of the main places |
//! | removals of workers | when it is quiet; after a minute in any case |
//! | events | when it is quiet; after 20 s if all main places are not taken; after 30 s they are dropped |
//!
//! Each opening causes one condition, and conditions that are due have as many places as openings have: they cannot fall
//! behind, however many gates open and however slow the API server is.

use std::time::Duration;

use knr_core::action::Action;
use knr_core::engine::Order;
use knr_core::ids::NodeName;
use tokio::time::Instant;

use super::queue::{Lane, Queue, Waiting};

/// Places for gates, steps, and conditions that are due.
const MAIN: usize = 42;
/// Of these, places for conditions.
const CONDITIONS: usize = MAIN / 2;
/// Places for everything else.
const SPARE: usize = 8;
/// It is quiet once no gate or step was under way for this long. Where many gates open one after another, anything else
/// would take the API server's time from the next gate.
const QUIET: Duration = Duration::from_millis(250);
/// A condition gives way to gates and steps for this long, and so does an event.
const CONDITION_DUE: Duration = Duration::from_secs(20);
const EVENT_DUE: Duration = Duration::from_secs(20);
/// Nobody misses the place that a worker takes up after its end.
const REMOVAL_DUE: Duration = Duration::from_mins(1);

/// Writes that wait, and how many are under way.
#[derive(Debug)]
pub(super) struct Schedule {
    queue: Queue,
    foreground: usize,
    conditions: usize,
    spare: usize,
    /// When a gate or a step was last sent or answered.
    busy: Instant,
}

impl Schedule {
    pub(super) fn new() -> Self {
        let (queue, busy) = (Queue::default(), Instant::now());
        Self { queue, foreground: 0, conditions: 0, spare: 0, busy }
    }

    /// Takes an order. If it does the same as `before`, which was taken back, it gets its place.
    pub(super) fn take(&mut self, order: Order, before: Option<&Waiting>) {
        self.queue.take(order, before);
    }

    /// Takes an event.
    pub(super) fn tell(&mut self, event: Action) {
        self.queue.tell(event);
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.foreground + self.conditions + self.spare
    }

    /// The orders of these nodes that have not been sent.
    pub(super) fn take_back<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeName>) -> Vec<Waiting> {
        self.queue.take_back(nodes)
    }

    /// The orders that have waited for so long that they must not be sent any more.
    pub(super) fn take_back_late(&mut self) -> Vec<Waiting> {
        self.queue.take_back_late()
    }

    /// Forgets all that has not been sent, and says how many events were among it.
    pub(super) fn clear(&mut self) -> usize {
        self.queue.clear();
        self.queue.drop_events()
    }

    /// Drops all events, and says how many.
    pub(super) fn drop_events(&mut self) -> usize {
        self.queue.drop_events()
    }

    /// Drops the events that have waited for too long, and says how many.
    pub(super) fn drop_old_events(&mut self) -> usize {
        self.queue.drop_old_events()
    }

    /// The write to send next, which is under way from now on.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        let now = Instant::now();
        let lane = self.next_main(now).or_else(|| self.next_spare(now))?;
        let next = self.queue.next(lane)?;
        *self.under_way(lane) += 1;
        if is_foreground(lane) {
            self.busy = now;
        }
        Some(next)
    }

    /// A write was answered.
    pub(super) fn answered(&mut self, action: &Action) {
        let lane = Lane::of(action);
        *self.under_way(lane) -= 1;
        if is_foreground(lane) {
            self.busy = Instant::now();
        }
    }

    /// When something else can be sent, or has to be taken back, even if no write is answered until then.
    pub(super) fn wake(&self) -> Option<Instant> {
        let now = Instant::now();
        let due = [Lane::Condition, Lane::Removal, Lane::Event].map(|lane| self.due(lane));
        let waits_for_quiet = self.foreground == 0 && due.iter().any(Option::is_some);
        let quiet = waits_for_quiet.then(|| self.busy + QUIET);
        let all = due.into_iter().chain([quiet, self.queue.next_late()]);
        all.flatten().filter(|at| *at > now).min()
    }

    fn next_main(&self, now: Instant) -> Option<Lane> {
        if self.foreground + self.conditions >= MAIN {
            return None;
        }
        if self.conditions < CONDITIONS && self.due(Lane::Condition).is_some_and(|due| due <= now) {
            return Some(Lane::Condition);
        }
        [Lane::Deletion, Lane::Gate, Lane::Step].into_iter().find(|lane| self.queue.oldest(*lane).is_some())
    }

    fn next_spare(&self, now: Instant) -> Option<Lane> {
        let is_quiet = self.foreground == 0 && now.duration_since(self.busy) >= QUIET;
        let taken = if is_quiet { self.conditions + self.spare } else { self.spare };
        if taken >= SPARE {
            return None;
        }
        if is_quiet && self.queue.oldest(Lane::Condition).is_some() {
            return Some(Lane::Condition);
        }
        let all_main_are_taken = self.foreground + self.conditions >= MAIN;
        let may_go = |(lane, due): &(Lane, Instant)| {
            is_quiet || *due <= now && !(*lane == Lane::Event && all_main_are_taken)
        };
        let candidates = [Lane::Removal, Lane::Event].map(|lane| Some((lane, self.due(lane)?)));
        candidates.into_iter().flatten().filter(may_go).min_by_key(|(_, due)| *due).map(|(lane, _)| lane)
    }

    /// When the first of a lane has given way for long enough.
    fn due(&self, lane: Lane) -> Option<Instant> {
        let patience = match lane {
            Lane::Gate | Lane::Deletion | Lane::Step => Duration::ZERO,
            Lane::Condition => CONDITION_DUE,
            Lane::Removal => REMOVAL_DUE,
            Lane::Event => EVENT_DUE,
        };
        self.queue.oldest(lane).map(|since| since + patience)
    }

    fn under_way(&mut self, lane: Lane) -> &mut usize {
        match lane {
            Lane::Gate | Lane::Deletion | Lane::Step => &mut self.foreground,
            Lane::Condition => &mut self.conditions,
            Lane::Removal | Lane::Event => &mut self.spare,
        }
    }
}

fn is_foreground(lane: Lane) -> bool {
    matches!(lane, Lane::Gate | Lane::Deletion | Lane::Step)
}

#[cfg(test)]
mod tests;

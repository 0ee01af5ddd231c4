//! Worker slots: which workers hold one, which nodes wait for one, and which is next.
//!
//! A worker holds a slot while it runs the checks, and for a moment before that. The limit protects the API server and
//! DNS. A worker that is not started by its kubelet, or whose node is not Ready, releases its slot and keeps waiting.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::explain::later;
use crate::ids::NodeName;
use crate::schedule::Schedule;
use crate::view::{Stage, Stamp};
use crate::world::{NodeEntry, SeenWorker};

/// A worker that has not started this long after it could have no longer holds a slot.
const STARTS_WITHIN: SignedDuration = SignedDuration::from_secs(10);
/// The maximum number of workers per slot, including workers that wait to be started, before no more nodes are retried.
const WORKERS_PER_SLOT: usize = 10;

/// The priority of a node in the queue. The order of the variants is the order of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// A node that has not been tried yet.
    First,
    /// A node that failed, or that is open and has to prove itself again.
    Again,
    /// A node that is not Ready, so it could not run a worker now.
    NotReady,
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    queue: Schedule<(Turn, Timestamp), NodeName>,
    stamps: BTreeMap<NodeName, Stamp>,
    /// Nodes that left the queue for another write, such as the condition that says that they wait.
    aside: Schedule<(Turn, Timestamp), NodeName>,
    workers: BTreeMap<NodeName, Workers>,
    /// When workers lose their slots, if they do not end before.
    held_until: Schedule<Timestamp, NodeName>,
    total: Workers,
    /// Nodes whose worker was ordered and is not known yet. It may exist even if the answer was lost.
    pub(crate) ordered: BTreeSet<NodeName>,
}

/// The numbers of workers of one node, or of all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Workers {
    in_slots: usize,
    /// Not started or not ended in time although their nodes are Ready.
    stuck: usize,
    /// On nodes that are not Ready.
    not_ready: usize,
}

impl Slots {
    /// Updates the workers of a node. A worker that runs for longer than `runs_within` no longer holds a slot.
    pub(crate) fn note<'e>(
        &mut self,
        name: &NodeName,
        entry: Option<&'e NodeEntry>,
        runs_within: SignedDuration,
        now: Timestamp,
    ) {
        let is_known = entry.is_some_and(|entry| {
            let node = entry.view.as_ref().map(|view| &view.id);
            entry.workers.values().any(|worker| Some(&worker.view.stamp.node) == node)
        });
        if is_known {
            self.ordered.remove(name);
        }
        let mut workers = Workers::default();
        let mut until: Option<Timestamp> = None;
        let of = |entry: &'e NodeEntry| entry.workers.values().map(move |worker| (entry, worker.as_ref()));
        for (entry, worker) in entry.into_iter().flat_map(of) {
            match hold(entry, worker, runs_within) {
                Hold::Nothing => {}
                Hold::SlotUntil(end) if now < end => {
                    workers.in_slots += 1;
                    until = Some(until.map_or(end, |until| until.min(end)));
                }
                Hold::SlotUntil(_) if entry.ready_since.is_some() => workers.stuck += 1,
                Hold::SlotUntil(_) | Hold::NotReady => workers.not_ready += 1,
            }
        }
        self.held_until.set(name, until);
        let before = if workers == Workers::default() {
            self.workers.remove(name)
        } else {
            self.workers.insert(name.clone(), workers)
        };
        let before = before.unwrap_or_default();
        let total = &mut self.total;
        total.in_slots = total.in_slots - before.in_slots + workers.in_slots;
        total.stuck = total.stuck - before.stuck + workers.stuck;
        total.not_ready = total.not_ready - before.not_ready + workers.not_ready;
    }

    /// Returns a node whose worker did not start or end in time. The node has to be noted again.
    pub(crate) fn next_late(&mut self, now: Timestamp) -> Option<NodeName> {
        self.held_until.pop_until(&now)
    }

    /// When the next slot becomes free by timeout.
    pub(crate) fn next_release(&self) -> Option<Timestamp> {
        self.held_until.first().map(|(at, _)| *at)
    }

    /// Returns whether a node waits for a slot.
    pub(crate) fn are_wanted(&self) -> bool {
        self.queue.first().is_some() || self.aside.first().is_some()
    }

    /// Returns whether a worker may be started. A node that was never tried waits only for a slot, however many workers
    /// are stuck. Workers on nodes that are not Ready hold back only workers for other such nodes.
    pub(crate) fn has_room(&self, turn: Turn, slots: usize) -> bool {
        let in_slots = self.taken();
        let all = match turn {
            Turn::First => return in_slots < slots,
            Turn::Again => in_slots + self.total.stuck,
            Turn::NotReady => in_slots + self.total.stuck + self.total.not_ready,
        };
        in_slots < slots && all < slots.saturating_mul(WORKERS_PER_SLOT)
    }

    fn taken(&self) -> usize {
        self.total.in_slots + self.ordered.len()
    }

    /// Adds a node to the queue, or removes it, whether it is in the queue or was set aside.
    pub(crate) fn enqueue(&mut self, name: &NodeName, wanted: Option<(Turn, Timestamp, Stamp)>) {
        self.aside.set(name, None);
        if let Some((turn, due, stamp)) = wanted {
            self.queue.set(name, Some((turn, due)));
            self.stamps.insert(name.clone(), stamp);
        } else {
            self.queue.set(name, None);
            self.stamps.remove(name);
        }
    }

    /// Takes a node out of the queue while another write is under way for it.
    pub(crate) fn set_aside(&mut self, name: &NodeName) {
        let rank = self.queue.rank(name).copied();
        self.enqueue(name, None);
        self.aside.set(name, rank);
    }

    /// Removes and returns the first nodes that were set aside, as many as there are free slots for them.
    pub(crate) fn take_aside(&mut self, slots: usize) -> Vec<NodeName> {
        let free = slots.saturating_sub(self.taken());
        let next = self.aside.iter().take(free).take_while(|((turn, _), _)| self.has_room(*turn, slots));
        let names: Vec<_> = next.map(|(_, name)| name.clone()).collect();
        for name in &names {
            self.aside.set(name, None);
        }
        names
    }

    pub(crate) fn is_queued(&self, name: &NodeName) -> bool {
        self.stamps.contains_key(name)
    }

    /// Takes the next worker from the queue, if there is a free slot for it.
    pub(crate) fn next(&mut self, slots: usize) -> Option<Stamp> {
        let (_, name) = self.queue.first().filter(|((turn, _), _)| self.has_room(*turn, slots))?.clone();
        self.queue.set(&name, None);
        self.stamps.remove(&name)
    }

    /// Clears the queue, and forgets workers that were ordered.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.aside.clear();
        self.stamps.clear();
        self.ordered.clear();
    }
}

enum Hold {
    SlotUntil(Timestamp),
    NotReady,
    /// It has ended, or is being deleted. In the latter case the pod may remain for as long as its kubelet is gone.
    Nothing,
}

fn hold(entry: &NodeEntry, worker: &SeenWorker, runs_within: SignedDuration) -> Hold {
    match &worker.view.stage {
        _ if worker.view.leaving => Hold::Nothing,
        Stage::Ended(_) => Hold::Nothing,
        // A worker that runs for longer has lost its kubelet. On a paused node nothing else would end it.
        Stage::Running => Hold::SlotUntil(later(worker.since, runs_within)),
        Stage::Pending(_) => match entry.ready_since {
            Some(ready) => Hold::SlotUntil(worker.since.max(ready) + STARTS_WITHIN),
            None => Hold::NotReady,
        },
    }
}

#[cfg(test)]
mod tests;

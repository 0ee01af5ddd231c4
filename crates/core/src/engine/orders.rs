//! Turns wants into orders: one write at a time for each node, with scarce worker slots assigned in queue order.

use jiff::Timestamp;

use super::{ANSWER_OVERDUE, ASK_AGAIN, Engine, LONGEST_QUEUE, NodeTask, Order, Plan, Question, Underway};
use crate::action::Action;
use crate::decide::{History, Want, reference_stamp};
use crate::grants::slots::Turn;
use crate::ids::NodeName;
use crate::view::Stamp;
use crate::world::NodeEntry;

impl Engine {
    /// Pursues the first want that is not held back. A node that gets no slot for its worker may do the next write
    /// instead.
    pub(super) fn pursue(&mut self, name: &NodeName, wants: Vec<Want>, now: Timestamp, plan: &mut Plan) {
        let mut wants = wants.into_iter();
        while let Some(want) = wants.next() {
            let held_until = want.action().and_then(|action| self.tasks.get(name)?.held_until(&action, now));
            if let Some(until) = held_until {
                self.wake_by(name, until);
                continue;
            }
            match want {
                Want::Act(action) => self.order(action, now, plan),
                Want::Reference => self.grants.references.note_waiting(name, true),
                Want::Worker { stamp, is_first, due } => {
                    self.enqueue(name, stamp, is_first, due);
                    let meanwhile = wants.filter_map(|want| want.action());
                    self.meanwhile.extend(meanwhile.take(1).map(|action| (name.clone(), action)));
                }
                Want::Reread(node) => {
                    self.tasks.entry(name.clone()).or_default().underway =
                        Some(Underway::Unclear { asked: Some(now) });
                    plan.questions.push(Question::Node(node));
                    self.wake_by(name, now + ASK_AGAIN);
                }
                // Otherwise the node asks again when it is considered next.
                Want::Occupancy(node) => {
                    if self.grants.may_ask(name, self.policy(name)) {
                        self.grants.note_asked(name, true);
                        plan.questions.push(Question::Occupancy(node));
                        self.wake_by(name, now + ASK_AGAIN);
                    }
                }
            }
            return;
        }
    }

    fn wake_by(&mut self, name: &NodeName, at: Timestamp) {
        let known = self.timers.rank(name).copied();
        self.timers.set(name, Some(known.map_or(at, |known| known.min(at))));
    }

    fn enqueue(&mut self, name: &NodeName, stamp: Stamp, is_first: bool, due: Timestamp) {
        let is_ready = |entry: &NodeEntry| entry.ready_since.is_some();
        let turn = match (self.world.entry(name).is_some_and(is_ready), is_first) {
            (true, true) => Turn::First,
            (true, false) => Turn::Again,
            (false, _) => Turn::NotReady,
        };
        self.grants.slots.enqueue(name, Some((turn, due, stamp)));
    }

    /// Gives the free slots to the nodes that wait for a worker.
    pub(super) fn start_workers(&mut self, now: Timestamp, plan: &mut Plan) {
        while let Some(stamp) = self.grants.slots.next(self.settings.worker_slots) {
            self.order(Action::StartWorker { stamp }, now, plan);
        }
        for (name, action) in std::mem::take(&mut self.meanwhile) {
            let is_held = |task: &NodeTask| task.held_until(&action, now).is_some();
            if self.grants.slots.is_queued(&name) && !self.tasks.get(&name).is_some_and(is_held) {
                self.grants.slots.set_aside(&name);
                self.order(action, now, plan);
            }
        }
    }

    /// Starts a reference run on a verified node that has nothing else to do, if a node waits for one. There is at most
    /// one reference run at a time. One that cannot be started now is tried in every turn, because a slot or a verified
    /// node may become free at any time.
    pub(super) fn start_reference(&mut self, now: Timestamp, plan: &mut Plan) {
        let is_due = self.grants.reference_due().is_some_and(|due| due <= now);
        let has_room = self.grants.slots.has_room(Turn::Again, self.settings.worker_slots);
        if !is_due || !has_room {
            return;
        }
        let is_free = |name: &&NodeName| {
            let is_idle = self.tasks.get(*name).is_none_or(|task| task.underway.is_none());
            let can_run = |entry: &NodeEntry| {
                entry.workers.is_empty() && self.judge(name, entry, now).can_run_reference
            };
            is_idle && self.world.entry(name).is_some_and(can_run)
        };
        let reference = self.grants.fleet.references().find(is_free).cloned();
        let Some(name) = reference else { return };
        let Some(entry) = self.world.entry(&name) else { return };
        if let Some(stamp) = reference_stamp(self.context(entry, History::default(), now), entry) {
            self.order(Action::StartWorker { stamp }, now, plan);
            if self.settings.dry_run {
                self.grants.references.withhold();
            }
        }
    }

    fn order(&mut self, action: Action, now: Timestamp, plan: &mut Plan) {
        if self.settings.dry_run {
            plan.withheld.push(action);
            return;
        }
        let name = action.node().name.clone();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.grants.ordered(&action, now);
        let expires = now + LONGEST_QUEUE + self.settings.request_timeout + ANSWER_OVERDUE;
        self.timers.set(&name, Some(expires));
        let task = self.tasks.entry(name).or_default();
        task.underway = Some(Underway::Ordered { ticket, given: now, expires });
        plan.orders.push(Order { ticket, action });
    }

    /// Ends the order that is in flight for a node, and releases the slot or reservation that was granted for it.
    pub(super) fn release(&mut self, name: &NodeName) {
        if self.tasks.get_mut(name).is_some_and(|task| task.underway.take().is_some()) {
            self.grants.settled(name);
        }
    }
}

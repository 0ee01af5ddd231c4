//! Orders: who may have a worker, and what is under way.

use jiff::{SignedDuration, Timestamp};

use super::desk::Underway;
use super::{ANSWER_OVERDUE, Engine, LENDERS_TRIED, LONGEST_QUEUE, Order, Plan};
use crate::action::Action;
use crate::ids::NodeName;
use crate::view::{Purpose, Stamp};
use crate::world::NodeEntry;

impl Engine {
    /// Gives the free places for workers to the nodes that have waited longest.
    pub(super) fn allot(&mut self, now: Timestamp, plan: &mut Plan) {
        while self.has_room()
            && let Some((_, name)) = self.queue.first().cloned()
        {
            if let Some(stamp) = self.unqueue(&name) {
                self.order(Action::StartWorker { stamp }, now, plan);
            }
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.world.live_workers() + self.starting < self.config.limits.max_concurrent_workers as usize
    }

    /// Runs the checks on a verified node that has nothing else to do, one at a time.
    pub(super) fn lend(&mut self, now: Timestamp, plan: &mut Plan) {
        if !self.has_room() || self.world.references() > 0 {
            return;
        }
        let is_idle = |name: &&NodeName| {
            let entry = self.world.entry(name);
            let at_rest = |entry: &NodeEntry| self.judge(entry, now).may_lend;
            self.desks.get(*name).is_none_or(|desk| desk.underway.is_none())
                && entry.is_some_and(|entry| entry.workers.is_empty() && at_rest(entry))
        };
        let lender = self.census.lenders().take(LENDERS_TRIED).find(is_idle).cloned();
        let entry = lender.and_then(|name| self.world.entry(&name));
        if let Some((view, state)) = entry.and_then(|entry| entry.view.as_ref().zip(entry.state.as_ref())) {
            let stamp = Stamp {
                node: view.id.clone(),
                boot: view.boot.clone(),
                serial: state.serial.saturating_add(1),
                attempt: state.attempt,
                purpose: Purpose::Reference,
            };
            self.order(Action::StartWorker { stamp }, now, plan);
        }
    }

    pub(super) fn order(&mut self, action: Action, now: Timestamp, plan: &mut Plan) {
        if self.config.reconciliation.dry_run {
            plan.withheld.push(action);
            return;
        }
        let name = action.node().name.clone();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let starts_worker = matches!(action, Action::StartWorker { .. });
        self.starting += usize::from(starts_worker);
        let limit = i64::from(self.config.kubernetes.request_timeout_seconds);
        let expires = now + LONGEST_QUEUE + SignedDuration::from_secs(limit) + ANSWER_OVERDUE;
        self.set_timer(&name, Some(expires));
        let desk = self.desks.entry(name).or_default();
        desk.underway = Some(Underway::Ordered { ticket, given: now, expires, starts_worker });
        plan.orders.push(Order { ticket, action });
    }

    /// Ends what is under way for a node.
    pub(super) fn release(&mut self, name: &NodeName) {
        if let Some(desk) = self.desks.get_mut(name)
            && let Some(Underway::Ordered { starts_worker: true, .. }) = desk.underway.take()
        {
            self.starting -= 1;
        }
    }
}

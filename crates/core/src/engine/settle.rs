//! What came of orders.

use jiff::Timestamp;

use super::{Engine, Order, Outcome};
use crate::action::{Action, Recorded};

impl Engine {
    /// Learns the outcome of an order, and returns the events that report it.
    pub fn settle(&mut self, order: &Order, outcome: Outcome, now: Timestamp) -> Vec<Action> {
        let now = self.not_back(now);
        let node = order.action.node();
        let given = self.tasks.get(&node.name).and_then(|task| task.given(order.ticket));
        if given.is_some() {
            // What was granted for an order is taken until it is known whether the order was carried out.
            if !matches!(outcome, Outcome::Unknown) {
                self.release(&node.name);
            }
            let task = self.tasks.entry(node.name.clone()).or_default();
            match &outcome {
                Outcome::Done(_) => task.carried_out(&order.action, now),
                Outcome::Conflict => task.contradicted(&order.action, now),
                Outcome::Unknown => task.lost(&order.action, now),
                Outcome::Refused(why) => {
                    task.refused(&order.action, why.clone(), now);
                    self.give_up_reference(&order.action);
                }
                Outcome::Unavailable => task.set_back(&order.action, now),
            }
            self.changed.insert(node.name.clone());
        } else if let (Outcome::Unknown, Action::DeleteNode { .. }) = (&outcome, &order.action) {
            // The order is no longer expected to be answered, as after a loss of the lease.
            self.tasks.entry(node.name.clone()).or_default().remember_deletion(&order.action, now);
            self.changed.insert(node.name.clone());
        }
        let Outcome::Done(facts) = outcome else { return Vec::new() };
        // What an order from before a restore has brought about is known in versions from before it.
        let is_outdated = order.ticket < self.ticket_at_restore;
        for fact in facts.into_iter().filter(|_| !is_outdated) {
            self.learn(fact, now);
        }
        if let (Action::StartWorker { .. }, Some(given)) = (&order.action, given) {
            self.world.worker_was_asked_for(node, given);
        }
        order.action.events()
    }

    /// If the API server refuses to record a reference run, the nodes that wait for it go on without it.
    fn give_up_reference(&mut self, refused: &Action) {
        if let Action::Record { node, what: Recorded::Reference, .. } = refused {
            self.grants.fleet.give_up_reference(&node.name);
            self.changed.extend(self.grants.references.waiting().cloned());
        }
    }
}

//! Orders for one node that were not carried out, and why.

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::ids::NodeRef;

const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// Kinds of orders that failed. Each has its own backoff, so a kind that is refused does not hold back the others.
#[derive(Debug, Default)]
pub struct Setbacks(Vec<Setback>);

/// Consecutive failures of orders of one kind.
#[derive(Debug)]
struct Setback {
    order: Action,
    count: u32,
    not_before: Option<Timestamp>,
    complaint: Option<Complaint>,
}

/// The reason to report for orders that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// The API server refused the last one, and said why.
    Refused(String),
    /// The cluster was not in the state that the order assumed, several times in a row.
    Contradicted,
    /// The API server could not carry out the last one.
    Unavailable,
}

/// The pause after an order that was not carried out, as its predecessors were not.
pub(crate) fn pause(predecessors: u32) -> SignedDuration {
    FIRST_PAUSE.saturating_mul(1 << predecessors.min(5)).min(LONGEST_PAUSE)
}

impl Setbacks {
    pub(crate) const NONE: &'static Self = &Self(Vec::new());

    /// The complaint about orders like this one.
    pub(crate) fn about(&self, order: &Action) -> Option<&Complaint> {
        self.find(order)?.complaint.as_ref()
    }

    /// The reason for which the API server refused an order like this one.
    pub(crate) fn refusal_of(&self, order: &Action) -> Option<&str> {
        match self.about(order)? {
            Complaint::Refused(why) => Some(why),
            Complaint::Contradicted | Complaint::Unavailable => None,
        }
    }

    /// The complaint about the last order to start a worker on a node.
    pub(crate) fn about_worker(&self, node: &NodeRef) -> Option<&Complaint> {
        let starts = |order: &Action| matches!(order, Action::StartWorker { .. }) && order.node() == node;
        self.0.iter().find(|setback| starts(&setback.order))?.complaint.as_ref()
    }

    /// All complaints, with the orders that they are about.
    pub(crate) fn complaints(&self) -> impl Iterator<Item = (&Action, &Complaint)> {
        self.0.iter().filter_map(|setback| Some((&setback.order, setback.complaint.as_ref()?)))
    }

    /// Until when an order of this kind is not given again.
    pub(crate) fn held_until(&self, order: &Action, now: Timestamp) -> Option<Timestamp> {
        self.find(order)?.not_before.filter(|at| now < *at)
    }

    /// The cluster is not in the state that an order assumed. A single conflict is normal, because others write too.
    pub(crate) fn contradicted(&mut self, order: &Action, now: Timestamp) {
        if self.find(order).is_some() {
            self.pause(order, now, Some(Complaint::Contradicted));
        } else {
            self.0.push(Setback { order: order.clone(), count: 1, not_before: None, complaint: None });
        }
    }

    /// Backs off: the delay until the next order of this kind grows each time.
    pub(crate) fn pause(&mut self, order: &Action, now: Timestamp, complaint: Option<Complaint>) {
        let known = self.0.iter().position(|setback| setback.order.is_like(order));
        let count = known.map_or(0, |at| self.0.swap_remove(at).count);
        self.0.push(Setback {
            order: order.clone(),
            count: count.saturating_add(1),
            not_before: Some(now + pause(count)),
            complaint,
        });
    }

    /// An order was carried out.
    pub(crate) fn clear(&mut self, order: &Action) {
        self.0.retain(|setback| !setback.order.is_like(order));
    }

    /// Forgets the orders that are no longer wanted.
    pub(crate) fn keep_only(&mut self, wanted: &[Action]) {
        self.0.retain(|setback| wanted.iter().any(|wanted| wanted.is_like(&setback.order)));
    }

    fn find(&self, order: &Action) -> Option<&Setback> {
        self.0.iter().find(|setback| setback.order.is_like(order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::testing::{event, node, start};

    fn refused(orders: &[Action]) -> Setbacks {
        let mut setbacks = Setbacks::default();
        for order in orders {
            setbacks.pause(order, Timestamp::UNIX_EPOCH, Some(Complaint::Refused("no".to_owned())));
        }
        setbacks
    }

    #[test]
    fn only_the_worker_of_the_node_itself_is_complained_about() {
        let node = node("n1");
        assert!(refused(&[start("n1")]).about_worker(&node).is_some());
        assert_eq!(refused(&[event("n1"), start("n2")]).about_worker(&node), None);
    }

    #[test]
    fn what_was_carried_out_or_is_no_longer_wanted_is_forgotten() {
        let mut setbacks = refused(&[start("n1"), event("n1")]);
        setbacks.clear(&start("n1"));
        assert_eq!(setbacks.refusal_of(&start("n1")), None);
        assert_eq!(setbacks.refusal_of(&event("n1")), Some("no"));
        setbacks.keep_only(&[start("n1")]);
        assert_eq!(setbacks.complaints().count(), 0);
    }
}

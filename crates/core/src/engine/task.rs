//! The order in flight for one node, and what came of earlier ones. Held in memory only: after a restart the cluster
//! itself shows the current state.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

use super::{ASK_AGAIN, Plan, Question};
use crate::action::Action;
use crate::decide::{Decision, History};
use crate::explain::{Explanation, Note};
use crate::ids::NodeRef;
use crate::setback::{Complaint, Setbacks};

/// If a node goes away within this long after a deletion whose answer was lost, the deletion is taken to be the cause.
/// Karpenter starts to delete a node seconds after its claim.
const DELETION_SHOWS: SignedDuration = SignedDuration::from_mins(2);

/// The order in flight for one node, and what came of earlier ones.
#[derive(Debug, Default)]
pub(super) struct NodeTask {
    pub(super) underway: Option<Underway>,
    pub(super) explanation: Option<Explanation>,
    /// Since when the explanation has had its reason.
    reason_since: Timestamp,
    /// The current explanation has been reported.
    pub(super) is_reported: bool,
    /// The fingerprint of the order that was carried out last. To keep the order itself would take more memory than
    /// everything else together.
    done: Option<u64>,
    setbacks: Setbacks,
    lost_deletion: Option<Box<LostDeletion>>,
}

/// A deletion whose answer was lost.
#[derive(Debug)]
struct LostDeletion {
    action: Action,
    until: Timestamp,
}

/// An order that was given.
#[derive(Debug)]
pub(super) enum Underway {
    /// Its answer is expected.
    Ordered { ticket: u64, given: Timestamp, expires: Timestamp },
    /// Its outcome is unknown: the node has to be read again.
    Unclear { asked: Option<Timestamp> },
}

impl NodeTask {
    /// When the order with this ticket was given, if its answer is still expected.
    pub(super) fn given(&self, number: u64) -> Option<Timestamp> {
        match self.underway {
            Some(Underway::Ordered { ticket, given, .. }) if ticket == number => Some(given),
            Some(Underway::Ordered { .. } | Underway::Unclear { .. }) | None => None,
        }
    }

    /// Nothing is known any more of what happened to the cluster.
    pub(super) fn start_over(&mut self) {
        self.lost_deletion = None;
        self.mark_unclear();
    }

    /// Forgets the order in flight, but not that there was one.
    pub(super) fn mark_unclear(&mut self) {
        if self.underway.is_some() {
            self.underway = Some(Underway::Unclear { asked: None });
        }
    }

    /// An order was carried out. If it is the same as the previous one, then that had no visible effect.
    pub(super) fn carried_out(&mut self, action: &Action, now: Timestamp) {
        let done = Some(fingerprint(action));
        if matches!(action, Action::DeleteNode { .. }) {
            self.lost_deletion = None;
        }
        if self.done == done {
            self.setbacks.pause(action, now, None);
            self.underway = Some(Underway::Unclear { asked: None });
        } else {
            self.setbacks.clear(action);
            self.done = done;
        }
    }

    /// The outcome of an order is unknown.
    pub(super) fn lost(&mut self, action: &Action, now: Timestamp) {
        self.remember_deletion(action, now);
        self.underway = Some(Underway::Unclear { asked: None });
    }

    /// The answer to an order was lost. If it deletes the node, what becomes of the node shows whether it was carried out.
    pub(super) fn remember_deletion(&mut self, action: &Action, now: Timestamp) {
        if matches!(action, Action::DeleteNode { .. }) {
            let lost = LostDeletion { action: action.clone(), until: now + DELETION_SHOWS };
            self.lost_deletion = Some(Box::new(lost));
        }
    }

    /// Returns the deletion whose answer was lost, once the node is gone or terminating: it was carried out.
    pub(super) fn confirmed_deletion(
        &mut self,
        is_going: impl Fn(&NodeRef) -> bool,
        now: Timestamp,
    ) -> Option<Action> {
        let is_over = |lost: &mut Box<LostDeletion>| is_going(lost.action.node()) || lost.until <= now;
        let lost = self.lost_deletion.take_if(is_over)?;
        (now < lost.until).then_some(lost.action)
    }

    /// The cluster is not in the state that an order assumed.
    pub(super) fn contradicted(&mut self, action: &Action, now: Timestamp) {
        self.setbacks.contradicted(action, now);
        self.underway = Some(Underway::Unclear { asked: None });
    }

    /// The API server refused an order.
    pub(super) fn refused(&mut self, action: &Action, why: String, now: Timestamp) {
        self.setbacks.pause(action, now, Some(Complaint::Refused(why)));
    }

    /// The API server could not carry out an order.
    pub(super) fn set_back(&mut self, action: &Action, now: Timestamp) {
        self.setbacks.pause(action, now, Some(Complaint::Unavailable));
    }

    /// Until when an order of this kind is not given again.
    pub(super) fn held_until(&self, action: &Action, now: Timestamp) -> Option<Timestamp> {
        self.setbacks.held_until(action, now)
    }

    /// The outcome of earlier decisions.
    pub(super) fn history(&self) -> History<'_> {
        let last = self.explanation.as_ref().map(|explanation| (explanation, self.reason_since));
        History { setbacks: &self.setbacks, last }
    }

    /// Stores the explanation, and marks it for reporting if it changed.
    pub(super) fn explain(&mut self, explanation: Explanation, now: Timestamp) {
        if self.explanation.as_ref().is_none_or(|known| known.word() != explanation.word()) {
            self.reason_since = now;
        }
        if self.explanation.as_ref() != Some(&explanation) {
            self.explanation = Some(explanation);
            self.is_reported = false;
        }
    }

    /// Returns the explanation if it has not been reported yet.
    pub(super) fn report(&mut self) -> Option<&Explanation> {
        if std::mem::replace(&mut self.is_reported, true) { None } else { self.explanation.as_ref() }
    }

    /// The node has been read again. Returns whether the outcome of an order was unknown before.
    pub(super) fn mark_read(&mut self) -> bool {
        let is_unclear = self.is_unclear();
        self.underway.take_if(|_| is_unclear).is_some()
    }

    pub(super) fn is_unclear(&self) -> bool {
        matches!(self.underway, Some(Underway::Unclear { .. }))
    }

    /// The order in flight has not been answered in time.
    pub(super) fn is_overdue(&self, now: Timestamp) -> bool {
        matches!(self.underway, Some(Underway::Ordered { expires, .. }) if expires <= now)
    }

    /// Returns until when nothing may be decided for the node, and asks to read the node if that is needed first.
    pub(super) fn waits(
        &mut self,
        node: Option<NodeRef>,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Option<Timestamp> {
        match (&self.underway, node) {
            (Some(Underway::Ordered { expires, .. }), _) => Some(*expires),
            (Some(Underway::Unclear { asked: Some(asked) }), Some(_)) if now < *asked + ASK_AGAIN => {
                Some(*asked + ASK_AGAIN)
            }
            (Some(Underway::Unclear { .. }), Some(node)) => {
                plan.questions.push(Question::Node(node));
                self.underway = Some(Underway::Unclear { asked: Some(now) });
                Some(now + ASK_AGAIN)
            }
            (Some(Underway::Unclear { .. }), None) | (None, _) => None,
        }
    }

    /// Adds failing orders to the explanation, for as long as they are wanted. A worker that cannot be created and a
    /// startup gate that cannot be opened are already part of the decision itself.
    pub(super) fn complain(&mut self, decision: &mut Decision) {
        let wanted: Vec<Action> = decision.wants.iter().filter_map(crate::decide::Want::action).collect();
        self.setbacks.keep_only(&wanted);
        let Explanation { gates, notes, .. } = &mut decision.explanation;
        for (order, complaint) in self.setbacks.complaints() {
            let is_explained = match order {
                Action::StartWorker { .. } => true,
                Action::OpenGate { gate, .. } => {
                    gates.iter().any(|closed| closed.gate == *gate && closed.is_refused())
                }
                _ => false,
            };
            let order = order.to_string();
            match complaint {
                _ if is_explained => {}
                Complaint::Refused(why) => notes.push(Note::Refused { order, why: why.clone() }),
                Complaint::Contradicted => notes.push(Note::Contradicted { order }),
                Complaint::Unavailable => {}
            }
        }
    }
}

fn fingerprint(action: &Action) -> u64 {
    let mut hasher = DefaultHasher::new();
    action.hash(&mut hasher);
    hasher.finish()
}

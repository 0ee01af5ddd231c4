//! What is under way for one node. Memory only: after a restart the cluster itself shows where things stand.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

use super::{ASK_AGAIN, Plan, Question};
use crate::action::Action;
use crate::decide::{Decision, Refusals};
use crate::explain::{Explanation, Note};
use crate::ids::NodeRef;

const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// A node that goes within this long of a deletion whose answer was lost goes because of it. Karpenter begins to delete a
/// node seconds after its claim.
const DELETION_SHOWS: SignedDuration = SignedDuration::from_mins(2);

/// What is under way for one node.
#[derive(Debug, Default)]
pub(super) struct NodeTask {
    pub(super) underway: Option<Underway>,
    pub(super) explanation: Option<Explanation>,
    /// The explanation was reported as it is now.
    pub(super) is_reported: bool,
    /// The order that was carried out last, by its fingerprint: to keep the order would take more memory than all else.
    done: Option<u64>,
    /// Kinds of orders that came to nothing, each with a pause of its own: one that is refused holds up no other.
    setbacks: Vec<Setback>,
    lost_deletion: Option<Box<LostDeletion>>,
}

/// A deletion whose answer was lost.
#[derive(Debug)]
struct LostDeletion {
    action: Action,
    until: Timestamp,
}

/// Orders of one kind that came to nothing in a row.
#[derive(Debug)]
struct Setback {
    order: Action,
    count: u32,
    not_before: Option<Timestamp>,
    complaint: Option<Complaint>,
}

/// What there is to say about orders that came to nothing.
#[derive(Debug)]
enum Complaint {
    /// The API server refused the last one, and said why.
    Refused(String),
    /// Things were not as the order assumed, several times in a row.
    Contradicted,
}

/// An order that was given.
#[derive(Debug)]
pub(super) enum Underway {
    /// Its answer is expected.
    Ordered { ticket: u64, given: Timestamp, expires: Timestamp, starts_worker: bool },
    /// Nobody knows what it did: the node has to be read again.
    Unclear { asked: Option<Timestamp> },
}

impl NodeTask {
    /// When an order was given, if it is the one whose answer is expected.
    pub(super) fn given(&self, number: u64) -> Option<Timestamp> {
        match self.underway {
            Some(Underway::Ordered { ticket, given, .. }) if ticket == number => Some(given),
            Some(Underway::Ordered { .. } | Underway::Unclear { .. }) | None => None,
        }
    }

    /// Forgets what was ordered, but not that it was. Whoever leads next reports what comes of it.
    pub(super) fn mark_unclear(&mut self) {
        self.lost_deletion = None;
        if self.underway.is_some() {
            self.underway = Some(Underway::Unclear { asked: None });
        }
    }

    /// An order was carried out. If it is the same as the one before, that had no visible effect.
    pub(super) fn carried_out(&mut self, action: &Action, now: Timestamp) {
        let done = Some(fingerprint(action));
        if matches!(action, Action::DeleteNode { .. }) {
            self.lost_deletion = None;
        }
        if self.done == done {
            self.pause(action, now, None);
            self.underway = Some(Underway::Unclear { asked: None });
        } else {
            self.setbacks.retain(|setback| !setback.order.is_like(action));
            self.done = done;
        }
    }

    /// Nobody knows what came of an order.
    pub(super) fn lost(&mut self, action: &Action, now: Timestamp) {
        if matches!(action, Action::DeleteNode { .. }) {
            let lost = LostDeletion { action: action.clone(), until: now + DELETION_SHOWS };
            self.lost_deletion = Some(Box::new(lost));
        }
        self.underway = Some(Underway::Unclear { asked: None });
    }

    /// A deletion that was carried out although its answer was lost: the node is gone, or going.
    pub(super) fn confirmed_deletion(
        &mut self,
        is_going: impl Fn(&NodeRef) -> bool,
        now: Timestamp,
    ) -> Option<Action> {
        let is_over = |lost: &mut Box<LostDeletion>| is_going(lost.action.node()) || lost.until <= now;
        let lost = self.lost_deletion.take_if(is_over)?;
        (now < lost.until).then_some(lost.action)
    }

    /// Things are not as an order assumed. Once is nothing: others write too.
    pub(super) fn contradicted(&mut self, action: &Action, now: Timestamp) {
        if self.setbacks.iter().any(|setback| setback.order.is_like(action)) {
            self.pause(action, now, Some(Complaint::Contradicted));
        } else {
            self.setbacks.push(Setback {
                order: action.clone(),
                count: 1,
                not_before: None,
                complaint: None,
            });
        }
        self.underway = Some(Underway::Unclear { asked: None });
    }

    /// The API server refused an order.
    pub(super) fn refused(&mut self, action: &Action, why: String, now: Timestamp) {
        self.pause(action, now, Some(Complaint::Refused(why)));
    }

    /// An order was not carried out.
    pub(super) fn set_back(&mut self, action: &Action, now: Timestamp) {
        self.pause(action, now, None);
    }

    /// The next order of this kind is given later each time.
    fn pause(&mut self, action: &Action, now: Timestamp, complaint: Option<Complaint>) {
        let known = self.setbacks.iter().position(|setback| setback.order.is_like(action));
        let count = known.map_or(0, |at| self.setbacks.swap_remove(at).count);
        let pause = FIRST_PAUSE.saturating_mul(1 << count.min(5)).min(LONGEST_PAUSE);
        self.setbacks.push(Setback {
            order: action.clone(),
            count: count.saturating_add(1),
            not_before: Some(now + pause),
            complaint,
        });
    }

    /// Until when an order of this kind is not given again.
    pub(super) fn held_until(&self, action: &Action, now: Timestamp) -> Option<Timestamp> {
        let setback = self.setbacks.iter().find(|setback| setback.order.is_like(action))?;
        setback.not_before.filter(|at| now < *at)
    }

    /// What the API server refused last.
    pub(super) fn refusals(&self) -> Refusals<'_> {
        let mut refusals = Refusals::default();
        for setback in &self.setbacks {
            let Some(Complaint::Refused(why)) = &setback.complaint else { continue };
            match setback.order {
                Action::StartWorker { .. } => refusals.worker = Some(why),
                Action::OpenGate { .. } | Action::CloseGate { .. } | Action::Record { .. } => {
                    refusals.write = Some(why);
                }
                _ => {}
            }
        }
        refusals
    }

    /// Keeps why the node is open or closed.
    pub(super) fn explain(&mut self, explanation: Explanation) {
        if self.explanation.as_ref() != Some(&explanation) {
            self.explanation = Some(explanation);
            self.is_reported = false;
        }
    }

    /// What has to be reported, unless it was.
    pub(super) fn report(&mut self) -> Option<&Explanation> {
        if std::mem::replace(&mut self.is_reported, true) { None } else { self.explanation.as_ref() }
    }

    /// The node has been read again.
    pub(super) fn mark_read(&mut self) {
        if matches!(self.underway, Some(Underway::Unclear { .. })) {
            self.underway = None;
        }
    }

    /// No answer has come to what was ordered.
    pub(super) fn is_overdue(&self, now: Timestamp) -> bool {
        matches!(self.underway, Some(Underway::Ordered { expires, .. }) if expires <= now)
    }

    /// Says until when nothing may be decided for the node, asking what has to be known before.
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
            // There is nothing to read any more.
            (Some(Underway::Unclear { .. }), None) => {
                self.underway = None;
                None
            }
            (None, _) => None,
        }
    }

    /// Adds to an explanation what the API server refuses, for as long as it is wanted. A refused worker is part of the
    /// decision itself.
    pub(super) fn complain(&mut self, decision: &mut Decision) {
        let wanted: Vec<Action> = decision.wants.iter().filter_map(crate::decide::Want::action).collect();
        self.setbacks.retain(|setback| wanted.iter().any(|wanted| wanted.is_like(&setback.order)));
        for setback in &self.setbacks {
            let order = setback.order.to_string();
            let note = match &setback.complaint {
                Some(Complaint::Refused(_)) if matches!(setback.order, Action::StartWorker { .. }) => {
                    continue;
                }
                Some(Complaint::Refused(why)) => Note::Refused { order, why: why.clone() },
                Some(Complaint::Contradicted) => Note::Contradicted { order },
                None => continue,
            };
            decision.explanation.notes.push(note);
        }
    }
}

fn fingerprint(action: &Action) -> u64 {
    let mut hasher = DefaultHasher::new();
    action.hash(&mut hasher);
    hasher.finish()
}

//! What is under way for one node. Memory only: after a restart the cluster itself tells where things stand.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

use super::{ASK_AGAIN, Plan, Question};
use crate::action::Action;
use crate::decide::Decision;
use crate::explain::Explanation;
use crate::ids::NodeRef;
use crate::view::Stamp;

const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// What is under way for one node.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) underway: Option<Underway>,
    /// The worker that the node is waiting for, and since when.
    pub(super) queued: Option<(Timestamp, Stamp)>,
    pub(super) timer: Option<Timestamp>,
    pub(super) told: Option<Explanation>,
    /// Orders that came to nothing in a row.
    setbacks: u32,
    /// The order that was carried out last, by its fingerprint: to keep the order would take more memory than all else.
    done: Option<u64>,
    not_before: Option<Timestamp>,
    /// What was refused, and why.
    refusal: Option<Box<(Action, String)>>,
}

/// An order that was given.
#[derive(Debug)]
pub(super) enum Underway {
    /// Its answer is expected.
    Ordered { ticket: u64, given: Timestamp, expires: Timestamp, starts_worker: bool },
    /// Nobody knows what it did: the node has to be read again.
    Unclear { asked: Option<Timestamp> },
}

impl Desk {
    /// When an order was given, if it is the one whose answer is expected.
    pub(super) fn given(&self, number: u64) -> Option<Timestamp> {
        match self.underway {
            Some(Underway::Ordered { ticket, given, .. }) if ticket == number => Some(given),
            Some(Underway::Ordered { .. } | Underway::Unclear { .. }) | None => None,
        }
    }

    /// Forgets what was ordered, but not that it was.
    pub(super) fn lose_track(&mut self) {
        if self.underway.is_some() {
            self.underway = Some(Underway::Unclear { asked: None });
        }
        self.queued = None;
    }

    /// An order was carried out. If it is the same as the one before, that had no effect which we could see.
    pub(super) fn carried_out(&mut self, action: &Action, now: Timestamp) {
        let done = Some(fingerprint(action));
        if self.done == done {
            self.set_back(now, None);
            self.underway = Some(Underway::Unclear { asked: None });
        } else {
            self.setbacks = 0;
            self.done = done;
        }
    }

    /// Things are not as an order assumed. Once is nothing: others write too.
    pub(super) fn contradicted(&mut self, action: &Action, now: Timestamp) {
        if self.setbacks > 0 {
            let why = "things are not as they seem, several times in a row".to_owned();
            self.set_back(now, Some((action.clone(), why)));
        } else {
            self.setbacks = 1;
        }
        self.underway = Some(Underway::Unclear { asked: None });
    }

    /// An order came to nothing: the next one is given later each time.
    pub(super) fn set_back(&mut self, now: Timestamp, refusal: Option<(Action, String)>) {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.setbacks.min(5));
        self.not_before = Some(now + doubled.min(LONGEST_PAUSE));
        self.setbacks = self.setbacks.saturating_add(1);
        self.refusal = refusal.map(Box::new);
    }

    /// The node has been read again.
    pub(super) fn see_clear(&mut self) {
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
            (None, _) => self.not_before.filter(|at| now < *at),
        }
    }

    /// Adds to an explanation what the API server would not let us do, as long as we want to do it.
    pub(super) fn complain(&mut self, decision: &mut Decision) {
        self.not_before = None;
        let wanted = decision.want.action();
        let is_same = |refused: &Action| wanted.as_ref().is_some_and(|wanted| wanted.is_like(refused));
        self.refusal.take_if(|refusal| !is_same(&refusal.0));
        if let Some((action, why)) = self.refusal.as_deref() {
            let told = &decision.explanation.why;
            decision.explanation.why = format!("{told}; the API server refused to {action}: {why}");
        }
    }
}

fn fingerprint(action: &Action) -> u64 {
    let mut hasher = DefaultHasher::new();
    action.hash(&mut hasher);
    hasher.finish()
}

//! What to do about one node, from what is known of it. Pure: the same knowledge gives the same decision.

mod deletion;
mod scope;
mod startup;
mod subject;
mod survey;
mod tidy;
mod trial;
mod verification;

use jiff::Timestamp;

use crate::action::Action;
use crate::config::Config;
use crate::explain::{Door, Explanation, Phase};
use crate::fleet::Fleet;
use crate::ids::{NodeRef, Requires};
use crate::view::Stamp;
use crate::world::{NodeEntry, World};
use scope::Scope;
use subject::Subject;
pub(crate) use survey::survey;

/// From where nodes are looked after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// A controller looks after all nodes, and workers run the checks.
    Controller,
    /// A pod looks after the node it is on, and runs the checks itself. It verifies its node whether it ever had the gate or
    /// not: it is not told apart from one that lost it.
    Node,
}

/// What a decision may rest on, besides the node itself.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// From where we look.
    pub seat: Seat,
    /// The configuration.
    pub config: &'a Config,
    /// Everything known of the cluster.
    pub world: &'a World,
    /// How all nodes are doing together.
    pub fleet: &'a Fleet,
    /// What workers are to check now.
    pub requires: &'a Requires,
    /// Why the API server refused the worker of this node, if it did.
    pub refused_worker: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
}

/// What is to be done about a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What to do now, the most important first. Only one write is made at a time, and the next one is tried where the API
    /// server refuses the one before it.
    pub wants: Vec<Want>,
    /// When to look again even if nothing is heard of the node.
    pub wake: Option<Timestamp>,
    /// Where the node stands.
    pub explanation: Explanation,
    /// The node's present worker is still wanted.
    worker_is_wanted: bool,
    /// The node is verified and has nothing to do: the checks may be run there for comparison.
    pub(crate) can_run_reference: bool,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub enum Want {
    /// This write.
    Act(Action),
    /// A worker, as soon as there is a slot for it.
    Worker {
        /// The worker to make.
        stamp: Stamp,
        /// The node has not been tried before in this boot.
        is_first: bool,
        /// Since when it has been wanted.
        due: Timestamp,
    },
    /// To know whether the checks pass on some verified node.
    Reference,
    /// To see the node and its worker as they are now, not as a watch showed them.
    Reread(NodeRef),
    /// To know what runs on the node.
    Occupancy(NodeRef),
}

impl Want {
    /// The write that is wanted, now or as soon as there is a slot for it.
    pub(crate) fn action(&self) -> Option<Action> {
        match self {
            Self::Act(action) => Some(action.clone()),
            Self::Worker { stamp, .. } => Some(Action::StartWorker { stamp: stamp.clone() }),
            Self::Reference | Self::Reread(_) | Self::Occupancy(_) => None,
        }
    }
}

impl Decision {
    fn new(explanation: Explanation) -> Self {
        Self { wants: Vec::new(), wake: None, explanation, worker_is_wanted: false, can_run_reference: false }
    }

    fn wants(mut self, want: Want) -> Self {
        self.wants.push(want);
        self
    }

    fn keeps_worker(mut self) -> Self {
        self.worker_is_wanted = true;
        self
    }

    fn acts(self, action: Action) -> Self {
        self.wants(Want::Act(action))
    }

    fn wakes(mut self, at: Timestamp) -> Self {
        self.wake = Some(self.wake.map_or(at, |earlier| earlier.min(at)));
        self
    }
}

/// Decides about one node.
#[must_use]
pub fn decide_node(cx: Context<'_>, entry: &NodeEntry) -> Decision {
    let Some(view) = &entry.view else {
        return tidy::orphans(cx, entry);
    };
    let subject = Subject { cx, entry, view, state: entry.state.as_ref() };
    match scope::of(&subject) {
        Scope::Deleting => {
            Decision::new(Explanation::new(Phase::Deleting, subject.door(), "the node is being deleted"))
        }
        Scope::Paused(why) => Decision::new(subject.explain(subject.phase(), format!("paused: {why}"))),
        Scope::Excluded(why) => {
            let why = format!("left alone: {why}{}", subject.orphaned_gates());
            let decision = Decision::new(Explanation::new(Phase::OutOfScope, subject.door(), why));
            match tidy::spent_worker(&subject, false) {
                Some(action) => decision.acts(action),
                None => decision,
            }
        }
        Scope::Ours => in_scope(&subject),
    }
}

/// Gates first, the verification gate before the others; then what is left to tidy up; and then what is no write.
fn in_scope(subject: &Subject<'_>) -> Decision {
    let startup = startup::consider(subject);
    let mut decision = verification::consider(subject);
    if let Some(at) = startup.wake {
        decision = decision.wakes(at);
    }
    if !startup.waiting.is_empty() {
        let waiting = startup.waiting.join("; ");
        decision.explanation.why = match decision.explanation.phase {
            Phase::OutOfScope => waiting,
            _ => format!("{}; {waiting}", decision.explanation.why),
        };
        decision.explanation.door = Door::Closed;
    }
    let (acts, others): (Vec<Want>, Vec<Want>) =
        std::mem::take(&mut decision.wants).into_iter().partition(|want| matches!(want, Want::Act(_)));
    let wants_worker = others.iter().any(|want| matches!(want, Want::Worker { .. }));
    let is_unsure = others.iter().any(|want| matches!(want, Want::Reread(_)));
    // What shows the verdict comes after the verdict.
    let shown = if acts.is_empty() && !is_unsure { tidy::condition(subject, &mut decision) } else { None };
    let shown = shown.map(Want::Act);
    let removed = if wants_worker {
        tidy::foreign_worker(subject)
    } else {
        tidy::spent_worker(subject, decision.worker_is_wanted)
    };
    let removed = removed.filter(|_| acts.is_empty()).map(Want::Act);
    decision.wants = acts;
    decision.wants.extend(startup.actions.into_iter().map(Want::Act));
    if wants_worker {
        decision.wants.extend(removed.into_iter().chain(others).chain(shown));
    } else {
        decision.wants.extend(shown.into_iter().chain(removed).chain(others));
    }
    decision
}

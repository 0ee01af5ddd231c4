//! Decides what to do about one node, from what is known about it. Pure: the same knowledge gives the same decision.
//!
//! Nothing in here reads the configuration of the process. The requirements for a node come from its [`Policy`], and
//! anything that is scarce across the cluster is requested from [`Grants`].

mod attempts;
mod deletion;
mod gate;
mod scope;
mod subject;
mod survey;
mod tidy;
mod verification;

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::explain::{Access, ClosedGate, Explanation, GateWait, LastResult, Note, PausedBy, Phase, Why};
use crate::grants::Grants;
use crate::ids::NodeRef;
use crate::policy::{Policy, Requirement};
use crate::setback::Setbacks;
use crate::state::{NodeState, StatePhase};
use crate::view::{Purpose, Stamp};
use crate::world::{NodeEntry, World};
use scope::Scope;
use subject::Subject;
pub(crate) use survey::survey;

/// Who applies the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A controller manages all nodes, and workers run the checks.
    Controller,
    /// A pod manages the node it runs on, and runs the checks itself. It verifies its node even if the node never had
    /// the gate, because it cannot tell such a node from one that lost its taint.
    DaemonSet,
}

/// The input to a decision, besides the node itself.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub mode: Mode,
    /// The policy of the node.
    pub policy: &'a Policy,
    pub world: &'a World,
    pub grants: &'a Grants,
    /// How often a node that waits for something external is reconsidered.
    pub interval: SignedDuration,
    pub history: History<'a>,
    pub now: Timestamp,
}

/// The outcome of earlier decisions about a node, as far as this process knows.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// Orders that were not carried out.
    pub setbacks: &'a Setbacks,
    /// The last explanation, and since when its reason has been the same.
    pub last: Option<(&'a Explanation, Timestamp)>,
}

impl Default for History<'_> {
    fn default() -> Self {
        Self { setbacks: Setbacks::NONE, last: None }
    }
}

/// The decision about one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What to do now, most important first. Only one write is made at a time. If the API server refuses one, the next
    /// one is tried.
    pub wants: Vec<Want>,
    /// When to decide again, even if nothing new is learned about the node.
    pub wake: Option<Timestamp>,
    pub explanation: Explanation,
    /// The node's current worker is still wanted.
    worker_is_wanted: bool,
    /// The node is verified and nothing is pending for it, so it can serve for a reference run.
    pub(crate) can_run_reference: bool,
    /// The node's final attempt, which may lead to its deletion, is wanted or under way.
    pub(crate) is_final_attempt: bool,
}

/// A single action or question that a decision calls for.
#[derive(Debug, Clone, PartialEq)]
pub enum Want {
    Act(Action),
    /// Start a worker, as soon as there is a slot for it.
    Worker {
        stamp: Stamp,
        /// The node has not been tried yet in this boot.
        is_first: bool,
        /// Since when the worker has been due.
        due: Timestamp,
    },
    /// Make a reference run on some verified node.
    Reference,
    /// Read the node and its worker from the API server, because a watch may lag behind.
    Reread(NodeRef),
    /// Find out which pods run on the node.
    Occupancy(NodeRef),
}

impl Want {
    /// The write that is wanted, now or as soon as there is a slot.
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
        Self {
            wants: Vec::new(),
            wake: None,
            explanation,
            worker_is_wanted: false,
            can_run_reference: false,
            is_final_attempt: false,
        }
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

    fn notes(mut self, note: Note) -> Self {
        self.explanation.notes.push(note);
        self
    }

    fn wakes(mut self, at: Timestamp) -> Self {
        self.wake_by(at);
        self
    }

    fn wake_by(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |earlier| earlier.min(at)));
    }
}

#[must_use]
pub fn decide_node(cx: Context<'_>, entry: &NodeEntry) -> Decision {
    let Some(view) = &entry.view else {
        return tidy::orphans(cx, entry);
    };
    let subject = Subject { cx, entry, view, state: entry.state.as_ref() };
    match scope::of(&subject) {
        Scope::Deleting => Decision::new(subject.explain(Phase::Deleting, Why::Deleting)),
        Scope::Paused(by) => paused(&subject, by),
        Scope::Excluded(by) => {
            let why = Why::Excluded { by, is_closed: subject.access() == Access::Closed };
            let decision = Decision::new(subject.explain(Phase::OutOfScope, why));
            match tidy::spent_worker(&subject, false) {
                Some(action) => decision.acts(action),
                None => decision,
            }
        }
        Scope::Managed => in_scope(&subject),
    }
}

/// The stamp of a worker that makes a reference run on a verified node.
pub(crate) fn reference_stamp(cx: Context<'_>, entry: &NodeEntry) -> Option<Stamp> {
    let (view, state) = entry.view.as_ref().zip(entry.state.as_ref())?;
    let subject = Subject { cx, entry, view, state: Some(state) };
    Some(subject.next_stamp(Purpose::Reference, state.attempt))
}

/// A paused node is not touched, but one that an operator paused says so while it is closed. While everything is
/// paused, nothing at all is written.
fn paused(subject: &Subject<'_>, by: PausedBy) -> Decision {
    let mut explanation = subject.explain(subject.phase(), Why::Paused(by));
    let has_result = |state: &&NodeState| state.phase == StatePhase::Failed || state.says_why();
    if let Some(state) = subject.state_of_this_boot().filter(has_result) {
        let result = LastResult { retry: None, ..subject.last_result(state) };
        explanation.notes.push(Note::LastResult(result));
    }
    let mut decision = Decision::new(explanation);
    match by {
        PausedBy::Configuration => decision,
        PausedBy::Annotation => {
            let shown = tidy::paused(subject, &mut decision);
            shown.into_iter().fold(decision, Decision::acts)
        }
    }
}

/// Orders what is wanted: gates first, with the verification gate before the others, then cleanup, and then everything
/// that is not a write. A wanted worker comes before the condition, though.
fn in_scope(subject: &Subject<'_>) -> Decision {
    let mut decision = verification::consider(subject);
    let gates = consider_gates(subject, &mut decision);
    let (acts, others): (Vec<Want>, Vec<Want>) =
        std::mem::take(&mut decision.wants).into_iter().partition(|want| matches!(want, Want::Act(_)));
    let wants_worker = others.iter().any(|want| matches!(want, Want::Worker { .. }));
    let is_unsure = others.iter().any(|want| matches!(want, Want::Reread(_)));
    // The condition shows the verdict and is written after it, unless the verdict itself cannot be written.
    let setbacks = subject.cx.history.setbacks;
    let refusal = acts.iter().find_map(|want| setbacks.refusal_of(&want.action()?));
    let shown = match refusal {
        Some(why) => tidy::refused_write(subject, &mut decision, why),
        None if acts.is_empty() && !is_unsure => tidy::condition(subject, &mut decision),
        None => None,
    };
    let shown = shown.map(Want::Act);
    let removed = if wants_worker {
        tidy::foreign_worker(subject)
    } else {
        tidy::spent_worker(subject, decision.worker_is_wanted)
    };
    let removed = removed.filter(|_| acts.is_empty()).map(Want::Act);
    decision.wants = acts;
    decision.wants.extend(gates);
    if wants_worker {
        decision.wants.extend(removed.into_iter().chain(others).chain(shown));
    } else {
        decision.wants.extend(shown.into_iter().chain(removed).chain(others));
    }
    decision
}

/// Decides about the gates that need no worker, and adds to the explanation what every closed gate waits for.
fn consider_gates(subject: &Subject<'_>, decision: &mut Decision) -> Vec<Want> {
    let mut wants = Vec::new();
    for gate in &subject.cx.policy.gates {
        match gate.requirement {
            Requirement::Checks if subject.is_closed(gate) => {
                let closed = ClosedGate { gate: gate.name.clone(), wait: GateWait::Checks };
                decision.explanation.gates.push(closed);
            }
            Requirement::Checks => {}
            Requirement::Pods(_) => wants.extend(gate::consider(subject, gate, decision)),
        }
    }
    let is_closed = |closed: &ClosedGate| closed.wait != GateWait::Checks;
    if decision.explanation.gates.iter().any(is_closed) {
        decision.explanation.access = Access::Closed;
    }
    wants
}

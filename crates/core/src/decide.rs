//! What to do about one node, from what is known of it. Pure: the same knowledge gives the same decision.
//!
//! Nothing in here reads the configuration of the process. What is required of a node is its [`Policy`], and what is
//! scarce across the cluster is asked of [`Grants`].

mod deletion;
mod gate;
mod scope;
mod subject;
mod survey;
mod tidy;
mod trial;
mod verification;

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::explain::{Access, ClosedGate, Explanation, GateWait, Note, Phase, Why};
use crate::grants::Grants;
use crate::ids::NodeRef;
use crate::policy::{Policy, Requirement};
use crate::view::Stamp;
use crate::world::{NodeEntry, World};
use scope::Scope;
use subject::Subject;
pub(crate) use survey::survey;

/// Who applies the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A controller manages all nodes, and workers run the checks.
    Controller,
    /// A pod manages the node it runs on, and runs the checks itself. It verifies its node whether it ever had the gate or
    /// not: it is not told apart from one that lost it.
    DaemonSet,
}

/// What a decision may rest on, besides the node itself.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub mode: Mode,
    /// The policy of the node.
    pub policy: &'a Policy,
    pub world: &'a World,
    pub grants: &'a Grants,
    /// A node that waits for something outside is looked at again this often.
    pub interval: SignedDuration,
    pub refusals: Refusals<'a>,
    pub now: Timestamp,
}

/// Why the API server refused what was last ordered for a node, if it did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Refusals<'a> {
    pub worker: Option<&'a str>,
    /// A change of the node itself: opening or closing it, or recording a result.
    pub write: Option<&'a str>,
}

/// What is to be done about a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What to do now, the most important first. Only one write is made at a time, and the next one is tried where the API
    /// server refuses the one before it.
    pub wants: Vec<Want>,
    /// When to look again even if nothing is heard of the node.
    pub wake: Option<Timestamp>,
    pub explanation: Explanation,
    /// The node's present worker is still wanted.
    worker_is_wanted: bool,
    /// The node is verified and has nothing to do: the checks may be run there for comparison.
    pub(crate) can_run_reference: bool,
    /// The attempt that may lead to the deletion of the node is wanted or under way.
    pub(crate) is_final_attempt: bool,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub enum Want {
    Act(Action),
    /// A worker, as soon as there is a slot for it.
    Worker {
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
        Scope::Paused(by) => Decision::new(subject.explain(subject.phase(), Why::Paused(by))),
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

/// Gates first, the one with the checks before the others; then what is left to tidy up; and then what is no write.
fn in_scope(subject: &Subject<'_>) -> Decision {
    let mut decision = verification::consider(subject);
    let gates = consider_gates(subject, &mut decision);
    let (acts, others): (Vec<Want>, Vec<Want>) =
        std::mem::take(&mut decision.wants).into_iter().partition(|want| matches!(want, Want::Act(_)));
    let wants_worker = others.iter().any(|want| matches!(want, Want::Worker { .. }));
    let is_unsure = others.iter().any(|want| matches!(want, Want::Reread(_)));
    // What shows the verdict comes after the verdict, unless the verdict cannot be written.
    let shown = match subject.cx.refusals.write {
        _ if acts.is_empty() && !is_unsure => tidy::condition(subject, &mut decision),
        Some(why) if !acts.is_empty() => tidy::refused_write(subject, &decision, why),
        _ => None,
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

/// What is to be done about the gates that need no worker. Adds what every closed gate waits for to the explanation.
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

//! The rules at work on a whole cluster: facts in, orders out. Deciding costs what has changed, not what there is.
//!
//! ```text
//!   facts --> World --> nodes that changed or whose time has come --> decide_node --> orders, questions, explanations
//!               ^                                                                        |
//!               \------------------------- answers to orders <---------------------------/
//! ```
//!
//! At most one order is under way for each node. What it did is learned from its answer, or by reading the node
//! again; until then nothing else is decided for that node.

mod desk;
mod orders;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::config::Config;
use crate::decide::{Census, Context, Decision, Seat, Want, decide_node};
use crate::explain::Explanation;
use crate::ids::{NodeName, NodeRef};
use crate::view::Stamp;
use crate::world::{Fact, NodeEntry, World};
use desk::{Desk, Underway};

/// An order may wait this long for its turn. Whoever carries orders out answers later ones without trying.
pub const LONGEST_QUEUE: SignedDuration = SignedDuration::from_secs(30);
/// An order whose answer has not come this long after it must have is looked into.
const ANSWER_OVERDUE: SignedDuration = SignedDuration::from_secs(5);
/// A question that was not answered is asked again after this long.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// So many verified nodes are looked at to find one that can lend itself for a comparison.
const LENDERS_TRIED: usize = 10;

/// One write, and the number by which its answer is told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The number.
    pub ticket: u64,
    /// The write.
    pub action: Action,
}

/// Something that we have to read because no watch tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Everything, to heal whatever a watch may have lost. Answered by lists of those kinds of objects of which that can be
    /// feared, or not at all.
    Everything,
    /// A node and its worker, after a write of which we do not know what it did. Answered by [`Fact::Reread`],
    /// and by [`Fact::Ledger`] where nodes may be deleted.
    Node(NodeRef),
    /// What runs on a node. Answered by [`Fact::Occupancy`].
    Occupancy(NodeRef),
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Writes to carry out.
    pub orders: Vec<Order>,
    /// Writes that would be carried out if this were no dry run.
    pub withheld: Vec<Action>,
    /// What to read.
    pub questions: Vec<Question>,
    /// Nodes that now stand otherwise than was last told; none for a node that is gone.
    pub news: Vec<(NodeName, Option<Explanation>)>,
    /// When to decide again, even if nothing is heard until then.
    pub wake: Option<Timestamp>,
    /// How many nodes were decided about.
    pub considered: usize,
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It was carried out, and this is how things are now.
    Done(Vec<Fact>),
    /// Things are not as the order assumed: 404, 409, the name is taken, or 422 because a test in a patch failed.
    Conflict,
    /// The API server will not do this, and said why: 400, 403, any other 422.
    Refused(String),
    /// It was not carried out, and may be tried again: 429, 503, no connection.
    Unavailable,
    /// It may have been carried out, or may still be: 500, 504, no answer.
    Unknown,
}

/// What has to be known before anything is decided: nothing is decided on half a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Nodes,
    Workers,
    InitPods,
}

/// The rules at work.
#[derive(Debug)]
pub struct Engine {
    seat: Seat,
    config: Config,
    world: World,
    census: Census,
    desks: BTreeMap<NodeName, Desk>,
    timers: BTreeSet<(Timestamp, NodeName)>,
    /// Nodes that want a worker, the one that has waited longest first.
    queue: BTreeSet<(Timestamp, NodeName)>,
    changed: BTreeSet<NodeName>,
    known: BTreeSet<Topic>,
    leading: bool,
    starting: usize,
    next_ticket: u64,
    next_sweep: Option<Timestamp>,
    now: Timestamp,
}

impl Engine {
    /// An engine that knows nothing yet and does nothing until it leads.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::seated(Seat::Controller, config)
    }

    /// The same, for one node and on that node.
    #[must_use]
    pub fn on_its_node(config: Config) -> Self {
        Self::seated(Seat::Node, config)
    }

    fn seated(seat: Seat, config: Config) -> Self {
        Self {
            seat,
            config,
            world: World::default(),
            census: Census::default(),
            desks: BTreeMap::new(),
            timers: BTreeSet::new(),
            queue: BTreeSet::new(),
            changed: BTreeSet::new(),
            known: BTreeSet::new(),
            leading: false,
            starting: 0,
            next_ticket: 0,
            next_sweep: None,
            now: Timestamp::MIN,
        }
    }

    /// What is known of the cluster.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Where each node stands, as it was last decided.
    pub fn explanations(&self) -> impl Iterator<Item = (&NodeName, &Explanation)> {
        self.desks.iter().filter_map(|(name, desk)| Some((name, desk.told.as_ref()?)))
    }

    /// Takes up another configuration. With other gates, init pods have to be listed anew.
    pub fn configure(&mut self, config: Config) {
        if self.config.gates != config.gates {
            self.known.remove(&Topic::InitPods);
        }
        self.config = config;
        self.consider_all();
    }

    /// Begins to give orders.
    pub fn lead(&mut self) {
        self.leading = true;
        self.consider_all();
    }

    /// Gives no more orders. What is under way is looked into before anything else, should we lead again, and where every
    /// node stands is told anew then.
    pub fn stand_by(&mut self) {
        self.leading = false;
        for desk in self.desks.values_mut() {
            desk.lose_track();
            desk.told = None;
        }
        self.starting = 0;
        self.queue.clear();
    }

    /// Learns a fact.
    pub fn learn(&mut self, fact: Fact, now: Timestamp) {
        let now = self.not_back(now);
        match &fact {
            Fact::Nodes(..) => self.comes_to_know(Topic::Nodes),
            Fact::Workers(..) => self.comes_to_know(Topic::Workers),
            Fact::InitPods(..) => self.comes_to_know(Topic::InitPods),
            Fact::Reread(reread) => {
                if let Some(desk) = self.desks.get_mut(&reread.node.name) {
                    desk.see_clear();
                }
            }
            Fact::Pools(_)
            | Fact::Ledger(_)
            | Fact::Node(..)
            | Fact::NodeGone(..)
            | Fact::Worker(..)
            | Fact::WorkerGone(..)
            | Fact::InitPod(_)
            | Fact::InitPodGone(..)
            | Fact::Occupancy(..)
            | Fact::Unsound(_)
            | Fact::Sound(_) => {}
        }
        self.world.learn(fact, now);
        for name in self.world.take_touched() {
            self.census.note(&name, self.world.entry(&name), self.world.facts());
            self.changed.insert(name);
        }
    }

    /// Learns what came of an order, and says what there is to tell people of it.
    pub fn settle(&mut self, order: &Order, outcome: Outcome, now: Timestamp) -> Option<Action> {
        let now = self.not_back(now);
        let node = order.action.node();
        let given = self.desks.get(&node.name).and_then(|desk| desk.given(order.ticket));
        if given.is_some() {
            self.release(&node.name);
            let refused = match &outcome {
                Outcome::Refused(why) => Some((order.action.clone(), why.clone())),
                _ => None,
            };
            let desk = self.desks.entry(node.name.clone()).or_default();
            match &outcome {
                Outcome::Done(_) => desk.carried_out(&order.action, now),
                Outcome::Conflict => desk.contradicted(&order.action, now),
                Outcome::Unknown => desk.underway = Some(Underway::Unclear { asked: None }),
                Outcome::Refused(_) | Outcome::Unavailable => desk.set_back(now, refused),
            }
            self.changed.insert(node.name.clone());
        }
        let Outcome::Done(facts) = outcome else { return None };
        for fact in facts {
            self.learn(fact, now);
        }
        if let (Action::StartWorker { .. }, Some(given)) = (&order.action, given) {
            self.world.worker_was_asked_for(node, given);
        }
        order.action.news().map(|news| Action::Tell { node: node.clone(), news: news.clone() })
    }

    /// Decides about every node that has changed or whose time has come.
    ///
    /// The time is that of a clock which never jumps: the wall clock when the process was started, and what a
    /// monotonic clock has counted since.
    pub fn decide(&mut self, now: Timestamp) -> Plan {
        let now = self.not_back(now);
        let mut plan = Plan::default();
        if !self.leading {
            // Whoever begins to lead looks at every node.
            self.changed.clear();
        }
        if !self.leading || !self.knows_enough() {
            return plan;
        }
        self.sweep(now, &mut plan);
        while let Some((_, name)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.set_timer(&name, None);
            self.changed.insert(name);
        }
        let mut wants_reference = false;
        for name in std::mem::take(&mut self.changed) {
            plan.considered += 1;
            wants_reference |= self.consider(&name, now, &mut plan);
        }
        self.allot(now, &mut plan);
        if wants_reference {
            self.lend(now, &mut plan);
        }
        let first_timer = self.timers.first().map(|(at, _)| *at);
        plan.wake = first_timer.into_iter().chain(self.next_sweep).min();
        plan
    }

    fn comes_to_know(&mut self, topic: Topic) {
        self.known.insert(topic);
    }

    /// Time never goes back: spans are measured by it.
    fn not_back(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }

    /// Whether all is known that decisions rest on. Until then none is made.
    #[must_use]
    pub fn knows_enough(&self) -> bool {
        let mut needed = vec![Topic::Nodes, Topic::Workers];
        if !self.config.gates.is_empty() {
            needed.push(Topic::InitPods);
        }
        needed.iter().all(|topic| self.known.contains(topic))
    }

    fn consider_all(&mut self) {
        self.changed.extend(self.world.entries().map(|(name, _)| name.clone()));
    }

    /// A lost event heals within one interval, because everything is read again that often.
    fn sweep(&mut self, now: Timestamp, plan: &mut Plan) {
        let next = now + self.config.reconciliation.interval();
        match self.next_sweep {
            Some(at) if now < at => {}
            Some(_) => {
                plan.questions.push(Question::Everything);
                self.next_sweep = Some(next);
            }
            None => self.next_sweep = Some(next),
        }
    }

    /// Decides about one node. Says whether it asks for a comparison with a verified node.
    fn consider(&mut self, name: &NodeName, now: Timestamp, plan: &mut Plan) -> bool {
        self.unqueue(name);
        self.set_timer(name, None);
        let Some(entry) = self.world.entry(name) else {
            self.release(name);
            if self.desks.remove(name).is_some_and(|desk| desk.told.is_some()) {
                plan.news.push((name.clone(), None));
            }
            return false;
        };
        let is_lost = self.desks.get(name).is_some_and(|desk| desk.is_overdue(now));
        let node = entry.view.as_ref().map(|view| view.id.clone());
        if is_lost {
            self.release(name);
        }
        let desk = self.desks.entry(name.clone()).or_default();
        if is_lost {
            desk.underway = Some(Underway::Unclear { asked: None });
        }
        if let Some(until) = desk.waits(node, now, plan) {
            self.set_timer(name, Some(until));
            return false;
        }
        let Some(entry) = self.world.entry(name) else { return false };
        let mut decision = self.judge(entry, now);
        let desk = self.desks.entry(name.clone()).or_default();
        desk.complain(&mut decision);
        if self.config.reconciliation.dry_run
            && let Some(action) = decision.want.action()
        {
            decision.explanation.why = format!("{}; dry run, would {action}", decision.explanation.why);
        }
        if desk.told.as_ref() != Some(&decision.explanation) {
            plan.news.push((name.clone(), Some(decision.explanation.clone())));
            desk.told = Some(decision.explanation);
        }
        self.set_timer(name, decision.wake);
        self.pursue(name, decision.want, now, plan)
    }

    fn judge(&self, entry: &NodeEntry, now: Timestamp) -> Decision {
        let Self { seat, config, world, census, .. } = self;
        let cx = Context { seat: *seat, config, world, census, now };
        decide_node(cx, entry)
    }

    fn pursue(&mut self, name: &NodeName, want: Want, now: Timestamp, plan: &mut Plan) -> bool {
        match want {
            Want::Nothing => false,
            Want::Reference => true,
            Want::Act(action) => {
                self.order(action, now, plan);
                false
            }
            Want::Worker { stamp, due } => {
                if let Some(desk) = self.desks.get_mut(name) {
                    desk.queued = Some((due, stamp));
                }
                self.queue.insert((due, name.clone()));
                false
            }
            Want::Reread(node) => {
                if let Some(desk) = self.desks.get_mut(name) {
                    desk.underway = Some(Underway::Unclear { asked: Some(now) });
                }
                plan.questions.push(Question::Node(node));
                self.set_timer(name, Some(now + ASK_AGAIN));
                false
            }
            Want::Occupancy(node) => {
                plan.questions.push(Question::Occupancy(node));
                self.set_timer(name, Some(now + ASK_AGAIN));
                false
            }
        }
    }

    fn unqueue(&mut self, name: &NodeName) -> Option<Stamp> {
        let (due, stamp) = self.desks.get_mut(name)?.queued.take()?;
        self.queue.remove(&(due, name.clone()));
        Some(stamp)
    }

    fn set_timer(&mut self, name: &NodeName, at: Option<Timestamp>) {
        let desk = match (at, self.desks.get_mut(name)) {
            (_, Some(desk)) => desk,
            (None, None) => return,
            (Some(_), None) => self.desks.entry(name.clone()).or_default(),
        };
        if let Some(before) = std::mem::replace(&mut desk.timer, at) {
            self.timers.remove(&(before, name.clone()));
        }
        if let Some(at) = at {
            self.timers.insert((at, name.clone()));
        }
    }
}

#[cfg(test)]
mod tests;

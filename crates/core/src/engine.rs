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

mod learn;
mod orders;
mod plan;
mod task;
mod withdraw;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::config::Config;
use crate::decide::{Context, Decision, Mode, Refusals, Want, decide_node};
use crate::explain::{Explanation, Note, Trouble};
use crate::feed::Feed;
use crate::grants::Grants;
use crate::ids::{NodeName, NodeRef};
use crate::policy::{Policies, Policy};
use crate::schedule::Schedule;
use crate::world::{NodeEntry, World};
pub use plan::{Order, Outcome, Plan, Question};
use task::{NodeTask, Underway};

/// An order may wait this long for its turn. The caller takes back older ones, see [`Engine::withdraw`].
pub const LONGEST_QUEUE: SignedDuration = SignedDuration::from_secs(30);
/// An order whose answer has not come this long after it must have is looked into.
const ANSWER_OVERDUE: SignedDuration = SignedDuration::from_secs(5);
/// A question that was not answered is asked again after this long.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// What holds for the process as a whole, whatever node is decided about.
#[derive(Debug, Clone, PartialEq)]
struct Settings {
    interval: SignedDuration,
    dry_run: bool,
    worker_slots: usize,
    request_timeout: SignedDuration,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        Self {
            interval: config.reconciliation.interval(),
            dry_run: config.reconciliation.dry_run,
            worker_slots: config.limits.max_concurrent_workers as usize,
            request_timeout: SignedDuration::from_secs(config.kubernetes.request_timeout_seconds.into()),
        }
    }
}

/// The rules at work.
#[derive(Debug)]
pub struct Engine {
    mode: Mode,
    settings: Settings,
    policies: Arc<Policies>,
    world: World,
    grants: Grants,
    tasks: BTreeMap<NodeName, NodeTask>,
    timers: Schedule<Timestamp, NodeName>,
    changed: BTreeSet<NodeName>,
    /// What nodes do that get no slot for their worker in this turn.
    meanwhile: Vec<(NodeName, Action)>,
    /// What is watched.
    feeds: BTreeSet<Feed>,
    /// What of it has been listed.
    known: BTreeSet<Feed>,
    /// All of it has to be listed again.
    starts_over: bool,
    leading: bool,
    next_ticket: u64,
    next_sweep: Option<Timestamp>,
    now: Timestamp,
}

impl Engine {
    /// An engine that knows nothing yet and does nothing until it leads.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::in_mode(Mode::Controller, config)
    }

    /// The same, for one node and on that node.
    #[must_use]
    pub fn on_its_node(config: &Config) -> Self {
        Self::in_mode(Mode::DaemonSet, config)
    }

    fn in_mode(mode: Mode, config: &Config) -> Self {
        let policies = Policies::from(config);
        Self {
            mode,
            settings: Settings::from(config),
            feeds: Feed::all(&policies),
            policies: Arc::new(policies),
            world: World::default(),
            grants: Grants::default(),
            tasks: BTreeMap::new(),
            timers: Schedule::default(),
            changed: BTreeSet::new(),
            meanwhile: Vec::new(),
            known: BTreeSet::new(),
            starts_over: false,
            leading: false,
            next_ticket: 0,
            next_sweep: None,
            now: Timestamp::MIN,
        }
    }

    /// What is required of nodes.
    #[must_use]
    pub fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// What is known of the cluster.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Why each node is open or closed, as it was last decided. A replica that stands by knows it, too.
    pub fn explanations(&self) -> impl Iterator<Item = (&NodeName, &Explanation)> {
        self.tasks.iter().filter_map(|(name, task)| Some((name, task.explanation.as_ref()?)))
    }

    /// Why the cluster rather than single nodes is suspected, if it is.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        self.policies.iter().find_map(|policy| self.grants.trouble(policy, self.now))
    }

    /// Takes up another configuration. What is no longer watched is forgotten, and what is watched from now on has to be
    /// listed before anything else is decided.
    pub fn configure(&mut self, config: &Config) {
        let policies = Policies::from(config);
        self.feeds = Feed::all(&policies);
        self.known.retain(|feed| self.feeds.contains(feed));
        self.world.keep_only(&self.feeds);
        let required = |policies: &Policies| -> Vec<_> {
            policies.iter().map(|policy| (policy.name.clone(), policy.requires.clone())).collect()
        };
        if required(&self.policies) != required(&policies) {
            // What was found under other requirements is no longer held against a node.
            self.grants.fleet.start_over(self.now);
        }
        self.policies = Arc::new(policies);
        self.settings = Settings::from(config);
        self.changed.extend(self.world.take_touched());
        self.consider_all();
        for name in self.changed.clone() {
            self.note(&name, self.now);
        }
    }

    /// Begins to give orders.
    pub fn lead(&mut self) {
        self.leading = true;
        self.consider_all();
    }

    /// Gives no more orders. What is under way is looked into before anything else, should this replica lead again, and the
    /// status of every node is reported again then.
    pub fn stand_by(&mut self) {
        self.leading = false;
        for task in self.tasks.values_mut() {
            task.mark_unclear();
            task.is_reported = false;
        }
        self.grants.clear();
        self.consider_all();
    }

    /// Learns what came of an order, and returns the events that report it.
    pub fn settle(&mut self, order: &Order, outcome: Outcome, now: Timestamp) -> Vec<Action> {
        let now = self.not_back(now);
        let node = order.action.node();
        let given = self.tasks.get(&node.name).and_then(|task| task.given(order.ticket));
        if given.is_some() {
            self.release(&node.name);
            let task = self.tasks.entry(node.name.clone()).or_default();
            match &outcome {
                Outcome::Done(_) => task.carried_out(&order.action, now),
                Outcome::Conflict => task.contradicted(&order.action, now),
                Outcome::Unknown => task.lost(&order.action, now),
                Outcome::Refused(why) => task.refused(&order.action, why.clone(), now),
                Outcome::Unavailable => task.set_back(&order.action, now),
            }
            self.changed.insert(node.name.clone());
        }
        let Outcome::Done(facts) = outcome else { return Vec::new() };
        for fact in facts {
            self.learn(fact, now);
        }
        if let (Action::StartWorker { .. }, Some(given)) = (&order.action, given) {
            self.world.worker_was_asked_for(node, given);
        }
        order.action.events()
    }

    /// Decides about every node that has changed or whose time has come. A replica that stands by decides too, so that it
    /// can say why a node is closed, but its plan is empty.
    ///
    /// The time is that of a clock which never jumps: the wall clock when the process was started, and what a
    /// monotonic clock has counted since.
    pub fn decide(&mut self, now: Timestamp) -> Plan {
        let now = self.not_back(now);
        let mut plan = Plan::default();
        if std::mem::take(&mut self.starts_over) {
            plan.questions.push(Question::StartOver);
        }
        if !self.knows_enough() {
            return plan;
        }
        if self.leading {
            self.sweep(now, &mut plan);
        }
        for policy in self.policies.iter() {
            self.grants.fleet.observe(&policy.limits, now);
        }
        while let Some(name) = self.grants.slots.next_late(now) {
            self.note_workers(&name, now);
        }
        while let Some(name) = self.timers.pop_until(&now) {
            self.changed.insert(name);
        }
        let mut wants_reference = false;
        for name in std::mem::take(&mut self.changed) {
            plan.considered += 1;
            wants_reference |= self.consider(&name, now, &mut plan);
        }
        if self.leading {
            self.start_workers(now, &mut plan);
        }
        if wants_reference {
            self.start_reference(now, &mut plan);
        }
        for question in &plan.questions {
            if let Question::Node(node) = question {
                self.world.asks_for(node);
            }
        }
        let first_timer = self.timers.first().map(|(at, _)| *at);
        let next_sweep = self.next_sweep.filter(|_| self.leading);
        plan.wake = first_timer.into_iter().chain(next_sweep).chain(self.grants.slots.wake()).min();
        plan
    }

    /// Time never goes back: spans are measured by it.
    fn not_back(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }

    fn consider_all(&mut self) {
        self.changed.extend(self.world.entries().map(|(name, _)| name.clone()));
    }

    /// A lost event heals within one interval, because everything is read again that often.
    fn sweep(&mut self, now: Timestamp, plan: &mut Plan) {
        let next = now + self.settings.interval;
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
        self.grants.slots.enqueue(name, None);
        self.timers.set(name, None);
        plan.confirmed.extend(self.confirmed_deletion(name, now));
        let Some(entry) = self.world.entry(name) else {
            self.forget(name, plan);
            return false;
        };
        let is_lost = self.tasks.get(name).is_some_and(|task| task.is_overdue(now));
        let node = entry.view.as_ref().map(|view| view.id.clone());
        if is_lost {
            self.release(name);
        }
        let task = self.tasks.entry(name.clone()).or_default();
        if is_lost {
            task.underway = Some(Underway::Unclear { asked: None });
        }
        if self.leading
            && let Some(until) = task.waits(node, now, plan)
        {
            self.timers.set(name, Some(until));
            return false;
        }
        let Some(entry) = self.world.entry(name) else { return false };
        let mut decision = self.judge(name, entry, now);
        let task = self.tasks.entry(name.clone()).or_default();
        task.complain(&mut decision);
        if self.settings.dry_run
            && let Some(action) = decision.wants.iter().find_map(Want::action)
        {
            decision.explanation.notes.push(Note::DryRun { order: action.to_string() });
        }
        task.explain(decision.explanation);
        if self.leading {
            plan.changes.extend(task.report().map(|explanation| (name.clone(), Some(explanation.clone()))));
        }
        self.timers.set(name, decision.wake);
        self.grants.note_final_attempt(name, decision.is_final_attempt);
        if !self.leading {
            return false;
        }
        self.pursue(name, decision.wants, now, plan)
    }

    fn confirmed_deletion(&mut self, name: &NodeName, now: Timestamp) -> Option<Action> {
        let view = self.world.entry(name).and_then(|entry| entry.view.as_ref());
        let is_going = |deleted: &NodeRef| view.is_none_or(|view| view.id != *deleted || view.leaving);
        self.tasks.get_mut(name)?.confirmed_deletion(is_going, now)
    }

    /// A node of which nothing is known any more.
    fn forget(&mut self, name: &NodeName, plan: &mut Plan) {
        self.release(name);
        self.grants.note_final_attempt(name, false);
        if self.tasks.remove(name).is_some_and(|task| task.is_reported) {
            plan.changes.push((name.clone(), None));
        }
    }

    /// What a decision about a node rests on. Its policy is resolved here and nowhere else.
    fn context<'a>(&'a self, entry: &NodeEntry, refusals: Refusals<'a>, now: Timestamp) -> Context<'a> {
        let Self { mode, settings, world, grants, .. } = self;
        let policy = self.policy_of(entry);
        Context { mode: *mode, policy, world, grants, interval: settings.interval, refusals, now }
    }

    fn policy_of(&self, entry: &NodeEntry) -> &Policy {
        entry.view.as_ref().map_or(self.policies.fallback(), |view| self.policies.of(&view.labels))
    }

    fn judge(&self, name: &NodeName, entry: &NodeEntry, now: Timestamp) -> Decision {
        let refusals = self.tasks.get(name).map(NodeTask::refusals).unwrap_or_default();
        decide_node(self.context(entry, refusals, now), entry)
    }
}

#[cfg(test)]
mod tests;

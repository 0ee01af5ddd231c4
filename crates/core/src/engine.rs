//! Applies the rules to a whole cluster: facts in, orders out. The cost of deciding depends on how much has changed,
//! not on the size of the cluster.
//!
//! ```text
//!   facts --> World --> nodes that changed or whose time has come --> decide_node --> orders, questions, explanations
//!               ^                                                                        |
//!               \------------------------- answers to orders <---------------------------/
//! ```
//!
//! At most one order is in flight for each node. Its effect is learned from its answer, or by reading the node again.
//! Until then nothing else is decided for that node.

mod learn;
mod orders;
mod plan;
mod settle;
mod task;
mod withdraw;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::config::Config;
use crate::decide::{Context, Decision, History, Mode, Want, decide_node};
use crate::explain::{Explanation, Note, Trouble};
use crate::feed::Feed;
use crate::grants::Grants;
use crate::ids::{NodeName, NodeRef};
use crate::policy::{Policies, Policy};
use crate::schedule::Schedule;
use crate::world::{NodeEntry, World};
pub use plan::{Order, Outcome, Plan, Question};
use task::{NodeTask, Underway};

/// An order may wait this long in the [queue](crate::queue). The caller withdraws older ones, see [`Engine::withdraw`].
pub(crate) const LONGEST_QUEUE: SignedDuration = SignedDuration::from_secs(30);
/// An order counts as lost if its answer is overdue by this much.
const ANSWER_OVERDUE: SignedDuration = SignedDuration::from_secs(5);
/// An unanswered question is asked again after this long.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Settings of the process as a whole, independent of any node's policy.
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

/// Decides about all nodes of a cluster.
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
    /// Writes for nodes that get no slot for their worker in this turn.
    meanwhile: Vec<(NodeName, Action)>,
    /// The feeds that are watched.
    feeds: BTreeSet<Feed>,
    /// The feeds that have been listed.
    known: BTreeSet<Feed>,
    /// All feeds have to be listed again.
    starts_over: bool,
    leading: bool,
    /// The next decision is the first one as the leader, and this replica stood by before.
    takes_over: bool,
    next_ticket: u64,
    /// The first ticket since the last restore.
    ticket_at_restore: u64,
    next_sweep: Option<Timestamp>,
    now: Timestamp,
}

impl Engine {
    /// An engine that knows nothing yet and does nothing until it leads.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::in_mode(Mode::Controller, config)
    }

    /// An engine for DaemonSet mode, which manages only the node it runs on.
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
            takes_over: false,
            next_ticket: 0,
            ticket_at_restore: 0,
            next_sweep: None,
            now: Timestamp::MIN,
        }
    }

    /// The policies that apply to nodes.
    #[must_use]
    pub fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// The policy that applies to a node, by its labels as far as they are known.
    #[must_use]
    pub fn policy(&self, name: &NodeName) -> &Policy {
        self.world.entry(name).map_or(self.policies.fallback().as_ref(), |entry| self.policy_of(entry))
    }

    /// The feeds that are watched.
    #[must_use]
    pub fn feeds(&self) -> &BTreeSet<Feed> {
        &self.feeds
    }

    /// Everything that is known about the cluster.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Why each node is open or closed, as of the last decision. A standby replica knows this, too.
    pub fn explanations(&self) -> impl Iterator<Item = (&NodeName, &Explanation)> {
        self.tasks.iter().filter_map(|(name, task)| Some((name, task.explanation.as_ref()?)))
    }

    /// Returns why the cluster rather than single nodes is suspected, if it is.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        self.policies.iter().find_map(|policy| self.grants.trouble(policy, self.now))
    }

    /// Applies a new configuration. Objects that are no longer watched are forgotten, and new feeds have to be listed
    /// before anything else is decided.
    pub fn configure(&mut self, config: &Config) {
        let policies = Policies::from(config);
        self.feeds = Feed::all(&policies);
        self.known.retain(|feed| self.feeds.contains(feed));
        self.world.keep_only(&self.feeds);
        let required = |policies: &Policies| -> Vec<_> {
            policies.iter().map(|policy| (policy.name.clone(), policy.requires.clone())).collect()
        };
        if required(&self.policies) != required(&policies) {
            // Results under other requirements no longer count against a node.
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

    /// Starts to give orders.
    pub fn lead(&mut self) {
        self.leading = true;
        self.takes_over = !self.tasks.is_empty();
        self.consider_all();
    }

    /// Stops giving orders. If this replica leads again, it first reads every node that had an order in flight, and
    /// reports the status of every node again.
    pub fn stand_by(&mut self) {
        self.leading = false;
        for task in self.tasks.values_mut() {
            task.mark_unclear();
            task.is_reported = false;
        }
        self.grants.clear();
        self.consider_all();
    }

    /// Decides about every node that has changed or whose timer fired. A standby replica decides too, so that it can
    /// say why a node is closed, but gives no orders.
    ///
    /// `now` comes from a clock that never jumps: the wall clock at the start of the process plus the time elapsed
    /// since then by a monotonic clock.
    pub fn decide(&mut self, now: Timestamp) -> Plan {
        let now = self.not_back(now);
        let mut plan = Plan::default();
        if std::mem::take(&mut self.starts_over) {
            plan.questions.push(Question::StartOver);
        }
        if !self.knows_enough() {
            return plan;
        }
        if std::mem::take(&mut self.takes_over) {
            self.world.restart_workers(now);
            self.note_touched(now);
        }
        if self.leading {
            self.sweep(now, &mut plan);
        }
        for policy in self.policies.iter() {
            self.grants.fleet.observe(&policy.limits, now);
        }
        self.release_late_slots(now);
        while let Some(name) = self.timers.pop_until(&now) {
            self.changed.insert(name);
        }
        for name in std::mem::take(&mut self.changed) {
            plan.considered += 1;
            self.consider(&name, now, &mut plan);
        }
        if self.leading {
            self.start_workers(now, &mut plan);
            self.start_reference(now, &mut plan);
        }
        for question in &plan.questions {
            if let Question::Node(node) = question {
                self.world.asks_for(node, now);
            }
        }
        plan.wake = self.wake(now);
        plan
    }

    /// When to decide again, even if nothing is learned until then.
    fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let slots = &self.grants.slots;
        let first_timer = self.timers.first().map(|(at, _)| *at);
        let next_sweep = self.next_sweep.filter(|_| self.leading);
        let reference = self.grants.reference_due();
        let are_wanted = slots.are_wanted() || reference.is_some();
        let release = slots.next_release().filter(|_| are_wanted);
        // A reference run that is due already waits for a slot or for a verified node, and not for time to pass.
        let reference = reference.filter(|due| now < *due);
        [first_timer, next_sweep, release, reference].into_iter().flatten().min()
    }

    /// Time never goes back, because durations are measured with it.
    fn not_back(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }

    fn consider_all(&mut self) {
        self.changed.extend(self.world.entries().map(|(name, _)| name.clone()));
    }

    /// Asks to read everything again once per interval, so that a lost watch event is made up for within one interval.
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

    /// Decides about one node.
    fn consider(&mut self, name: &NodeName, now: Timestamp, plan: &mut Plan) {
        self.grants.slots.enqueue(name, None);
        self.grants.note_asked(name, false);
        self.timers.set(name, None);
        plan.confirmed.extend(self.confirmed_deletion(name, now));
        let Some(entry) = self.world.entry(name) else {
            self.forget(name, plan);
            return;
        };
        let is_lost = self.tasks.get(name).is_some_and(|task| task.is_overdue(now));
        let node = entry.view.as_ref().map(|view| view.id.clone());
        let task = self.tasks.entry(name.clone()).or_default();
        if is_lost {
            task.mark_unclear();
        }
        if node.is_none() && task.is_unclear() {
            // There is nothing to read.
            self.release(name);
        }
        if self.tasks.get(name).is_none_or(|task| task.underway.is_none()) {
            self.note_if_open(name);
        }
        let task = self.tasks.entry(name.clone()).or_default();
        if self.leading
            && let Some(until) = task.waits(node, now, plan)
        {
            self.timers.set(name, Some(until));
            return;
        }
        let Some(entry) = self.world.entry(name) else { return };
        let mut decision = self.judge(name, entry, now);
        let task = self.tasks.entry(name.clone()).or_default();
        task.complain(&mut decision);
        if self.settings.dry_run
            && let Some(action) = decision.wants.iter().find_map(Want::action)
        {
            decision.explanation.notes.push(Note::DryRun { order: action.to_string() });
        }
        task.explain(decision.explanation, now);
        if self.leading {
            plan.changes.extend(task.report().map(|explanation| (name.clone(), Some(explanation.clone()))));
        }
        self.timers.set(name, decision.wake);
        self.grants.note_final_attempt(name, decision.is_final_attempt);
        self.grants.references.note_waiting(name, false);
        if self.leading {
            self.pursue(name, decision.wants, now, plan);
        }
    }

    fn confirmed_deletion(&mut self, name: &NodeName, now: Timestamp) -> Option<Action> {
        let view = self.world.entry(name).and_then(|entry| entry.view.as_ref());
        let is_going = |deleted: &NodeRef| view.is_none_or(|view| view.id != *deleted || view.leaving);
        self.tasks.get_mut(name)?.confirmed_deletion(is_going, now)
    }

    /// Forgets a node about which nothing is known any more.
    fn forget(&mut self, name: &NodeName, plan: &mut Plan) {
        self.release(name);
        self.grants.note_final_attempt(name, false);
        self.grants.references.note_waiting(name, false);
        self.grants.note_open(name);
        if self.tasks.remove(name).is_some_and(|task| task.is_reported) {
            plan.changes.push((name.clone(), None));
        }
    }

    /// The input to a decision about a node. Its policy is resolved here and nowhere else.
    fn context<'a>(&'a self, entry: &NodeEntry, history: History<'a>, now: Timestamp) -> Context<'a> {
        let Self { mode, settings, world, grants, .. } = self;
        let policy = self.policy_of(entry);
        Context { mode: *mode, policy, world, grants, interval: settings.interval, history, now }
    }

    fn policy_of(&self, entry: &NodeEntry) -> &Policy {
        entry.view.as_ref().map_or(self.policies.fallback(), |view| self.policies.of(&view.labels))
    }

    fn judge(&self, name: &NodeName, entry: &NodeEntry, now: Timestamp) -> Decision {
        let history = self.tasks.get(name).map(NodeTask::history).unwrap_or_default();
        decide_node(self.context(entry, history, now), entry)
    }
}

#[cfg(test)]
mod tests;

//! The controller processes in a run: how they start, learn, decide and crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::{Engine, Order, Question};
use knr_core::feed::{Feed, ObjectKind};
use knr_core::ids::{NodeName, Version};
use knr_core::queue::QueuedWrite;
use knr_core::view::{Occupancy, Purpose};
use knr_core::world::Fact;

use super::lease::LEASE;
use super::{Event, Sim, millis};
use crate::actors;
use crate::api::Api;

/// Everything is listed again this often.
const FULL_LIST: SignedDuration = SignedDuration::from_mins(10);
/// A process decides at least this often while anything waits to be sent.
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(5);

impl Sim {
    /// Starts a process, which lists everything at this version, current or past.
    pub(super) fn start_replica(&mut self, id: usize, version: Version) {
        if self.replicas[id].engine.is_some() {
            return;
        }
        self.note("", format_args!("replica {id} starts and lists what was there at version {}", version.0));
        let config = Arc::clone(&self.config);
        self.replicas[id].start(config, self.now);
        let life = self.replicas[id].life;
        for feed in self.replicas[id].feeds().iter() {
            if feed.kind() == ObjectKind::Pools && self.pools_known_after > 0 {
                self.replicas[id].stream(feed).relist = true;
                let feed = feed.clone();
                self.at(self.pools_known_after, Event::Reconnect { replica: id, life, feed });
            } else {
                self.list(id, feed, version);
            }
        }
        if self.replicas[id].config.node_management.delete_failed_nodes {
            self.at(1, Event::Ledger { replica: id, life });
        }
        self.at(LEASE, Event::Elect);
    }

    /// A process learns facts. It decides once it has taken in everything that arrived at the same time.
    pub(super) fn learn(&mut self, id: usize, life: u32, facts: Vec<Fact>) {
        let now = self.replicas[id].time(self.now);
        let replica = &mut self.replicas[id];
        if replica.life != life {
            return;
        }
        if facts.iter().any(|fact| matches!(fact, Fact::Restored(_))) {
            self.monitor.starts_over(id, life);
        }
        if let Some(engine) = &mut replica.engine {
            for fact in facts {
                engine.learn(fact, now);
            }
            replica.due = true;
        }
    }

    /// Lets every process that has learned something decide.
    pub(super) fn take_turns(&mut self) {
        for id in 0..self.replicas.len() {
            if !self.is_frozen(id) && std::mem::take(&mut self.replicas[id].due) {
                self.turn(id);
            }
        }
    }

    /// Withdraws the orders that have not been sent, if their node has changed since or they are too old.
    fn take_back(&mut self, id: usize) -> BTreeMap<NodeName, QueuedWrite> {
        let replica = &mut self.replicas[id];
        let now = replica.time(self.now);
        let Some(engine) = &mut replica.engine else { return BTreeMap::new() };
        let mut orders = replica.queue.take_back_late(self.now);
        self.stats.count_many("order taken back: waited for too long", orders.len());
        let changed = replica.queue.take_back(engine.changed(now));
        self.stats.count_many("order taken back: its node or the configuration has changed", changed.len());
        orders.extend(changed);
        for waiting in &orders {
            engine.withdraw(&waiting.order);
            replica.harmful.remove(&waiting.order.action.node().name);
        }
        for waiting in &orders {
            self.monitor.not_sent(&self.replicas[id].request(id, waiting));
        }
        orders.into_iter().map(|waiting| (waiting.order.action.node().name.clone(), waiting)).collect()
    }

    fn turn(&mut self, id: usize) {
        let taken_back = self.take_back(id);
        let replica = &mut self.replicas[id];
        let (life, now) = (replica.life, replica.time(self.now));
        let Some(engine) = &mut replica.engine else { return };
        let plan = engine.decide(now);
        let (config, leading) = (Arc::clone(&replica.config), replica.leading);
        let sole = self.replicas.iter().filter(|replica| replica.leading).count() == 1;
        if let Some(engine) = &self.replicas[id].engine {
            let decided =
                Decided { replica: id, life, orders: &plan.orders, engine, api: &self.api, config: &config };
            self.monitor.decided(&decided, leading, sole, self.now);
        }
        if plan.orders.iter().any(is_reference) && self.verified_nodes() > 10 {
            self.stats.count("reference run with more than ten nodes to choose from");
        }
        self.stats.count_many("deletion confirmed although its answer was lost", plan.confirmed.len());
        for event in plan.confirmed.iter().flat_map(Action::events) {
            self.replicas[id].queue.report(event, self.now);
        }
        for order in plan.orders {
            let name = order.action.node().name.clone();
            let replica = &mut self.replicas[id];
            if matches!(order.action, Action::CloseGate { .. } | Action::DeleteNode { .. }) {
                replica.harmful.insert(name.clone(), order.action.clone());
            }
            replica.queue.take(order, taken_back.get(&name), self.now);
        }
        for question in plan.questions {
            let latency = self.latency();
            self.at(latency, Event::Ask { replica: id, life, question });
        }
        self.dispatch(id);
        let waiting = self.replicas[id].harmful.values().next().cloned();
        if let Some(order) = waiting.filter(|_| leading) {
            actors::forbid(self, &order);
        }
        self.set_wake(id, plan.wake);
    }

    fn verified_nodes(&self) -> usize {
        let label = &self.config.node_management.verified_label.key;
        self.api.nodes().filter(|(_, node)| node.view.labels.contains_key(label)).count()
    }

    fn set_wake(&mut self, id: usize, wake: Option<jiff::Timestamp>) {
        let replica = &self.replicas[id];
        let (life, clock) = (replica.life, replica.clock);
        let of_rules = wake.map(|at| at - clock);
        let of_writers = replica.queue.wake(self.now).map(|at| at.min(self.now + HEARTBEAT));
        let Some(at) = of_rules.into_iter().chain(of_writers).min() else { return };
        let at = at.max(self.now);
        if self.replicas[id].wake.is_none_or(|known| at < known) {
            self.replicas[id].wake = Some(at);
            self.push(at, Event::Wake { replica: id, life });
        }
    }

    /// A question reaches the API server and is answered later, or is lost.
    pub(super) fn ask(&mut self, id: usize, life: u32, question: &Question) {
        if self.replicas[id].life != life {
            return;
        }
        match question {
            Question::Everything => return self.refresh(id, life),
            Question::StartOver => return self.list_again(id, life),
            Question::Node(_) | Question::Occupancy(_) => {}
        }
        let is_cut_off = self.outages.stop_controllers_until(self.now).is_some();
        if is_cut_off || self.rng.permille(self.faults.weather().write) {
            self.note("", format_args!("replica {id} gets no answer to a question: {question:?}"));
            self.monitor.touched(None);
            return;
        }
        let latency = self.latency();
        let facts = match question {
            Question::Everything | Question::StartOver => Vec::new(),
            Question::Node(node) if self.replicas[id].config.node_management.delete_failed_nodes => {
                vec![self.api.reread(node), Fact::Ledger(self.api.ledger().clone())]
            }
            Question::Node(node) => vec![self.api.reread(node)],
            Question::Occupancy(node) => {
                let occupancy = self.actors.occupancy(node.name.as_str());
                let is_idle = occupancy == Occupancy::Idle;
                self.stats.count(if is_idle { "occupancy asked: idle" } else { "occupancy asked: busy" });
                vec![Fact::Occupancy(node.clone(), occupancy)]
            }
        };
        self.at(latency, Event::Learn { replica: id, life, facts });
    }

    /// As in the product, workers are listed every interval while any of them runs, and everything every ten minutes.
    fn refresh(&mut self, id: usize, life: u32) {
        let replica = &self.replicas[id];
        let running = replica.engine.as_ref().map_or(0, |engine| engine.world().live_workers());
        let is_due = self.now.duration_since(replica.listed) >= FULL_LIST;
        if is_due {
            self.stats.count("full list");
            self.list_again(id, life);
        } else if running > 0 {
            self.relist(id, &Feed::of(ObjectKind::Workers));
        }
    }

    fn list_again(&mut self, id: usize, life: u32) {
        self.replicas[id].listed = self.now;
        for feed in self.replicas[id].feeds().iter() {
            self.relist(id, feed);
        }
        if self.replicas[id].config.node_management.delete_failed_nodes {
            self.at(1, Event::Ledger { replica: id, life });
        }
    }

    pub(super) fn read_ledger(&mut self, id: usize, life: u32) {
        if let Some(back) = self.outages.stop_controllers_until(self.now) {
            self.push(back + millis(1_000), Event::Ledger { replica: id, life });
        } else {
            let facts = vec![Fact::Ledger(self.api.ledger().clone())];
            self.learn(id, life, facts);
        }
    }

    /// A process crashes, and another one takes over once its lease has expired.
    pub(crate) fn crash(&mut self, id: usize, reads: Option<Version>) {
        if self.replicas[id].engine.is_none() {
            return;
        }
        self.note("", format_args!("replica {id} crashes"));
        self.monitor.touched(None);
        self.replicas[id].engine = None;
        self.replicas[id].life += 1;
        self.replicas[id].leading = false;
        self.at(LEASE, Event::Elect);
        if let Some(version) = reads {
            self.start_replica(id, version);
        } else {
            let pause = self.rng.between(500, 20_000);
            self.at(pause, Event::Start { replica: id });
        }
    }

    /// The clock of a machine jumps. A process sees the jump only after a restart, so it is restarted.
    pub(crate) fn jump(&mut self, id: usize) {
        let seconds = i64::try_from(self.rng.below(14_400)).unwrap_or(0) - 7_200;
        self.note("", format_args!("the clock of replica {id} is {seconds} s off"));
        self.stats.count("clock off by up to two hours");
        self.crash(id, None);
        self.replicas[id].clock = SignedDuration::from_secs(seconds);
    }

    /// Every process loads the current configuration file, each at its own time.
    pub(crate) fn reconfigure(&mut self, within: u64) {
        self.roll_out(within);
        for id in 0..self.replicas.len() {
            let life = self.replicas[id].life;
            let after = self.rng.below(within + 1);
            self.at(after, Event::Reconfigure { replica: id, life });
        }
    }

    /// A process loads the configuration as the product's `controller/driver.rs` does.
    pub(super) fn take_up_config(&mut self, id: usize, life: u32) {
        let config = Arc::clone(&self.config);
        let replica = &mut self.replicas[id];
        if replica.life != life || replica.config == config {
            return;
        }
        let Some(engine) = &replica.engine else { return };
        let deleted_nodes = engine.policies().delete_nodes();
        let begun = replica.configure(Arc::clone(&config), self.now);
        replica.due = true;
        self.monitor.touched(None);
        self.note("", format_args!("replica {id} takes up the changed configuration"));
        for feed in begun {
            self.replicas[id].stream(&feed).relist = true;
            self.at(5, Event::Reconnect { replica: id, life, feed });
        }
        if config.reconciliation.dry_run || config.reconciliation.paused {
            self.replicas[id].queue.drop_events();
        }
        if config.node_management.delete_failed_nodes && !deleted_nodes {
            self.at(1, Event::Ledger { replica: id, life });
        }
    }

    /// Returns the engine that manages a node, for the checks at the end.
    pub(crate) fn engine_of(&self, node: &str) -> Option<&Engine> {
        let leading = self.leader().and_then(|id| self.replicas[id].engine.as_ref());
        leading.or_else(|| self.keepers.get(node).map(|keeper| &keeper.engine))
    }
}

/// The decisions that a process has just made.
pub(crate) struct Decided<'a> {
    /// The process.
    pub(crate) replica: usize,
    /// The life of the process.
    pub(crate) life: u32,
    /// The orders, in sequence.
    pub(crate) orders: &'a [Order],
    /// The engine that decided.
    pub(crate) engine: &'a Engine,
    /// The API server.
    pub(crate) api: &'a Api,
    /// The configuration of the engine.
    pub(crate) config: &'a Config,
}

fn is_reference(order: &Order) -> bool {
    matches!(&order.action, Action::StartWorker { stamp } if stamp.purpose == Purpose::Reference)
}

/// Returns whether the exhaustive plans count an action as a deletion.
pub(super) fn is_deletion(action: &Action) -> bool {
    matches!(action, Action::RemoveWorker { .. } | Action::DeleteNode { .. })
}

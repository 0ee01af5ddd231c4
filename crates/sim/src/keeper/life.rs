//! The pods of the `DaemonSet` in a run: how they start, decide, write, run the checks and end.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::action::Action;
use knr_core::engine::{Engine, Order, Outcome, Question};
use knr_core::ids::{Uid, Version};
use knr_core::names;
use knr_core::view::NodeView;
use knr_core::world::{Fact, Reread, Source};

use super::monitoring::Judgement;
use super::{Keeper, KeeperEvent, for_one_node, is_in_vain, is_local};
use crate::actors;
use crate::faults::{ErrorClass, WriteFault};
use crate::run::{Decided, Event, ShownFault, Sim, failure, millis};
use crate::scenario::Mode;
use crate::writers::Request;

/// A pod decides at least this often.
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(10);
/// The grace period of a pod in milliseconds, in which it finishes the writes that follow from the last result.
const LAST_WRITES: u64 = 8_000;

impl Sim {
    /// Something happens to the pod on a machine.
    pub(crate) fn keeper_event(&mut self, name: &str, event: KeeperEvent) {
        let is_current = |life: u32| self.keepers.get(name).is_some_and(|keeper| keeper.life == life);
        match event {
            KeeperEvent::Start(uid) => self.start_keeper(name, &uid),
            KeeperEvent::Arrive(request) => self.keeper_writes(name, *request),
            KeeperEvent::Wake(life) if is_current(life) => {
                if let Some(keeper) = self.keepers.get_mut(name) {
                    keeper.wake = None;
                }
                self.keeper_turn(name);
            }
            KeeperEvent::Answer(request, outcome) if is_current(request.life) => {
                self.keeper_answer(name, &request.order, outcome);
                self.keeper_turn(name);
            }
            KeeperEvent::Look(life, question) if is_current(life) => self.keeper_looks(name, question),
            KeeperEvent::Learn(life, facts) if is_current(life) => {
                self.keeper_learns(name, facts);
                self.keeper_turn(name);
            }
            KeeperEvent::Ran(life, number) if is_current(life) => {
                self.keeper_ran(name, number);
                self.keeper_turn(name);
            }
            KeeperEvent::Monitored(life) if is_current(life) => {
                self.keeper_monitored(name);
                self.keeper_turn(name);
            }
            KeeperEvent::Confirmed(life) if is_current(life) => {
                self.keeper_confirmed(name);
                self.keeper_turn(name);
            }
            KeeperEvent::Stop(life) if is_current(life) => {
                if let Some(keeper) = self.keepers.get_mut(name) {
                    keeper.stopping = true;
                }
                self.keeper_at(name, LAST_WRITES, KeeperEvent::Kill(life));
                self.keeper_turn(name);
            }
            KeeperEvent::Crash(life) if is_current(life) => self.restart_keeper(name),
            KeeperEvent::Kill(life) if is_current(life) => self.end_keeper(name),
            _ => {}
        }
    }

    /// Schedules an event for the pod on a machine, `after` milliseconds from now.
    pub(crate) fn keeper_at(&mut self, name: &str, after: u64, event: KeeperEvent) {
        self.at(after, Event::Keeper(name.to_owned(), event));
    }

    /// Restarts all pods with the changed configuration, each at a random time.
    pub(crate) fn roll_out(&mut self, within: u64) {
        let pods: Vec<(String, u32)> =
            self.keepers.iter().map(|(name, keeper)| (name.clone(), keeper.life)).collect();
        for (name, life) in pods {
            let after = self.rng.below(within + 1);
            self.keeper_at(&name, after, KeeperEvent::Crash(life));
        }
    }

    /// Removes the pod on a machine.
    pub(crate) fn end_keeper(&mut self, name: &str) {
        if self.keepers.remove(name).is_some() {
            self.note(name, "the pod of the DaemonSet is gone");
        }
    }

    /// Starts or stops the pod on a node. The `DaemonSet` has a pod on every node if nodes are monitored, and otherwise
    /// on every node without the verified label.
    pub(crate) fn place_keeper(&mut self, node: &NodeView) {
        let Mode::OnNodes(monitoring) = &self.mode else { return };
        let label = &self.config.node_management.verified_label;
        let is_labelled = node.labels.get(&label.key) == Some(label.value.as_str());
        let is_wanted = monitoring.is_some() || !is_labelled;
        let name = node.id.name.as_str().to_owned();
        match self.keepers.get(&name).map(|keeper| (keeper.life, keeper.stopping)) {
            None if is_wanted => {
                let after = self.rng.between(500, 5_000);
                self.keeper_at(&name, after, KeeperEvent::Start(node.id.uid.clone()));
            }
            Some((life, false)) if !is_wanted => {
                let after = self.rng.between(200, 3_000);
                self.keeper_at(&name, after, KeeperEvent::Stop(life));
            }
            _ => {}
        }
    }

    fn start_keeper(&mut self, name: &str, uid: &Uid) {
        if let Some(back) = self.outages.stop_everybody_until(self.now) {
            let event = KeeperEvent::Start(uid.clone());
            self.push(back + millis(1_000), Event::Keeper(name.to_owned(), event));
            return;
        }
        let is_up = self.actors.machines.get(name).is_some_and(|machine| machine.uid == *uid && machine.up);
        let Some(node) = self.api.node(name).filter(|node| node.view.id.uid == *uid && is_up).cloned() else {
            return;
        };
        let Mode::OnNodes(monitoring) = self.mode.clone() else { return };
        if self.keepers.contains_key(name) {
            return;
        }
        self.note(name, "the pod of the DaemonSet starts");
        self.lives += 1;
        let life = self.lives;
        let config = Arc::new(for_one_node((*self.config).clone()));
        let mut engine = Engine::on_its_node(&config);
        engine.learn(Fact::Nodes(vec![node.view.clone()], node.view.version), self.now);
        engine.learn(Fact::Workers(Vec::new(), Version::default()), self.now);
        engine.lead();
        let keeper = Keeper {
            engine,
            config,
            node: node.view.id.clone(),
            life,
            run: None,
            events: 0,
            monitoring,
            evidence: false,
            stopping: false,
            wake: None,
        };
        self.keepers.insert(name.to_owned(), keeper);
        self.look_for_pools(name, life, &node.view);
        self.keeper_turn(name);
    }

    fn look_for_pools(&mut self, name: &str, life: u32, node: &NodeView) {
        if node.labels.contains_key(names::KARPENTER_POOL_LABEL) {
            let (after, facts) = (self.latency(), vec![Fact::Pools(self.api.pools())]);
            self.keeper_at(name, after, KeeperEvent::Learn(life, facts));
        }
    }

    /// Decides and carries out the orders, and decides again as long as any of them was local to this process.
    fn keeper_turn(&mut self, name: &str) {
        loop {
            let Some(keeper) = self.keepers.get_mut(name) else { return };
            let (plan, life) = (keeper.engine.decide(self.now), keeper.life);
            let decided = Decided {
                replica: usize::MAX,
                life,
                orders: &plan.orders,
                engine: &keeper.engine,
                api: &self.api,
                config: &keeper.config,
            };
            // There is one pod for each node, and none of them knows the others.
            self.monitor.decided(&decided, true, false, self.now);
            let again = plan.orders.iter().any(|order| is_local(&order.action));
            for order in plan.orders {
                self.keeper_carries_out(name, order);
            }
            let Some(keeper) = self.keepers.get_mut(name) else { return };
            // Evidence that is not used now would be too old later.
            keeper.evidence = false;
            for question in plan.questions {
                let after = self.latency();
                self.keeper_at(name, after, KeeperEvent::Look(life, question));
            }
            if !again {
                self.keeper_sleeps(name, plan.wake);
                return;
            }
        }
    }

    fn keeper_sleeps(&mut self, name: &str, wake: Option<Timestamp>) {
        let Some(keeper) = self.keepers.get_mut(name) else { return };
        let (life, verified) = (keeper.life, keeper.is_verified());
        let mut at = wake.unwrap_or(self.now + HEARTBEAT).min(self.now + HEARTBEAT);
        let mut begins = false;
        if let Some(monitoring) = &mut keeper.monitoring {
            monitoring.node_is_verified(verified, self.now, &mut self.rng);
            begins = monitoring.begins(self.now);
            at = monitoring.wake().map_or(at, |next| next.min(at));
        }
        let at = at.max(self.now);
        if keeper.wake.is_none_or(|known| at < known) {
            keeper.wake = Some(at);
            self.push(at, Event::Keeper(name.to_owned(), KeeperEvent::Wake(life)));
        }
        if begins {
            let after = self.rng.between(500, 9_000);
            self.keeper_at(name, after, KeeperEvent::Monitored(life));
        }
    }

    /// Begins or ends a run of the checks in this process, and sends everything else to the API server.
    fn keeper_carries_out(&mut self, name: &str, order: Order) {
        let now = self.now;
        let Some(keeper) = self.keepers.get_mut(name) else { return };
        let life = keeper.life;
        match &order.action {
            Action::StartWorker { .. } if keeper.stopping => {
                keeper.engine.settle(&order, Outcome::Unavailable, now);
            }
            Action::StartWorker { stamp } => {
                let (number, began) = keeper.begin(stamp);
                keeper.engine.settle(&order, Outcome::Done(vec![began]), now);
                let worker = keeper.run.as_ref().map(|run| run.id.uid.clone());
                if let Some(worker) = worker {
                    self.monitor.run_began(&worker, now);
                }
                if keeper.evidence {
                    self.keeper_ran(name, number);
                } else {
                    let after = self.rng.between(500, 9_000);
                    self.keeper_at(name, after, KeeperEvent::Ran(life, number));
                }
            }
            Action::RemoveWorker { node, worker, .. } => {
                let gone = keeper.remove(worker, &node.name);
                keeper.engine.settle(&order, Outcome::Done(vec![gone]), now);
            }
            _ => {
                let config = Arc::clone(&keeper.config);
                let (replica, decided, since) = (usize::MAX, now, now);
                let request = Request { replica, life, order, decided, since, failing: None, config };
                let after = self.latency();
                self.keeper_at(name, after, KeeperEvent::Arrive(Box::new(request)));
            }
        }
    }

    /// A write reaches the API server, or does not.
    fn keeper_writes(&mut self, name: &str, request: Request) {
        let fault = match self.outages.stop_everybody_until(self.now) {
            Some(_) => Some(WriteFault::Error(ErrorClass::Unavailable)),
            None => self.faults.of_write(self.stats.writes, &mut self.rng),
        };
        self.stats.writes += 1;
        self.note(name, format_args!("its pod: {}{}", request.order.action, ShownFault(fault)));
        let answer = |request, outcome| KeeperEvent::Answer(Box::new(request), outcome);
        match fault {
            None => {
                let outcome = self.carry_out(&request);
                let after = self.latency();
                self.keeper_at(name, after, answer(request, outcome));
            }
            Some(WriteFault::CrashBefore) => self.restart_keeper(name),
            Some(WriteFault::CrashAfter) => {
                self.carry_out(&request);
                self.restart_keeper(name);
            }
            Some(WriteFault::AnswerLost) => {
                self.carry_out(&request);
                self.keeper_at(name, request.limit(), answer(request, Outcome::Unknown));
            }
            Some(WriteFault::Late) => {
                let late = Request { life: 0, ..request.clone() };
                let limit = request.limit();
                self.keeper_at(name, limit, answer(request, Outcome::Unknown));
                let after = limit + self.rng.between(0, 3_000);
                self.keeper_at(name, after, KeeperEvent::Arrive(Box::new(late)));
            }
            Some(WriteFault::Error(class)) => {
                let (outcome, after) = failure(class, &request);
                self.keeper_at(name, after, answer(request, outcome));
            }
        }
    }

    /// The pod crashes, and its kubelet starts it again.
    pub(crate) fn restart_keeper(&mut self, name: &str) {
        if let Some(keeper) = self.keepers.remove(name) {
            self.note(name, "the pod of the DaemonSet crashes");
            let after = self.rng.between(1_000, 10_000);
            self.keeper_at(name, after, KeeperEvent::Start(keeper.node.uid));
        }
    }

    fn keeper_answer(&mut self, name: &str, order: &Order, outcome: Outcome) {
        let now = self.now;
        let Some(keeper) = self.keepers.get_mut(name) else { return };
        let is_in_vain = is_in_vain(&order.action, &outcome);
        let reports = keeper.engine.settle(order, outcome, now);
        if is_in_vain && let Some(run) = keeper.run.clone() {
            // A judgement is not kept until it can be written: by then the node may be healthy again.
            let gone = keeper.remove(&run.id, &run.stamp.node.name);
            keeper.engine.learn(Fact::Sound(run.stamp.node), now);
            keeper.engine.learn(gone, now);
        }
        for action in reports {
            self.keeper_carries_out(name, Order { ticket: u64::MAX, action });
        }
    }

    /// Reads the node to answer a question.
    fn keeper_looks(&mut self, name: &str, question: Question) {
        let is_cut_off = self.outages.stop_everybody_until(self.now).is_some();
        if is_cut_off || self.rng.permille(self.faults.weather().write) {
            return;
        }
        let after = self.latency();
        let view = self.api.node(name).map(|node| node.view.clone());
        let Some(keeper) = self.keepers.get_mut(name) else { return };
        let (life, known) = (keeper.life, keeper.known());
        if let Some(view) = &view {
            let view = view.clone();
            self.look_for_pools(name, life, &view);
        }
        let Some(keeper) = self.keepers.get(name) else { return };
        let fact = match (question, view) {
            (Question::Node(node), view) => Fact::Reread(Box::new(Reread {
                node,
                node_version: view.as_ref().map_or(known.unwrap_or_default(), |view| view.version),
                view,
                worker: keeper.run.clone(),
                worker_version: Version(keeper.events),
            })),
            (Question::Everything | Question::StartOver | Question::Occupancy(_), Some(view)) => {
                Fact::Node(view, Source::Answer)
            }
            (Question::Everything | Question::StartOver | Question::Occupancy(_), None) => match known {
                Some(version) => Fact::NodeGone(keeper.node.clone(), version),
                None => return,
            },
        };
        self.keeper_at(name, after, KeeperEvent::Learn(life, vec![fact]));
    }

    fn keeper_learns(&mut self, name: &str, facts: Vec<Fact>) {
        let now = self.now;
        if let Some(keeper) = self.keepers.get_mut(name) {
            for fact in facts {
                keeper.engine.learn(fact, now);
            }
        }
    }

    /// A run that the rules asked for ends. Checks that have just failed are not run again.
    fn keeper_ran(&mut self, name: &str, number: u64) {
        let now = self.now;
        let Some(keeper) = self.keepers.get_mut(name) else { return };
        let Some(worker) = keeper.current(number).map(|run| run.id.uid.clone()) else { return };
        let passes = !keeper.evidence && actors::checks_pass(&self.actors, &self.outages, name, now);
        let Some(ending) = actors::run_ends(self, name, &worker, passes) else { return };
        let Some(keeper) = self.keepers.get_mut(name) else { return };
        if let Some(ended) = keeper.end(ending) {
            keeper.engine.learn(ended, now);
        }
    }

    fn keeper_monitored(&mut self, name: &str) {
        let now = self.now;
        let passes = actors::checks_pass(&self.actors, &self.outages, name, now);
        let Some(keeper) = self.keepers.get_mut(name) else { return };
        let (life, node, verified) = (keeper.life, keeper.node.clone(), keeper.is_verified());
        let Some(monitoring) = &mut keeper.monitoring else { return };
        match monitoring.ran(passes, verified) {
            Judgement::Warning => {}
            Judgement::Sound => keeper.engine.learn(Fact::Sound(node), now),
            Judgement::Unsound if self.outages.stop_everybody_until(now).is_some() => monitoring.not_yet(),
            Judgement::Unsound => {
                self.note(name, "the checks failed too often in a row on the verified node");
                self.stats.count("verified node found broken");
                let after = self.latency();
                self.keeper_at(name, after, KeeperEvent::Confirmed(life));
            }
        }
    }

    fn keeper_confirmed(&mut self, name: &str) {
        let now = self.now;
        let Some(node) = self.api.node(name).cloned() else { return };
        let Some(keeper) = self.keepers.get_mut(name).filter(|keeper| keeper.node == node.view.id) else {
            return;
        };
        keeper.evidence = true;
        keeper.engine.learn(Fact::Node(node.view.clone(), Source::Answer), now);
        keeper.engine.learn(Fact::Unsound(keeper.node.clone()), now);
        self.monitor.found_unsound(&node.view.id.uid, now);
    }
}

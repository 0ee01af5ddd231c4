//! Measures the cost of a decision in small and large clusters. It must not depend on the size of the cluster.
//!
//! Each measurement covers several cluster sizes in one run, so the ratio is comparable between machines.

use std::ops::Range;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use knr_core::action::{Action, worker_name};
use knr_core::config::{Config, OnReboot};
use knr_core::engine::{Engine, Outcome};
use knr_core::ids::{NodeRef, Version, WorkerRef};
use knr_core::names;
use knr_core::state::{NodeState, StatePhase};
use knr_core::texts::Texts;
use knr_core::view::{Ending, NodeView, Purpose, Stage, Stamp, WorkerView};
use knr_core::world::{Fact, Source};
use serde_json::json;

const SIZES: [usize; 3] = [100, 10_000, 100_000];
const DECISIONS: u32 = 20_000;
/// The second at which the first failed node is tried again. The others follow one second apart.
const FIRST_TRY: i64 = 100;

fn main() {
    println!("microseconds a decision, {DECISIONS} decisions each");
    println!("{:<44}{:>10}{:>10}{:>10}  largest to smallest", "", "100", "10,000", "100,000");
    report("a label of one verified node changes", Nodes::Verified, one_label);
    report("one worker ends, its node opens", Nodes::New, one_opening);
    report("one timer fires, the node is tried again", Nodes::Failed, one_timer);
    report("one node restarts, as many are closed", Nodes::VerifiedAndClosed, one_restart);
}

/// The nodes of a cluster.
#[derive(Clone, Copy, PartialEq)]
enum Nodes {
    Verified,
    New,
    Failed,
    /// Verified nodes, and as many that were closed again.
    VerifiedAndClosed,
}

impl Nodes {
    fn make(self, size: usize) -> Vec<NodeView> {
        let all = |numbers: Range<usize>, phase| numbers.map(move |number| node(number, phase));
        match self {
            Self::Verified => all(0..size, StatePhase::Verified).collect(),
            Self::New => (0..size).map(new_node).collect(),
            Self::Failed => all(0..size, StatePhase::Failed).collect(),
            Self::VerifiedAndClosed => {
                let closed = all(size..2 * size, StatePhase::Unverified);
                all(0..size, StatePhase::Verified).chain(closed).collect()
            }
        }
    }

    /// The number of orders that follow from one thing that happens.
    fn orders(self) -> u32 {
        match self {
            Self::Verified => 0,
            Self::New | Self::Failed | Self::VerifiedAndClosed => 1,
        }
    }
}

/// Applies `happen` to one node after the other, to each node once, and creates as many clusters as that takes.
fn report(name: &str, nodes: Nodes, happen: fn(&mut Engine, usize, &mut Stopwatch) -> usize) {
    let costs = SIZES.map(|size| {
        let mut stopwatch = Stopwatch::default();
        let mut done = 0;
        while stopwatch.decisions < DECISIONS {
            let mut engine = engine(size, nodes);
            let turns = size.min((DECISIONS - stopwatch.decisions) as usize);
            done += (0..turns).map(|turn| happen(&mut engine, turn, &mut stopwatch)).sum::<usize>();
        }
        assert_eq!(done, (nodes.orders() * DECISIONS) as usize, "{name}: something else was measured");
        stopwatch.microseconds()
    });
    let ratio = costs[2] / costs[0];
    println!("{name:<44}{:>10.2}{:>10.2}{:>10.2}  {ratio:.1}", costs[0], costs[1], costs[2]);
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn node(number: usize, phase: StatePhase) -> NodeView {
    let id = NodeRef { name: format!("node-{number:06}").into(), uid: format!("uid-{number}").into() };
    let state = NodeState {
        phase,
        attempt: 1,
        serial: 1,
        next_try: (phase == StatePhase::Failed).then(|| at(FIRST_TRY + i64::try_from(number).unwrap_or(0))),
        ..NodeState::new(id.uid.clone(), "boot".into(), at(0))
    };
    let is_verified = phase == StatePhase::Verified;
    let labels = (0..30).map(|number| (format!("vendor.example/label-{number}"), "value".to_owned()));
    let verified = is_verified.then(|| (names::VERIFIED_LABEL.to_owned(), names::VERIFIED_VALUE.to_owned()));
    let taint = json!({"key": names::UNVERIFIED_TAINT, "value": "true", "effect": "NoSchedule"});
    NodeView {
        id,
        version: Version(1),
        boot: "boot".into(),
        created: at(0),
        taints: if is_verified { Vec::new() } else { vec![taint] },
        labels: labels.chain(verified).collect(),
        annotations: Texts::from_iter([(names::STATE_ANNOTATION, state.to_json())]),
        condition: None,
        ready: true,
        leaving: false,
        claim: None,
    }
}

/// A node that has just joined.
fn new_node(number: usize) -> NodeView {
    NodeView { annotations: Texts::from_iter([("ttl", "0")]), ..node(number, StatePhase::Unverified) }
}

/// Returns an engine that knows `size` nodes and has nothing left to do for them at the moment.
fn engine(size: usize, nodes: Nodes) -> Engine {
    let mut config = Config::default();
    config.worker.timeout_seconds = 1_000_000;
    config.worker.pending_timeout_seconds = 1_000_000;
    config.limits.max_concurrent_workers = u32::MAX;
    config.reconciliation.interval_seconds = 86_400;
    config.node_management.on_reboot = OnReboot::Close;
    let mut engine = Engine::new(&config);
    engine.learn(Fact::Nodes(nodes.make(size), Version(1)), at(0));
    engine.learn(Fact::Workers(Vec::new(), Version(1)), at(0));
    engine.learn(Fact::Pools(Vec::new()), at(0));
    engine.lead();
    loop {
        let orders = engine.decide(at(0)).orders;
        if orders.is_empty() {
            return engine;
        }
        for order in orders {
            let facts = vec![carried_out(&engine, &order.action)];
            engine.settle(&order, Outcome::Done(facts), at(0));
        }
    }
}

/// Returns the API server's answer to an action.
fn carried_out(engine: &Engine, action: &Action) -> Fact {
    let node = engine.world().entry(&action.node().name).and_then(|entry| entry.view.clone());
    match (action, node) {
        (Action::StartWorker { stamp }, _) => {
            Fact::Worker(worker(stamp.clone(), 2, Stage::Running), Source::Answer)
        }
        (Action::SetCondition { condition, .. }, Some(mut node)) => {
            node.version = Version(2);
            node.condition = Some(condition.clone());
            Fact::Node(node, Source::Answer)
        }
        (other, _) => unreachable!("{other} is not part of this"),
    }
}

fn worker(stamp: Stamp, version: u64, stage: Stage) -> WorkerView {
    WorkerView {
        id: WorkerRef { name: worker_name(&stamp.node.uid), uid: "worker".into() },
        version: Version(version),
        host: Some(stamp.node.name.clone()),
        stamp,
        stage,
        leaving: false,
    }
}

fn one_label(engine: &mut Engine, turn: usize, stopwatch: &mut Stopwatch) -> usize {
    let mut node = node(turn, StatePhase::Verified);
    node.version = Version(turn as u64 + 3);
    let number = turn.to_string();
    node.labels = node.labels.iter().chain([("turn", number.as_str())]).collect();
    node.condition = engine.world().entry(&node.id.name).and_then(|entry| entry.view.clone()?.condition);
    engine.learn(Fact::Node(node, Source::Watch), at(1));
    stopwatch.time(|| engine.decide(at(1))).orders.len()
}

fn one_opening(engine: &mut Engine, turn: usize, stopwatch: &mut Stopwatch) -> usize {
    let node = node(turn, StatePhase::Unverified).id;
    let stamp = Stamp {
        node,
        boot: "boot".into(),
        serial: 1,
        attempt: 1,
        purpose: Purpose::Verify,
        policy: "".into(),
        requires: "".into(),
    };
    let passed = Stage::Ended(Ending::Exited { code: 0, message: String::new() });
    engine.learn(Fact::Worker(worker(stamp, turn as u64 + 3, passed), Source::Watch), at(1));
    stopwatch.time(|| engine.decide(at(1))).orders.len()
}

/// Too many nodes are closed for this one to be closed, too. It is verified while it is open.
fn one_restart(engine: &mut Engine, turn: usize, stopwatch: &mut Stopwatch) -> usize {
    let mut node = node(turn, StatePhase::Verified);
    node.version = Version(turn as u64 + 3);
    node.boot = "next-boot".into();
    engine.learn(Fact::Node(node, Source::Watch), at(1));
    stopwatch.time(|| engine.decide(at(1))).orders.len()
}

fn one_timer(engine: &mut Engine, turn: usize, stopwatch: &mut Stopwatch) -> usize {
    let now = at(FIRST_TRY + i64::try_from(turn).unwrap_or(0));
    let orders = stopwatch.time(|| engine.decide(now)).orders;
    for order in &orders {
        let facts = vec![carried_out(engine, &order.action)];
        engine.settle(order, Outcome::Done(facts), now);
    }
    orders.len()
}

#[derive(Default)]
struct Stopwatch {
    spent: Duration,
    decisions: u32,
}

impl Stopwatch {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.spent += begun.elapsed();
        self.decisions += 1;
        result
    }

    fn microseconds(&self) -> f64 {
        self.spent.as_secs_f64() * 1e6 / f64::from(self.decisions)
    }
}

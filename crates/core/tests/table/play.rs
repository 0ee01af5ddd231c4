//! Plays a case: learns facts and answers, decides, and compares the result.

use std::fmt::Display;

use jiff::Timestamp;
use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::{Engine, Order, Outcome, Plan, Question};
use knr_core::ids::NodeRef;
use knr_core::patch::{NodePatch, PatchOp};
use knr_core::view::{LedgerEntry, LedgerView, Occupancy, PoolView};
use knr_core::world::{Fact, Source};
use serde_json::Value;

use super::spec::{Answer, Expect, ModeSpec, Say, Scene};
use super::{build, clock, without_day};
use crate::support::cluster::{Cluster, pod_changes};

struct Stage {
    engine: Engine,
    config: Config,
    cluster: Cluster,
    now: Timestamp,
    /// The node that expectations are about unless they name one.
    subject: String,
    /// Orders that have not been answered.
    given: Vec<Order>,
    events: Vec<String>,
}

/// Plays a case and returns the differences from its expectations.
pub(crate) fn play(case: &Scene) -> Vec<String> {
    let first_node = case.node.iter().chain(&case.nodes).next();
    let mut stage = Stage {
        engine: engine(case),
        config: config(case.config.as_ref()),
        cluster: Cluster::default(),
        now: clock(case.now.as_deref().unwrap_or("10:00:30")),
        subject: first_node.map_or_else(|| "n1".to_owned(), build::name_of),
        given: Vec::new(),
        events: Vec::new(),
    };
    stage.open(case);
    let mut wrong = stage.check(case, 0);
    for (index, step) in case.then.iter().enumerate() {
        assert!(step.then.is_empty(), "a step has no steps of its own");
        stage.step(step);
        wrong.extend(stage.check(step, index + 1));
    }
    wrong
}

fn engine(case: &Scene) -> Engine {
    let config = config(case.config.as_ref());
    match case.mode {
        ModeSpec::Controller => Engine::new(&config),
        ModeSpec::DaemonSet => Engine::on_its_node(&config),
    }
}

fn config(overrides: Option<&Value>) -> Config {
    let text = overrides.map_or_else(String::new, Value::to_string);
    Config::parse(&text).unwrap_or_else(|problems| panic!("the configuration of the case: {problems}"))
}

impl Stage {
    /// Learns what a replica lists when it starts, and what its watches show after that.
    fn open(&mut self, case: &Scene) {
        let mut facts = Vec::new();
        let config = self.config.clone();
        let mut start = |cluster: &Cluster| {
            let lists = [
                ("nodes", vec![cluster.node_list()]),
                ("workers", vec![cluster.worker_list()]),
                ("pods", cluster.pod_lists(&config)),
                ("pools", vec![cluster.pool_list()]),
                ("ledger", vec![cluster.ledger_fact()]),
            ];
            let listed = |(kind, _): &(&str, _)| !case.unlisted.iter().any(|unlisted| unlisted == kind);
            facts.extend(lists.into_iter().filter(listed).flat_map(|(_, lists)| lists));
        };
        let seen = if case.found {
            self.change(case);
            start(&self.cluster);
            Vec::new()
        } else {
            start(&self.cluster);
            self.change(case)
        };
        facts.extend(seen);
        facts.extend(self.occupancy(case));
        for fact in facts {
            self.engine.learn(fact, self.now);
        }
        if case.lead != Some(false) {
            self.engine.lead();
        }
    }

    /// Plays one step.
    fn step(&mut self, step: &Scene) {
        self.now = step.now.as_deref().map_or(self.now, clock);
        if let Some(overrides) = &step.config {
            self.config = config(Some(overrides));
            self.engine.configure(&self.config);
        }
        match step.lead {
            Some(true) => self.engine.lead(),
            Some(false) => self.engine.stand_by(),
            None => {}
        }
        let unseen = step.unseen.then(|| self.change(step));
        if let Some(answer) = &step.answer {
            self.answer(answer, step);
        }
        let mut facts = if unseen.is_some() { Vec::new() } else { self.change(step) };
        facts.extend(self.occupancy(step));
        for name in &step.read {
            let node = build::node_ref(&self.cluster, name);
            facts.push(self.cluster.reread(&node));
        }
        facts.extend(step.unsound.iter().map(|name| Fact::Unsound(build::node_ref(&self.cluster, name))));
        facts.extend(step.sound.iter().map(|name| Fact::Sound(build::node_ref(&self.cluster, name))));
        if step.relist {
            facts.extend(self.cluster.lists(&self.config));
        }
        for fact in facts {
            self.engine.learn(fact, self.now);
        }
    }

    /// Changes the cluster, and returns the watch events.
    fn change(&mut self, scene: &Scene) -> Vec<Fact> {
        let (cluster, config) = (&mut self.cluster, &self.config);
        let mut facts: Vec<Fact> = scene.gone.iter().flat_map(|what| gone(cluster, config, what)).collect();
        for spec in scene.node.iter().chain(&scene.nodes) {
            facts.push(Fact::Node(build::node(cluster, spec), Source::Watch));
        }
        for spec in scene.worker.iter().chain(&scene.workers) {
            facts.push(Fact::Worker(build::worker(cluster, spec), Source::Watch));
        }
        for spec in scene.pod.iter().chain(&scene.pods) {
            let before = cluster.pods.clone();
            let pod = build::pod(cluster, spec);
            facts.extend(pod_changes(config, before.get(&pod.uid), Some(&pod), pod.version));
        }
        if let Some(pools) = &scene.pools {
            let pool = |(name, taints): (&String, &Vec<String>)| PoolView {
                name: name.clone(),
                startup_taints: taints.iter().cloned().collect(),
            };
            cluster.pools = pools.iter().map(pool).collect();
            facts.push(cluster.pool_list());
        }
        if let Some(ledger) = &scene.ledger {
            let entry = |(node, at): (&String, &String)| LedgerEntry {
                node: build::node_ref(cluster, node),
                at: clock(at),
            };
            let entries = ledger.iter().map(entry).collect();
            cluster.ledger = LedgerView { version: cluster.tick(), entries };
            facts.push(cluster.ledger_fact());
        }
        facts
    }

    fn occupancy(&self, scene: &Scene) -> Vec<Fact> {
        let occupancy = |(node, what): (&String, &String)| {
            let what = if what == "idle" { Occupancy::Idle } else { Occupancy::Busy(what.clone()) };
            Fact::Occupancy(build::node_ref(&self.cluster, node), what)
        };
        scene.occupancy.iter().map(occupancy).collect()
    }

    fn answer(&mut self, answer: &Answer, step: &Scene) {
        let only = &step.answer_for;
        let meant = |order: &Order| {
            only.is_empty() || only.iter().any(|node| *node == order.action.node().name.as_str())
        };
        let (mut answered, mut open): (Vec<Order>, Vec<Order>) =
            std::mem::take(&mut self.given).into_iter().partition(meant);
        if let Some(count) = step.answer_oldest {
            open.extend(answered.drain(count..));
        }
        self.given = open;
        assert!(!answered.is_empty(), "there is no order to answer");
        for order in answered {
            let outcome = match answer {
                Answer::Refused { refused } => Outcome::Refused(refused.clone()),
                Answer::Word(word) => match word.as_str() {
                    "done" => self.cluster.act(&order.action),
                    "done, but nobody heard" => {
                        self.cluster.act(&order.action);
                        Outcome::Unknown
                    }
                    "conflict" => Outcome::Conflict,
                    "unavailable" => Outcome::Unavailable,
                    "unknown" => Outcome::Unknown,
                    other => panic!("{other} is no answer"),
                },
            };
            let reports = self.engine.settle(&order, outcome, self.now);
            self.events.extend(reports.iter().map(|action| without_day(&action.to_string())));
        }
    }

    fn check(&mut self, scene: &Scene, step: usize) -> Vec<String> {
        let plan = self.engine.decide(self.now);
        let confirmed = plan.confirmed.iter().flat_map(Action::events);
        self.events.extend(confirmed.map(|action| without_day(&action.to_string())));
        let reported = std::mem::take(&mut self.events);
        self.given.extend(plan.orders.iter().cloned());
        let Some(expect) = &scene.expect else { return Vec::new() };
        let mut compare = Differences { scene, step, wrong: Vec::new() };
        let texts = |actions: &mut dyn Iterator<Item = &Action>| -> Vec<String> {
            actions.map(|action| without_day(&action.to_string())).collect()
        };
        compare.lists("do", &expect.orders, &texts(&mut plan.orders.iter().map(|order| &order.action)));
        compare.lists("withhold", &expect.withhold, &texts(&mut plan.withheld.iter()));
        let asked = plan.questions.iter().map(question);
        match &expect.ask {
            Some(ask) => compare.lists("ask", ask, &asked.collect::<Vec<_>>()),
            None => compare.lists("ask", &[], &asked.filter(|ask| ask != "everything").collect::<Vec<_>>()),
        }
        if let Some(events) = &expect.events {
            compare.lists("events", events, &reported);
        }
        self.check_standing(expect, &plan, &mut compare);
        compare.wrong
    }

    fn check_standing(&self, expect: &Expect, plan: &Plan, compare: &mut Differences<'_>) {
        let standing = |node: &str| {
            self.engine
                .explanations()
                .find(|(name, _)| name.as_str() == node)
                .map(|(_, explanation)| explanation)
        };
        let sentence =
            |node: &str| standing(node).map_or("nothing".to_owned(), |explanation| explanation.at(self.now));
        match &expect.say {
            None => {}
            Some(Say::One(say)) => compare.texts("say", say, &sentence(&self.subject)),
            Some(Say::Each(each)) => {
                for (node, say) in each {
                    compare.texts(
                        &format!("say of {node}"),
                        say.as_deref().unwrap_or("nothing"),
                        &sentence(node),
                    );
                }
            }
        }
        if let Some(phase) = &expect.phase {
            let got = standing(&self.subject)
                .map_or("nothing".to_owned(), |explanation| explanation.phase.to_string());
            compare.texts("phase", phase, &got);
        }
        if let Some(wake) = &expect.wake {
            let got = plan.wake.map_or("never".to_owned(), |at| without_day(&at.to_string()));
            compare.texts("wake", wake, &got);
        }
        if let Some(patch) = &expect.patch {
            let got = plan.orders.first().and_then(|order| patch_of(&order.action));
            compare.lists("patch", patch, &got.map_or(Vec::new(), |patch| patch.0.iter().map(op).collect()));
        }
        if let Some(taints) = &expect.taints {
            let node = self.cluster.node(&self.subject);
            let keys = node.iter().flat_map(|node| &node.taints).map(|taint| taint["key"].as_str().unwrap());
            compare.lists("taints", taints, &keys.map(str::to_owned).collect::<Vec<_>>());
        }
    }
}

fn gone(cluster: &mut Cluster, config: &Config, what: &str) -> Vec<Fact> {
    let facts: Vec<Fact> = match what.split_once(' ') {
        Some(("node", name)) => cluster.node_gone(name).into_iter().collect(),
        Some(("worker", node)) => {
            let id: NodeRef = build::node_ref(cluster, node);
            cluster.worker_gone(&knr_core::action::worker_name(&id.uid)).into_iter().collect()
        }
        Some(("pod", name)) => {
            let pod = cluster.pods.remove(&name.into());
            pod_changes(config, pod.as_ref(), None, cluster.tick())
        }
        _ => Vec::new(),
    };
    assert!(!facts.is_empty(), "there is no {what} that could go");
    facts
}

fn question(question: &Question) -> String {
    match question {
        Question::Everything => "everything".to_owned(),
        Question::StartOver => "everything again".to_owned(),
        Question::Node(node) => format!("node {node}"),
        Question::Occupancy(node) => format!("occupancy of {node}"),
    }
}

fn patch_of(action: &Action) -> Option<&NodePatch> {
    match action {
        Action::OpenGate { patch, .. } | Action::CloseGate { patch, .. } | Action::Record { patch, .. } => {
            Some(patch)
        }
        _ => None,
    }
}

fn op(op: &PatchOp) -> String {
    let short = |value: &Value| without_requires(&without_day(&value.to_string().replace(['"', '\\'], "")));
    match op {
        PatchOp::Test { path, value } => format!("test {path} {}", short(value)),
        PatchOp::Add { path, value } => format!("add {path} {}", short(value)),
        PatchOp::Remove { path } => format!("remove {path}"),
    }
}

/// Removes the policy, which is always the same, and the fingerprint of its requirements, which means nothing to a
/// reader.
fn without_requires(text: &str) -> String {
    let without = |text: &str, field: &str| match text.split_once(field) {
        Some((before, rest)) => format!("{before}{}", &rest[rest.find([',', '}']).unwrap_or(rest.len())..]),
        None => text.to_owned(),
    };
    without(&without(text, ",policy:"), ",requires:")
}

struct Differences<'a> {
    scene: &'a Scene,
    step: usize,
    wrong: Vec<String>,
}

impl Differences<'_> {
    fn texts(&mut self, what: &str, expected: &str, got: &str) {
        self.lists(what, &[expected.to_owned()], &[got.to_owned()]);
    }

    fn lists<T: Display + PartialEq>(&mut self, what: &str, expected: &[T], got: &[T]) {
        if expected == got {
            return;
        }
        let place = match (self.step, &self.scene.name) {
            (0, _) => String::new(),
            (step, None) => format!(" in step {step}"),
            (step, Some(name)) => format!(" in step {step} ({name})"),
        };
        let mut lines = Vec::new();
        lines.extend(expected.iter().map(|item| format!("      - {item}\n")));
        lines.extend(got.iter().map(|item| format!("      + {item}\n")));
        self.wrong.push(format!("    {what}{place}\n{}", lines.concat()));
    }
}

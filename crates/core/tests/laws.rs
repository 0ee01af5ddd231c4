//! Properties that hold for every cluster: the same knowledge gives the same decisions, however it was learned, and a
//! plan that is carried out leaves nothing to do. Each property is tested on hundreds of random clusters, which are the
//! same in every run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::{Engine, Outcome, Plan, Question};
use knr_core::explain::{Explanation, Note};
use knr_core::ids::{NodeName, Version};
use knr_core::names;
use knr_core::view::{Occupancy, Stage, WorkerView};
use knr_core::world::{Fact, Source};
use support::cluster::{Cluster, pod_changes, view};
use support::random::{self, Random, noon};

const WORLDS: u64 = 500;

/// A time at which all doubt about what existed before the engine is over, and no worker has timed out yet.
fn later() -> Timestamp {
    noon() + SignedDuration::from_secs(90)
}

fn engine(config: &Config, facts: Vec<Fact>) -> Engine {
    let mut engine = Engine::new(config);
    for fact in facts {
        engine.learn(fact, noon());
    }
    engine.lead();
    engine
}

/// The status of every node, as reported to operators.
fn standings(engine: &Engine, now: Timestamp) -> BTreeMap<String, String> {
    engine
        .explanations()
        .map(|(name, explanation)| {
            (name.to_string(), format!("{} {}", explanation.phase, explanation.at(now)))
        })
        .collect()
}

/// The same without the next attempt and the actions of a dry run, which depend on when the decision was made.
fn without_plans(engine: &Engine) -> BTreeMap<String, String> {
    let plain = |mut explanation: Explanation| {
        explanation.notes.retain(|note| !matches!(note, Note::DryRun { .. }));
        explanation.next_attempt = None;
        format!("{} {explanation}", explanation.phase)
    };
    engine.explanations().map(|(name, explanation)| (name.to_string(), plain(explanation.clone()))).collect()
}

fn actions(plan: &Plan) -> Vec<Action> {
    plan.orders.iter().map(|order| order.action.clone()).chain(plan.withheld.iter().cloned()).collect()
}

fn dry(mut config: Config) -> Config {
    config.reconciliation.dry_run = true;
    config
}

#[test]
fn the_same_facts_give_the_same_plan() {
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let config = random::any_config(&mut random);
        let cluster = random::cluster(&mut random);
        let plan = || engine(&config, cluster.lists(&config)).decide(noon());
        assert_eq!(plan(), plan(), "seed {seed}");
    }
}

/// Every object as a single event: nodes, workers and pods, each kind in the order of its versions.
fn events(config: &Config, cluster: &Cluster) -> [Vec<Fact>; 3] {
    let mut nodes: Vec<_> = cluster.nodes.values().map(view).collect();
    nodes.sort_by_key(|node| node.version);
    let mut workers: Vec<_> = cluster.workers.values().cloned().collect();
    workers.sort_by_key(|worker| worker.version);
    let mut pods: Vec<_> = cluster.pods.values().cloned().collect();
    pods.sort_by_key(|pod| pod.version);
    [
        nodes.into_iter().map(|node| Fact::Node(node, Source::Watch)).collect(),
        workers.into_iter().map(|worker| Fact::Worker(worker, Source::Watch)).collect(),
        pods.iter().flat_map(|pod| pod_changes(config, None, Some(pod), pod.version)).collect(),
    ]
}

/// Interleaves the events: watches of different kinds run concurrently, and may deliver an event twice.
fn interleaved(random: &mut Random, config: &Config, cluster: &Cluster) -> Vec<Fact> {
    let mut kinds = events(config, cluster).map(std::collections::VecDeque::from);
    let mut facts: Vec<Fact> = Vec::new();
    while kinds.iter().any(|kind| !kind.is_empty()) {
        let kind = random.below(3);
        facts.extend(kinds[kind].pop_front());
        if random.chance(20) && !facts.is_empty() {
            facts.push(random.pick(&facts).clone());
        }
    }
    facts
}

#[test]
fn it_does_not_matter_by_which_way_facts_come() {
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let mut config = random::any_config(&mut random);
        // Deletion is the exception: results that predate the engine do not justify it.
        config.node_management.delete_failed_nodes = false;
        let cluster = random::cluster(&mut random);
        let mut by_lists = engine(&config, cluster.lists(&config));
        let mut nothing = Cluster::default();
        nothing.pools.clone_from(&cluster.pools);
        let mut by_events = engine(&config, nothing.lists(&config));
        for fact in interleaved(&mut random, &config, &cluster) {
            by_events.learn(fact, noon());
        }
        let plans = (by_lists.decide(later()), by_events.decide(later()));
        assert_eq!(actions(&plans.0), actions(&plans.1), "seed {seed}");
        assert_eq!(plans.0.questions, plans.1.questions, "seed {seed}");
        assert_eq!(standings(&by_lists, later()), standings(&by_events, later()), "seed {seed}");
    }
}

/// Changes something in the cluster. Returns the resulting watch events, and an earlier event about the same object.
fn happen(random: &mut Random, config: &Config, cluster: &mut Cluster) -> (Vec<Fact>, Option<Fact>) {
    let name = format!("n{}", random.below(7));
    let before = cluster.node(&name);
    let old_node = before.clone().map(|node| Fact::Node(node, Source::Watch));
    match random.below(10) {
        0 if before.is_some() => (cluster.node_gone(&name).into_iter().collect(), old_node),
        1..5 => {
            if let Some(worker) = cluster.workers.values().nth(random.below(7)).cloned() {
                let mut changed = worker.clone();
                changed.stage = random::stage(random);
                let old = Some(Fact::Worker(worker, Source::Watch));
                return (vec![Fact::Worker(cluster.put_worker(changed), Source::Watch)], old);
            }
            (vec![cluster.pool_list()], None)
        }
        5..7 => {
            let before = cluster.pods.clone();
            let pod = random::put_pod(random, cluster, &name);
            (pod_changes(config, before.get(&pod.uid), Some(&pod), pod.version), None)
        }
        _ => {
            let mut document = random::node(random, &name);
            // The boot stays the same: only an engine that saw the restart knows whether a pod has started again since.
            if let Some(before) = before {
                document["status"]["nodeInfo"]["bootID"] = serde_json::json!(before.boot);
            }
            (vec![Fact::Node(cluster.put_node(&name, document), Source::Watch)], old_node)
        }
    }
}

#[test]
fn deciding_step_by_step_comes_to_the_same_as_deciding_at_once() {
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let mut config = dry(random::plain_config(&mut random));
        // The number of failing nodes is evaluated when a node is decided about, not whenever that number changes.
        config.limits.deletion.max_failing_percent = 100;
        let mut cluster = random::cluster(&mut random);
        let mut running = engine(&config, cluster.lists(&config));
        running.decide(noon());
        for _ in 0..random.below(12) {
            for fact in happen(&mut random, &config, &mut cluster).0 {
                running.learn(fact, noon());
            }
            if random.chance(60) {
                running.decide(noon());
            }
        }
        running.decide(later());
        let mut fresh = engine(&config, cluster.lists(&config));
        let plan = fresh.decide(later());
        assert_eq!(without_plans(&running), without_plans(&fresh), "seed {seed}");
        running.configure(&config);
        assert_eq!(actions(&running.decide(later())), actions(&plan), "seed {seed}");
    }
}

#[test]
fn old_facts_after_new_ones_change_nothing() {
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let config = random::any_config(&mut random);
        let mut cluster = random::cluster(&mut random);
        let mut running = engine(&config, cluster.lists(&config));
        let mut old: Vec<Fact> = Vec::new();
        for _ in 0..random.below(12) {
            let (facts, before) = happen(&mut random, &config, &mut cluster);
            old.extend(before);
            for fact in facts {
                running.learn(fact, noon());
            }
        }
        running.decide(noon());
        let before = standings(&running, noon());
        for _ in 0..old.len() * 2 {
            running.learn(random.pick(&old).clone(), noon());
        }
        let plan = running.decide(noon());
        assert_eq!((actions(&plan), plan.questions, plan.changes), (vec![], vec![], vec![]), "seed {seed}");
        assert_eq!(standings(&running, noon()), before, "seed {seed}");
    }
}

/// A list can be in flight while the watch reports that an object is gone.
#[test]
fn an_old_list_brings_back_nothing_that_is_gone() {
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let config = random::any_config(&mut random);
        let mut cluster = random::cluster(&mut random);
        let mut running = engine(&config, cluster.lists(&config));
        let old = cluster.lists(&config);
        let Some(name) = cluster.nodes.keys().next().cloned() else { continue };
        let is_known = |engine: &Engine| {
            let entry = engine.world().entry(&name.as_str().into());
            entry.is_some_and(|entry| entry.view.is_some())
        };
        assert!(is_known(&running), "seed {seed}");
        running.learn(cluster.node_gone(&name).unwrap(), noon());
        running.decide(noon());
        for fact in old {
            running.learn(fact, noon());
        }
        running.decide(noon());
        assert!(!is_known(&running), "seed {seed}");
    }
}

/// Carries out a plan exactly. Every order must succeed, because nobody else writes.
fn carry_out(random: &mut Random, engine: &mut Engine, cluster: &mut Cluster, plan: Plan) {
    for order in plan.orders {
        let outcome = cluster.act(&order.action);
        assert!(
            matches!(outcome, Outcome::Done(_)),
            "{} does not apply to what it was decided on",
            order.action
        );
        engine.settle(&order, outcome, noon());
    }
    for question in plan.questions {
        let answer = match question {
            Question::Everything | Question::StartOver => continue,
            Question::Node(node) => cluster.reread(&node),
            Question::Occupancy(node) if random.chance(50) => Fact::Occupancy(node, Occupancy::Idle),
            Question::Occupancy(node) => Fact::Occupancy(node, Occupancy::Busy("shop/cart".to_owned())),
        };
        engine.learn(answer, noon());
    }
}

/// The taints, labels and annotations on each node that others own.
fn of_others(cluster: &Cluster) -> BTreeMap<NodeName, String> {
    let ours = [
        names::UNVERIFIED_TAINT,
        names::STARTUP_TAINT,
        names::VERIFIED_LABEL,
        names::STATE_ANNOTATION,
        names::COMPLETED_ANNOTATION,
    ];
    let is_ours = |key: &str| ours.contains(&key);
    let of_others = |mut node: knr_core::view::NodeView| {
        node.taints.retain(|taint| !is_ours(taint["key"].as_str().unwrap()));
        node.labels = node.labels.iter().filter(|(key, _)| !is_ours(key)).collect();
        node.annotations = node.annotations.iter().filter(|(key, _)| !is_ours(key)).collect();
        (node.id.name, format!("{:?} {:?} {:?}", node.taints, node.labels, node.annotations))
    };
    cluster.nodes.values().map(view).map(of_others).collect()
}

/// The number of workers that hold a slot. A pending worker whose node does not exist holds none.
fn live(cluster: &Cluster) -> usize {
    let has_node = |worker: &WorkerView| cluster.node(worker.stamp.node.name.as_str()).is_some();
    let is_live = |worker: &&WorkerView| match worker.stage {
        Stage::Pending(_) => !worker.leaving && has_node(worker),
        Stage::Running => !worker.leaving,
        Stage::Ended(_) => false,
    };
    cluster.workers.values().filter(is_live).count()
}

#[test]
fn a_plan_that_is_carried_out_leaves_nothing_to_do_and_nobody_else_hurt() {
    const ROUNDS: usize = 12;
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let config = random::any_config(&mut random);
        let mut cluster = random::cluster(&mut random);
        let mut running = engine(&config, cluster.lists(&config));
        let places = config.limits.max_concurrent_workers as usize;
        let (others, allowed) = (of_others(&cluster), places.max(live(&cluster)));
        let mut started = BTreeSet::new();
        let (mut rounds, mut looked_again) = (0, false);
        loop {
            let plan = running.decide(noon());
            if plan.orders.is_empty() && plan.questions.is_empty() {
                if std::mem::replace(&mut looked_again, true) {
                    break;
                }
                running.configure(&config);
                continue;
            }
            looked_again = false;
            for action in actions(&plan) {
                let is_start = matches!(action, Action::StartWorker { .. });
                let is_removal = matches!(action, Action::RemoveWorker { .. });
                assert!(
                    !(is_removal && started.contains(action.node())),
                    "seed {seed}: made to be removed: {action}"
                );
                started.extend(is_start.then(|| action.node().clone()));
            }
            carry_out(&mut random, &mut running, &mut cluster, plan);
            assert!(live(&cluster) <= allowed, "seed {seed}: more workers than places");
            rounds += 1;
            assert!(rounds < ROUNDS, "seed {seed}: no end of orders");
        }
        let left = of_others(&cluster);
        assert!(
            left.iter().all(|(name, theirs)| others[name] == *theirs),
            "seed {seed}: {others:?} became {left:?}"
        );
        let again = engine(&config, cluster.lists(&config)).decide(noon());
        assert_eq!(actions(&again), vec![], "seed {seed}: after a restart there is something to do");
    }
}

#[test]
fn a_replica_that_does_not_lead_gives_no_orders_and_says_what_the_leader_says() {
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let config = random::any_config(&mut random);
        let mut cluster = random::cluster(&mut random);
        let mut leader = engine(&config, cluster.lists(&config));
        let mut standby = engine(&config, cluster.lists(&config));
        standby.stand_by();
        leader.decide(noon());
        for step in 0..5 {
            let Plan { wake, considered: _, orders, withheld, questions, confirmed, changes } =
                standby.decide(noon());
            assert!(confirmed.is_empty(), "seed {seed}");
            assert!(orders.is_empty() && withheld.is_empty() && questions.is_empty(), "seed {seed}");
            assert!(changes.is_empty() && wake.is_none_or(|wake| wake > noon()), "seed {seed}: {wake:?}");
            if step == 0 {
                assert_eq!(without_plans(&standby), without_plans(&leader), "seed {seed}");
            }
            for fact in happen(&mut random, &config, &mut cluster).0 {
                standby.learn(fact, noon());
            }
        }
        assert_ne!(cluster.version(), Version::default());
    }
}

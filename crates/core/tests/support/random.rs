//! Small random clusters, reproducible by seed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use knr_core::action::worker_name;
use knr_core::config::Config;
use knr_core::ids::{NodeName, NodeRef, Uid, Version, WorkerRef};
use knr_core::names;
use knr_core::state::{NodeState, StatePhase};
use knr_core::view::{Ending, InitPodView, PoolView, Purpose, Stage, Stamp, WorkerView};
use serde_json::{Value, json};

use super::cluster::Cluster;

/// xorshift64*: small, and good enough to choose between a few options.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    fn small(&mut self, end: usize) -> u32 {
        u32::try_from(self.below(end)).unwrap()
    }
}

pub(crate) fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

const PLAIN: [&str; 7] = [
    "",
    "limits: {maxConcurrentWorkers: 1}",
    "nodeManagement: {onReboot: close}\nlimits: {maxConcurrentWorkers: 2}",
    "nodeManagement: {onReboot: ignore, backfill: true, includeControlPlane: true}",
    "gates: [{}]",
    "gates: [{}]\nnodeManagement: {after: [startup], backfill: true}",
    "gates: [{after: [verification], minimumHoldSeconds: 60}]\nreconciliation: {maxRetries: 2, maxInconclusiveRuns: 2}",
];
const DELETING: [&str; 2] = [
    "nodeManagement: {deleteFailedNodes: true}\nlimits: {deletion: {maxFailingPercent: 100}}",
    "nodeManagement: {deleteFailedNodes: true, backfill: true}\nreconciliation: {maxRetries: 1}",
];

/// A configuration under which nodes do not depend on each other, except for worker slots.
pub(crate) fn plain_config(random: &mut Random) -> Config {
    Config::parse(random.pick::<&str>(&PLAIN)).unwrap()
}

pub(crate) fn any_config(random: &mut Random) -> Config {
    if random.chance(30) {
        Config::parse(random.pick::<&str>(&DELETING)).unwrap()
    } else {
        plain_config(random)
    }
}

/// A cluster in any state that the rules may encounter.
pub(crate) fn cluster(random: &mut Random) -> Cluster {
    let mut cluster = Cluster::default();
    let listed = if random.chance(50) { names::UNVERIFIED_TAINT } else { "other/taint" };
    cluster.pools = vec![PoolView { name: "pool".into(), startup_taints: [listed.to_owned()].into() }];
    for index in 0..=random.below(7) {
        let name = format!("n{index}");
        let document = node(random, &name);
        if !random.chance(5) {
            cluster.put_node(&name, document);
        }
        if random.chance(50) {
            let worker = worker(random, &name);
            cluster.put_worker(worker);
        }
        for _ in 0..random.below(3) {
            put_pod(random, &mut cluster, &name);
        }
    }
    cluster
}

fn taint(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": value, "effect": "NoSchedule" })
}

/// A node in any state.
pub(crate) fn node(random: &mut Random, name: &str) -> Value {
    let mut taints: Vec<Value> = (0..random.below(4)).map(|i| taint(&format!("other/t{i}"), "x")).collect();
    let ours = [taint(names::UNVERIFIED_TAINT, "true"), taint(names::STARTUP_TAINT, "wait")];
    for ours in ours {
        if random.chance(55) {
            let at = random.below(taints.len() + 1);
            taints.insert(at, ours);
        }
    }
    let boot = *random.pick(&["b1", "b1", "b2"]);
    let mut document = json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "creationTimestamp": noon() - SignedDuration::from_secs(40) },
        "spec": {},
        "status": { "nodeInfo": { "bootID": boot } },
    });
    if !taints.is_empty() {
        document["spec"]["taints"] = json!(taints);
    }
    let labels = labels(random);
    if !labels.is_empty() {
        document["metadata"]["labels"] = json!(labels);
    }
    let annotations = annotations(random, name, boot);
    if !annotations.is_empty() {
        document["metadata"]["annotations"] = json!(annotations);
    }
    document
}

fn labels(random: &mut Random) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let all = [
        (names::VERIFIED_LABEL, "true", 40),
        (names::KARPENTER_POOL_LABEL, "pool", 25),
        (names::KARPENTER_REGISTERED_LABEL, "true", 20),
        (names::CONTROL_PLANE_LABELS[0], "", 5),
        ("kubernetes.azure.com/mode", "system", 4),
        ("team", "web", 50),
    ];
    for (key, value, percent) in all {
        if random.chance(percent) {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    labels
}

fn annotations(random: &mut Random, name: &str, boot: &str) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::new();
    if random.chance(60) {
        let uid: Uid = if random.chance(90) { format!("uid-{name}").into() } else { "another".into() };
        let boot = if random.chance(70) { boot } else { "b0" };
        let at = noon() - SignedDuration::from_secs(i64::from(random.small(100)));
        let phase = *random.pick(&[StatePhase::Unverified, StatePhase::Verified, StatePhase::Failed]);
        let state = NodeState {
            phase,
            serial: random.small(4),
            attempt: random.small(6),
            inconclusive: random.small(3),
            next_try: random.chance(50).then(|| at + SignedDuration::from_secs(i64::from(random.small(150)))),
            cause: Some("DnsTimeout".to_owned()),
            reason: Some("dns: no answer".to_owned()),
            ..NodeState::new(uid, boot.into(), at)
        };
        annotations.insert(names::STATE_ANNOTATION.to_owned(), state.to_json());
    }
    for (key, percent) in [(names::PAUSED_ANNOTATION, 5), ("other/annotation", 50)] {
        if random.chance(percent) {
            annotations.insert(key.to_owned(), "yes".to_owned());
        }
    }
    annotations
}

/// A worker whose stamp may or may not match its node.
pub(crate) fn worker(random: &mut Random, node: &str) -> WorkerView {
    let uid: Uid =
        if random.chance(85) { format!("uid-{node}").into() } else { format!("old-{node}").into() };
    let purpose = if random.chance(80) { Purpose::Verify } else { Purpose::Reference };
    let name: NodeName = node.into();
    WorkerView {
        id: WorkerRef { name: worker_name(&uid), uid: format!("pod-{node}").into() },
        version: Version::default(),
        stamp: Stamp {
            node: NodeRef { name: name.clone(), uid },
            boot: (*random.pick(&["b1", "b2"])).into(),
            serial: random.small(4) + 1,
            attempt: random.small(5) + 1,
            purpose,
            policy: "".into(),
            requires: "".into(),
        },
        host: if random.chance(90) { Some(name) } else { None },
        stage: stage(random),
        leaving: random.chance(10),
    }
}

pub(crate) fn stage(random: &mut Random) -> Stage {
    let exited = |code| Stage::Ended(Ending::Exited { code, message: String::new() });
    match random.below(6) {
        0 => Stage::Pending(None),
        1 => Stage::Running,
        2 => exited(1),
        3 => Stage::Ended(Ending::Killed("Evicted".to_owned())),
        _ => exited(0),
    }
}

/// Creates or replaces an init pod.
pub(crate) fn put_pod(random: &mut Random, cluster: &mut Cluster, node: &str) -> InitPodView {
    let name = format!("{node}-init-{}", random.below(3));
    let pod = InitPodView {
        uid: name.as_str().into(),
        version: cluster.tick(),
        namespace: "kube-system".to_owned(),
        name,
        host: node.into(),
        created: noon() - SignedDuration::from_secs(i64::from(random.small(45))),
        labels: [(names::INIT_POD_LABEL, names::INIT_POD_VALUE)].into_iter().collect(),
        annotations: BTreeMap::new(),
        ready: random.chance(70),
        containers: "first".to_owned(),
        leaving: random.chance(10),
    };
    cluster.pods.insert(pod.uid.clone(), pod.clone());
    pod
}

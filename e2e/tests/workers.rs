//! Workers that end in unusual ways, and workers that run another program than the product.

use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use fs_err as fs;
use knr_e2e::{Cluster, Config, Controller, GATE, LONG_GRACE, Node};
use lab::{PROBE_IMAGE, Tool};
use serde_json::{Value, json};

/// The program of the tests' own workers, which ends in whatever way it is told to.
const PROBE: &str = "/probe";
/// How often kubelets measure volumes. A volume that is too large is noticed only then.
const QUICK_STATS: &str = "--volume-stats-agg-period=3s";

#[test]
fn however_a_worker_ends_its_node_gets_a_just_verdict() -> Result<()> {
    let cluster = Cluster::start_with("workers", |lab| {
        lab.nodes(3).flag(Tool::KubeControllerManager, LONG_GRACE).flag(Tool::Kubelet, QUICK_STATS)
    })?;
    thread::scope(|scope| {
        let threads = [
            scope.spawn(|| a_worker_that_somebody_ends_costs_no_attempt_and_one_that_hangs_does(&cluster)),
            scope.spawn(|| custom_checks_decide_and_their_last_words_are_reported(&cluster)),
            scope.spawn(|| an_eviction_costs_no_attempt(&cluster)),
            scope.spawn(|| names_and_taints_may_be_as_many_and_as_long_as_kubernetes_allows(&cluster)),
        ];
        let ends: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let errors = ends.into_iter().filter_map(|end| match end {
            Ok(end) => end.err().map(|err| format!("{err:#}")),
            Err(_) => Some("a scenario panicked, see above".to_owned()),
        });
        let errors: Vec<_> = errors.collect();
        ensure!(errors.is_empty(), "{}", errors.join("\n\n"));
        Ok(())
    })
}

fn a_worker_that_somebody_ends_costs_no_attempt_and_one_that_hangs_does(cluster: &Cluster) -> Result<()> {
    let hangs = Team::config("hang", &[PROBE, "pause"])
        .set("worker.timeoutSeconds", 4)
        .set("worker.pendingTimeoutSeconds", 60);
    let team = Team::start(cluster, "hang", &hangs, "n1")?;

    let deleted = team.running_worker(None)?;
    cluster.api().delete(&deleted.path)?;
    team.wait_for_state("inconclusive", 1)?;
    let evicted = team.running_worker(Some(&deleted))?;
    let eviction =
        json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": evicted.name } });
    cluster.api().create(&format!("{}/eviction", evicted.path), &eviction)?;
    team.wait_for_state("inconclusive", 2)?;
    assert_eq!(team.state()?["attempt"], 0, "ending a worker says nothing about its node");
    assert_eq!(team.state()?["reason"], "the worker vanished");

    // From here on the worker is left alone.
    team.wait_for_state("attempt", 1)?;
    assert_eq!(team.state()?["cause"], "Timeout");
    let reason = team.reason()?;
    assert!(reason.starts_with("after 14 s the worker runs the checks"), "{reason}");

    // A worker that exits with 0 has passed, whatever its termination message says.
    let words = "]]\u{1b}[31m not a report {";
    team.reconfigure(&hangs.set("worker.command", json!([PROBE, "end", "0", words])))?;
    team.wait_until_open()
}

fn custom_checks_decide_and_their_last_words_are_reported(cluster: &Cluster) -> Result<()> {
    let words = "\nlooking for devices\nno GPU found: 0 of 8\n\n";
    let volume = json!([{ "name": "scratch", "emptyDir": {} }]);
    let mounts = json!([{ "name": "scratch", "mountPath": "/scratch" }]);
    let own = |name: &str, arguments: &[&str]| json!({ "name": name, "image": PROBE_IMAGE, "imagePullPolicy": "Never", "args": arguments, "volumeMounts": mounts });
    let fills = own("fill", &["fill", "/scratch/ready", "10"]);
    let config = Team::config("own", &[PROBE, "end", "0", ""]).set("worker.volumes", volume);
    let no_gpu =
        config.clone().set("worker.initContainers", json!([fills, own("gpu", &["end", "3", words])]));
    let team = Team::start(cluster, "own", &no_gpu, "n2")?;
    team.wait_for_reason("the worker ended with exit code 3: init container gpu: no GPU found: 0 of 8")?;
    assert_eq!(team.state()?["cause"], "WorkerFailed");

    let garbage = r#"{"checks":[{"name":"dns","outcome":"pa"#;
    let config = config.set("worker.initContainers", json!([fills]));
    team.reconfigure(&config.clone().set("worker.command", json!([PROBE, "end", "1", garbage])))?;
    team.wait_for_reason(&format!("the worker ended with exit code 1: {garbage}"))?;

    // A report counts, whichever program writes it, even if the exit code says otherwise.
    let slow = r#"{"checks":[{"name":"disk","outcome":{"fail":{"kind":"slow","detail":"12 MB/s"}}}]}"#;
    team.reconfigure(&config.clone().set("worker.command", json!([PROBE, "end", "0", slow])))?;
    team.wait_for_reason("disk: 12 MB/s")?;
    assert_eq!(team.state()?["cause"], "DiskSlow");

    // The product's own worker sees the files that an init container wrote before, and no others.
    let check = |path: &str| json!([{ "name": "ready", "file": { "path": path } }]);
    let ours = Team::with_our_worker(&config).set("worker.volumeMounts", mounts.clone());
    team.reconfigure(&ours.clone().set("worker.checks", check("/scratch/missing")))?;
    team.wait_for_reason("ready: /scratch/missing")?;
    team.reconfigure(&ours.set("worker.checks", check("/scratch/ready")))?;
    team.wait_until_open()
}

fn an_eviction_costs_no_attempt(cluster: &Cluster) -> Result<()> {
    let own = json!({
        "name": "large", "image": PROBE_IMAGE, "imagePullPolicy": "Never", "args": ["fill", "/scratch/large", "3000000"],
        "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }],
    });
    // This worker exits with an error when it is told to stop: kubelets report one that exits with 0 as succeeded.
    let config = Team::config("evicted", &[PROBE, "serve", "127.0.0.1:8080"]);
    let too_large = config
        .clone()
        .set("worker.initContainers", json!([own]))
        .set("worker.volumes", json!([{ "name": "scratch", "emptyDir": { "sizeLimit": "1Mi" } }]))
        .set("worker.timeoutSeconds", 90)
        .set("worker.pendingTimeoutSeconds", 90);
    let team = Team::start(cluster, "evicted", &too_large, "n3")?;
    team.wait_for_reason(
        "the worker was ended from outside: Evicted: Usage of EmptyDir volume \"scratch\" exceeds",
    )?;
    assert_eq!(team.state()?["attempt"], 0, "an eviction says nothing about the node");

    team.reconfigure(&Team::with_our_worker(&config))?;
    // A worker that was started before the edit would be evicted at some point.
    if let Ok(worker) = team.worker() {
        cluster.api().delete(&worker.path)?;
    }
    team.wait_until_open()
}

fn names_and_taints_may_be_as_many_and_as_long_as_kubernetes_allows(cluster: &Cluster) -> Result<()> {
    let config = Config::new().set("nodeManagement.exclude", json!(["team"]));
    let controller = Controller::start(cluster, &config, "a")?;
    thread::scope(|scope| {
        let taints = scope.spawn(|| a_node_with_forty_taints_keeps_all_but_the_gate(cluster));
        a_node_with_a_name_of_253_characters_is_verified(cluster, &controller)?;
        an_edit_that_breaks_the_configuration_changes_nothing_until_it_is_fixed(
            cluster,
            &controller,
            &config,
        )?;
        taints.join().map_err(|_| anyhow!("the scenario of the taints panicked"))?
    })
}

fn a_node_with_forty_taints_keeps_all_but_the_gate(cluster: &Cluster) -> Result<()> {
    let mut taints: Vec<String> = (0..39)
        .map(|number| match number % 3 {
            0 => format!("z{number}.example/only-key:NoSchedule"),
            1 => format!("a{number}.example/with-value=x:NoSchedule"),
            _ => format!("node-ready/unverified-{number}=true:PreferNoSchedule"),
        })
        .collect();
    let others = taints.clone();
    taints.insert(23, GATE.to_owned());
    let node = cluster.join_with("crowded", &taints.iter().map(String::as_str).collect::<Vec<_>>())?;
    node.wait_until_open()?;
    assert!(node.is_verified()?);
    assert_eq!(node.taints()?, others);
    Ok(())
}

/// No kubelet has such a name, because it would not fit into its label `kubernetes.io/hostname`. But the API server
/// accepts it.
fn a_node_with_a_name_of_253_characters_is_verified(
    cluster: &Cluster,
    controller: &Controller,
) -> Result<()> {
    cluster.fake_workers_end(0, r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#)?;
    let nodes = cluster.fakes(&"n".repeat(251), 1)?;
    let node = nodes.first().context("one was made")?;
    assert_eq!(node.name().len(), 253);
    node.wait_until_open()?;
    assert!(node.is_verified()?);
    cluster.eventually("its worker to be gone and its verification to be reported", || {
        let is_reported = node.events()?.iter().any(|event| event.reason == "Verified");
        Ok(is_reported
            && node.workers()?.is_empty()
            && node.condition()?.is_some_and(|it| it.status == "True"))
    })?;
    let refused: Vec<_> = node.writes()?.into_iter().filter(|write| !write.succeeded()).collect();
    assert_eq!(refused, []);
    let labels = [("node", node.name()), ("status", "verified")];
    assert_eq!(controller.metrics()?.value("kube_node_ready_verification_status", &labels), Some(1.0));
    Ok(())
}

fn an_edit_that_breaks_the_configuration_changes_nothing_until_it_is_fixed(
    cluster: &Cluster,
    controller: &Controller,
    config: &Config,
) -> Result<()> {
    let file = controller.kubeconfig().with_file_name("config.yaml");
    let good = fs::read_to_string(&file)?;
    let broken = good.replace("\"timeoutSeconds\": 20", "\"timeoutSeconds\": \"20\", \"timeoutSecond\": 20");
    ensure!(broken != good, "nothing was broken: {good}");
    let reloads = |outcome: &str| -> Result<Option<f64>> {
        Ok(controller.metrics()?.value("kube_node_ready_config_reloads_total", &[("outcome", outcome)]))
    };
    fs::write(&file, &broken)?;
    cluster.eventually("the edit to be rejected", || Ok(reloads("rejected")? == Some(1.0)))?;
    let log = controller.log()?;
    let line = log.iter().find(|line| line["level"] == "error").context("no error")?;
    let problems = line["problems"].as_str().context("no problems")?;
    assert!(
        problems.contains("worker.timeoutSeconds: expected a whole number, found the text \"20\""),
        "{problems}"
    );
    assert!(
        problems.contains("worker.timeoutSecond: unknown key; did you mean timeoutSeconds?"),
        "{problems}"
    );
    assert_eq!(problems.lines().filter(|line| line.starts_with("line ")).count(), 2, "{problems}");

    // The previous configuration is still in force.
    let nodes = cluster.fakes("meanwhile", 1)?;
    nodes[0].wait_until_open()?;
    assert_eq!(reloads("ok")?, Some(0.0));

    controller.reconfigure(&config.clone().set("reconciliation.paused", true))?;
    cluster.eventually("the corrected edit to be in force", || Ok(reloads("ok")? == Some(1.0)))?;
    let nodes = cluster.fakes("fixed", 1)?;
    cluster.eventually("the new node to wait", || {
        Ok(controller.log()?.iter().any(|line| {
            let state = line["state"].as_str().unwrap_or_default();
            line["node"] == "fixed-0" && state.contains("reconciliation.paused is set")
        }))
    })?;
    assert!(!nodes[0].is_open()?);
    controller.reconfigure(config)?;
    nodes[0].wait_until_open()?;
    Ok(())
}

/// A controller with a gate and a namespace of its own, and one node, so that no team sees how the workers of others
/// behave.
struct Team<'c> {
    cluster: &'c Cluster,
    name: &'static str,
    controller: Controller<'c>,
    node: Node<'c>,
}

/// A worker pod that existed when it was looked up.
struct Worker {
    name: String,
    uid: String,
    path: String,
    phase: String,
}

impl<'c> Team<'c> {
    /// A configuration whose workers run the tests' own program with this command.
    fn config(name: &str, command: &[&str]) -> Config {
        let (repository, tag) = PROBE_IMAGE.split_once(':').unwrap_or_default();
        Config::new()
            .set("worker.image", json!({ "repository": repository, "tag": tag, "pullPolicy": "Never" }))
            .set("worker.command", json!(command))
            .set("worker.namespace", name)
            // Roles are named after it, and those of other teams must stay.
            .set("worker.serviceAccountName", format!("worker-{name}"))
            .set("nodeManagement.exclude", json!([format!("team!={name}")]))
            .set("reconciliation.maxRetries", 100)
            .set("reconciliation.maxInconclusiveRuns", 100)
            .set("reconciliation.maxRetryDelaySeconds", 2)
            .set("nodeManagement.taints", json!([{ "key": gate(name), "effect": "NoSchedule" }]))
            // It is the only replica.
            .set("leaderElection.enabled", false)
    }

    /// The same with the product's own worker.
    fn with_our_worker(config: &Config) -> Config {
        let image = json!({ "repository": knr_e2e::product::REPOSITORY, "tag": knr_e2e::product::TAG, "pullPolicy": "Never" });
        config.clone().set("worker.image", image).set("worker.command", json!([]))
    }

    fn start(cluster: &'c Cluster, name: &'static str, config: &Config, node: &str) -> Result<Self> {
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let metadata = json!({ "name": name, "labels": labels });
        cluster.api().create("/api/v1/namespaces", &json!({ "metadata": metadata }))?;
        let node = cluster.node(node)?;
        node.patch(&json!({ "metadata": { "labels": { "team": name } } }))?;
        let controller = Controller::start(cluster, config, name)?;
        node.patch(&json!({ "spec": { "taints": [{ "key": gate(name), "effect": "NoSchedule" }] } }))?;
        Ok(Self { cluster, name, controller, node })
    }

    fn reconfigure(&self, config: &Config) -> Result<()> {
        self.controller.reconfigure(config)
    }

    fn state(&self) -> Result<Value> {
        self.node.state()
    }

    /// The reason in the node's state, which is also shown to people.
    fn reason(&self) -> Result<String> {
        Ok(self.state()?["reason"].as_str().unwrap_or_default().to_owned())
    }

    #[track_caller]
    fn wait_for_state(&self, field: &str, value: u32) -> Result<()> {
        self.node.wait_for_state(field, value)
    }

    /// Waits until the reason begins like this, and, if the node has failed, until its condition shows it.
    #[track_caller]
    fn wait_for_reason(&self, beginning: &str) -> Result<()> {
        self.cluster.eventually(&format!("{} to show {beginning:?}", self.node.name()), || {
            let (state, reason) = (self.state()?, self.reason()?);
            ensure!(reason.starts_with(beginning), "the state says {state}");
            assert!(!self.node.taints()?.is_empty(), "opened although {reason}");
            let message = self.node.condition()?.map(|condition| condition.message).unwrap_or_default();
            Ok(state["phase"] != "failed" || message.contains(beginning))
        })
    }

    #[track_caller]
    fn wait_until_open(&self) -> Result<()> {
        self.cluster.eventually(&format!("the gate of {} to open", self.name), || {
            Ok(self.node.taints()?.is_empty())
        })?;
        assert!(self.node.is_verified()?);
        Ok(())
    }

    /// Its only worker.
    fn worker(&self) -> Result<Worker> {
        let pods = format!("/api/v1/namespaces/{}/pods", self.name);
        let found = self.cluster.api().list(&pods)?;
        ensure!(found.len() <= 1, "there is more than one worker: {found:#?}");
        let pod = found.first().context("there is no worker")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&pod["metadata"]["name"]);
        Ok(Worker {
            path: format!("{pods}/{name}"),
            uid: text(&pod["metadata"]["uid"]),
            phase: text(&pod["status"]["phase"]),
            name,
        })
    }

    /// Waits until its worker runs and is not this one.
    #[track_caller]
    fn running_worker(&self, other_than: Option<&Worker>) -> Result<Worker> {
        self.cluster.wait_for(&format!("a worker of {} to run", self.name), || {
            let worker = self.worker()?;
            let is_new = other_than.is_none_or(|other| other.uid != worker.uid);
            Ok((is_new && worker.phase == "Running").then_some(worker))
        })
    }
}

fn gate(team: &str) -> String {
    format!("{team}.example/unverified")
}

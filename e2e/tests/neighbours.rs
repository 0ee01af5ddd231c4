//! Nodes that change after they were verified, and other controllers that constantly write to the same nodes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use knr_e2e::{Api, Cluster, Config, Controller, LONG_GRACE, Node};
use lab::{Fault, Tool};
use serde_json::{Value, json};

const LABEL: &str = "node-ready/verified";
const OTHERS: &str = "others.example/";
const COUNTER: &str = "others.example/counter";
const PASSED: &str = r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#;

#[test]
fn verified_nodes_may_change_and_others_may_write() -> Result<()> {
    let cluster =
        Cluster::start_with("neighbours", |lab| lab.nodes(1).flag(Tool::KubeControllerManager, LONG_GRACE))?;
    cluster.fake_workers_end(0, PASSED)?;
    let config = Config::new().set("worker.retries", 0);
    let controller = Controller::start(&cluster, &config, "a")?;
    let (sturdy, frail) = (cluster.join("sturdy")?, cluster.join("frail")?);
    for node in [&sturdy, &frail] {
        node.wait_until_open()?;
    }
    thread::scope(|scope| -> Result<()> {
        let others = scope.spawn(|| nothing_of_others_is_lost_in_fifty_verifications(&cluster));
        let fails = scope.spawn(|| {
            a_node_without_its_label_is_closed_if_it_fails(&cluster, &frail)?;
            a_node_that_was_restarted_is_closed_if_it_fails(&cluster, &frail)
        });
        a_node_without_its_label_is_verified_again_and_stays_open(&cluster, &sturdy)?;
        a_node_that_was_restarted_is_verified_again_and_stays_open(&cluster, &sturdy)?;
        done(fails)?;
        let on_reboot =
            |value: &str| controller.reload(&config.clone().set("nodeManagement.onReboot", value));
        on_reboot("close")?;
        a_node_that_was_restarted_is_closed_at_once_if_that_is_asked_for(&cluster, &sturdy)?;
        on_reboot("ignore")?;
        a_restart_is_ignored_if_that_is_asked_for(&cluster, &sturdy, &frail)?;
        done(others)
    })
}

fn a_node_without_its_label_is_verified_again_and_stays_open(cluster: &Cluster, node: &Node) -> Result<()> {
    let gate = node.gate_log()?;
    let before = node.state()?;
    node.remove_label()?;
    wait_for_another_verdict(cluster, node, &before, "verified")?;
    assert!(node.is_verified()?, "the label is back");
    assert_eq!(gate.so_far()?, ["open"]);
    Ok(())
}

fn a_node_without_its_label_is_closed_if_it_fails(cluster: &Cluster, node: &Node) -> Result<()> {
    let gate = node.gate_log()?;
    node.machine()?.inject(Fault::Dns)?;
    let before = node.state()?;
    node.remove_label()?;
    wait_for_another_verdict(cluster, node, &before, "failed")?;
    is_closed_for(cluster, node, "DnsTimeout")?;
    assert_eq!(gate.so_far()?, ["open", "closed"]);
    opens_once_fixed(cluster, node)
}

fn a_node_that_was_restarted_is_verified_again_and_stays_open(cluster: &Cluster, node: &Node) -> Result<()> {
    let gate = node.gate_log()?;
    let before = node.state()?;
    node.machine()?.reboot()?;
    wait_for_another_verdict(cluster, node, &before, "verified")?;
    assert_ne!(node.state()?["boot"], before["boot"]);
    assert!(node.is_verified()?);
    assert_eq!(gate.so_far()?, ["open"]);
    Ok(())
}

fn a_node_that_was_restarted_is_closed_if_it_fails(cluster: &Cluster, node: &Node) -> Result<()> {
    let gate = node.gate_log()?;
    let before = node.state()?;
    let pause = |value: Option<&str>| node.annotate("node-ready/paused", value);
    // A machine has no fault when it starts, so it has to be broken before it is verified.
    pause(Some("true"))?;
    node.machine()?.reboot()?;
    node.machine()?.inject(Fault::Dns)?;
    pause(None)?;
    wait_for_another_verdict(cluster, node, &before, "failed")?;
    is_closed_for(cluster, node, "DnsTimeout")?;
    assert_eq!(gate.so_far()?, ["open", "closed"]);
    opens_once_fixed(cluster, node)
}

/// The verification of the other node afterwards shows that the product has seen the restart of this one.
fn a_restart_is_ignored_if_that_is_asked_for(cluster: &Cluster, node: &Node, other: &Node) -> Result<()> {
    cluster.eventually("its last worker to be gone", || Ok(node.workers()?.is_empty()))?;
    let (state, writes) = (node.state()?, node.writes()?.len());
    node.machine()?.reboot()?;
    assert_ne!(node.object()?["status"]["nodeInfo"]["bootID"], state["boot"]);
    a_node_without_its_label_is_verified_again_and_stays_open(cluster, other)?;
    assert_eq!(node.state()?, state);
    assert_eq!(node.writes()?.len(), writes);
    assert!(node.is_verified()?);
    Ok(())
}

fn a_node_that_was_restarted_is_closed_at_once_if_that_is_asked_for(
    cluster: &Cluster,
    node: &Node,
) -> Result<()> {
    let gate = node.gate_log()?;
    let before = node.state()?;
    node.machine()?.reboot()?;
    wait_for_another_verdict(cluster, node, &before, "verified")?;
    assert_eq!(gate.so_far()?, ["open", "closed", "open"]);
    let events = node.events()?;
    let closed = events.iter().find(|event| event.reason == "Closed").context("no event about it")?;
    assert_eq!(closed.note, "closed: the node was restarted and has to be verified again");
    Ok(())
}

/// Waits until a worker that was created since has come to this verdict.
fn wait_for_another_verdict(cluster: &Cluster, node: &Node, before: &Value, phase: &str) -> Result<()> {
    cluster.wait_for(&format!("{} to be {phase} once more", node.name()), || {
        let state = node.state()?;
        ensure!(state["serial"].as_u64() > before["serial"].as_u64() && state["phase"] == phase, "{state}");
        Ok(Some(()))
    })
}

fn is_closed_for(cluster: &Cluster, node: &Node, cause: &str) -> Result<()> {
    assert_eq!((node.is_open()?, node.label(LABEL)?), (false, None));
    cluster.wait_for("the condition to say why", || {
        let condition = node.condition()?.context("there is none")?;
        ensure!(condition.status == "False" && condition.reason == cause, "{condition:?}");
        Ok(Some(()))
    })
}

fn opens_once_fixed(cluster: &Cluster, node: &Node) -> Result<()> {
    node.machine()?.heal()?;
    cluster.eventually(&format!("{} to be verified", node.name()), || node.is_verified())
}

/// Uses simulated nodes, five at a time, so that all controllers write to the same few.
fn nothing_of_others_is_lost_in_fifty_verifications(cluster: &Cluster) -> Result<()> {
    let crowd = Crowd::new(cluster.api());
    let mut all = Vec::new();
    thread::scope(|scope| {
        let others: Vec<_> = (0..Crowd::SIZE).map(|_| scope.spawn(|| crowd.edit_nodes())).collect();
        let verified = (0..10).try_for_each(|round| {
            let nodes = cluster.fakes(&format!("fake-{round}"), 5)?;
            all.extend(crowd.turn_to(&nodes)?);
            nodes.iter().try_for_each(|node| {
                cluster.eventually(&format!("{} to be verified", node.name()), || node.is_verified())
            })
        });
        crowd.go_home();
        others.into_iter().map(done).chain([verified]).collect::<Result<()>>()
    })?;
    let (writes, time) = (crowd.writes.load(Ordering::SeqCst), crowd.since.elapsed());
    assert!(writes >= 20 * time.as_secs(), "only {writes} writes in {time:?}");
    assert_eq!(all.len(), 50);
    all.iter().try_for_each(|node| lock(node).look(cluster.api()))
}

/// Other controllers, which change their own taints and label on nodes.
struct Crowd<'c> {
    api: &'c Api,
    nodes: Mutex<Vec<Arc<Mutex<Tended>>>>,
    is_over: AtomicBool,
    steps: AtomicU64,
    writes: AtomicU64,
    since: Instant,
}

impl<'c> Crowd<'c> {
    const SIZE: usize = 6;
    /// The time for each write, over all controllers.
    const PACE: Duration = Duration::from_millis(40);

    fn new(api: &'c Api) -> Self {
        let (nodes, is_over) = (Mutex::default(), AtomicBool::default());
        Self {
            api,
            nodes,
            is_over,
            steps: AtomicU64::default(),
            writes: AtomicU64::default(),
            since: Instant::now(),
        }
    }

    /// Leaves the previous nodes alone and turns to these.
    fn turn_to(&self, nodes: &[Node]) -> Result<Vec<Arc<Mutex<Tended>>>> {
        let tended = |node: &Node| Ok(Arc::new(Mutex::new(Tended { object: node.object()? })));
        let nodes: Vec<_> = nodes.iter().map(tended).collect::<Result<_>>()?;
        lock(&self.nodes).clone_from(&nodes);
        Ok(nodes)
    }

    fn go_home(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn edit_nodes(&self) -> Result<()> {
        while !self.is_over.load(Ordering::SeqCst) {
            let nodes = lock(&self.nodes).clone();
            let written = u128::from(self.writes.load(Ordering::SeqCst));
            let is_early = written * Self::PACE.as_millis() >= self.since.elapsed().as_millis();
            if is_early || nodes.is_empty() {
                thread::sleep(Self::PACE);
                continue;
            }
            let step = self.steps.fetch_add(1, Ordering::SeqCst);
            let node = &nodes[usize::try_from(step)? % nodes.len()];
            if lock(node).edit(self.api, step)? {
                self.writes.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(())
    }
}

/// A node as the other controllers last saw it.
struct Tended {
    object: Value,
}

impl Tended {
    /// Writes all taints of the node back, unless it has changed since. Returns true if they were written.
    fn edit(&mut self, api: &Api, step: u64) -> Result<bool> {
        let mut wanted = self.object.clone();
        change(&mut wanted, step);
        let patch = json!({
            "metadata": { "resourceVersion": wanted["metadata"]["resourceVersion"], "labels": wanted["metadata"]["labels"] },
            "spec": { "taints": wanted["spec"]["taints"] },
        });
        match api.patch(&self.path(), &patch) {
            Ok(written) => self.object = written,
            Err(err) if err.to_string().contains(": 409: ") => {
                self.look(api)?;
                return Ok(false);
            }
            Err(err) => return Err(err),
        }
        Ok(true)
    }

    /// Reads it again. No matter what has changed it, the taints and the label of the other controllers must be there,
    /// in order.
    fn look(&mut self, api: &Api) -> Result<()> {
        let object = api.get(&self.path())?;
        let (now, before) = (of_others(&object), of_others(&self.object));
        ensure!(now == before, "{} has {now:?} instead of {before:?}", self.path());
        self.object = object;
        Ok(())
    }

    fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.object["metadata"]["name"].as_str().unwrap_or_default())
    }
}

/// Inserts a taint somewhere in the list, changes one, or removes one; and counts in a label.
fn change(node: &mut Value, step: u64) {
    node["metadata"]["labels"][COUNTER] = json!(step.to_string());
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let own = taints.iter().position(is_of_others);
    match (step % 4, own) {
        (2, Some(own)) => taints[own]["value"] = json!(step.to_string()),
        (3, Some(own)) => drop(taints.remove(own)),
        _ => {
            let place = usize::try_from(step).unwrap_or_default() % (taints.len() + 1);
            taints.insert(place, json!({ "key": format!("{OTHERS}{step}"), "effect": "NoSchedule" }));
        }
    }
    node["spec"]["taints"] = taints.into();
}

fn of_others(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten().filter(|taint| is_of_others(taint));
    let taints = taints.map(|taint| format!("{}={}:{}", taint["key"], taint["value"], taint["effect"]));
    taints.chain([node["metadata"]["labels"][COUNTER].to_string()]).collect()
}

fn is_of_others(taint: &Value) -> bool {
    taint["key"].as_str().is_some_and(|key| key.starts_with(OTHERS))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn done<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

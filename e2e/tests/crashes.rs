//! The controller crashes at each point of a node's life. Its successor finishes what was begun, with one worker for
//! each attempt; and the result of a worker for one node says nothing about a later node of the same name.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use knr_e2e::{Cluster, Controller, Hold, Node, PATIENCE, Write};
use serde_json::{Value, json};

/// A controller gets little done in this time: a single request takes longer.
const STEP: Duration = Duration::from_millis(2);

#[test]
fn a_crash_loses_nothing_and_repeats_nothing() -> Result<()> {
    let cluster = Cluster::start("crashes", 5)?;
    let hold = Hold::start(&cluster)?;
    let mut controller = Controller::start(&cluster, &hold.config(), "a")?;
    controller.wait_until_leading()?;
    let nodes: Vec<_> = (1..=5).map(|number| cluster.node(&format!("n{number}"))).collect::<Result<_>>()?;
    let [unheard, pending, running, ended, newcomer] = &nodes[..] else { bail!("there are five") };

    dies_before_it_can_act(&mut controller, &hold, [unheard, pending, running, ended])?;
    for node in [unheard, pending, ended] {
        is_finished(&cluster, node)?;
    }
    dies_after_the_patch(&mut controller, &hold, running, newcomer)?;
    is_finished(&cluster, running)?;
    for node in [unheard, pending, running, ended] {
        had_one_worker(node)?;
    }
    a_namesake_is_not_opened_by_an_old_result(&cluster, &controller, &hold, newcomer)?;
    assert_eq!(count(&cluster.writes()?, "create", "pods"), 6, "five nodes and a namesake");
    Ok(())
}

/// Dies while one node has no worker yet, one has a pending worker, one has a running worker, and the worker of one has
/// passed. The running worker still runs when the controller is back.
fn dies_before_it_can_act(
    controller: &mut Controller,
    hold: &Hold,
    [unheard, pending, running, ended]: [&Node; 4],
) -> Result<()> {
    signal_kubelet(pending, "STOP")?;
    [pending, running, ended].into_iter().try_for_each(Node::close)?;
    let waiting = pending.wait_for_worker("Pending")?;
    let at_work = running.wait_for_worker("Running")?;
    ended.wait_for_worker("Running")?;
    controller.freeze()?;
    unheard.close()?;
    hold.release(ended)?;
    ended.wait_for_worker("Succeeded")?;
    for node in [unheard, pending, running, ended] {
        assert!(!node.is_open()?, "{}", node.name());
    }
    assert!(unheard.workers()?.is_empty());
    begin_again(controller)?;

    ended.wait_until_open()?;
    unheard.wait_for_worker("Running")?;
    assert_eq!(uid(&pending.wait_for_worker("Pending")?), uid(&waiting));
    assert_eq!(uid(&running.wait_for_worker("Running")?), uid(&at_work));
    signal_kubelet(pending, "CONT")?;
    hold.release(unheard)?;
    hold.release(pending)
}

/// The worker of the node is running. Once it has ended, the controller continues in small steps, and is killed as soon
/// as the API server has carried out the patch that opens the node. By then it may or may not have created the worker
/// of the other node.
fn dies_after_the_patch(controller: &mut Controller, hold: &Hold, node: &Node, other: &Node) -> Result<()> {
    controller.freeze()?;
    hold.release(node)?;
    node.wait_for_worker("Succeeded")?;
    other.close()?;
    let deadline = Instant::now() + PATIENCE;
    while !node.is_open()? {
        ensure!(Instant::now() < deadline, "node {} does not open", node.name());
        controller.thaw()?;
        thread::sleep(STEP);
        controller.freeze()?;
    }
    begin_again(controller)
}

/// A node is deleted and created again under the same name, in the same boot, while its worker runs. Then the worker
/// passes.
fn a_namesake_is_not_opened_by_an_old_result(
    cluster: &Cluster,
    controller: &Controller,
    hold: &Hold,
    old: &Node,
) -> Result<()> {
    old.wait_for_worker("Running")?;
    assert_eq!(count(&old.writes()?, "create", "pods"), 1);
    // The garbage collector would remove the worker with its node; this test is about a late garbage collector.
    signal_controller_manager(cluster, "STOP")?;
    controller.freeze()?;
    let namesake = namesake_of(&old.object()?);
    old.delete()?;
    cluster.api().create("/api/v1/nodes", &namesake)?;
    let new = cluster.node("n5")?;
    assert_ne!(new.uid(), old.uid());
    hold.release(old)?;
    old.wait_for_worker("Succeeded")?;
    hold.hold(&new)?;
    assert_eq!(boot(&new)?, namesake["status"]["nodeInfo"]["bootID"]);
    controller.thaw()?;

    cluster.eventually("the new node's own worker to run", || {
        let workers = new.workers()?;
        let is_own = |worker: &&Value| worker["metadata"]["annotations"]["node-ready/node-uid"] == new.uid();
        Ok(workers.iter().find(is_own).context("there is none")?["status"]["phase"] == "Running")
    })?;
    assert!(!new.is_open()?, "{}", cluster.story());
    assert_eq!(new.state()?, Value::Null);
    signal_controller_manager(cluster, "CONT")?;
    hold.release(&new)?;
    is_finished(cluster, &new)?;
    had_one_worker(&new)?;
    assert_eq!(new.state()?["uid"], new.uid());
    Ok(())
}

/// Kills the controller and starts another.
fn begin_again(controller: &mut Controller) -> Result<()> {
    controller.kill()?;
    controller.restart()?;
    controller.wait_until_leading()
}

/// The node is open, its condition says so, and its worker is removed.
fn is_finished(cluster: &Cluster, node: &Node) -> Result<()> {
    cluster.eventually(&format!("{} to be verified and tidied up", node.name()), || {
        let condition = node.condition()?.context("it has no condition")?;
        Ok(node.is_verified()? && condition.status == "True" && node.workers()?.is_empty())
    })
}

/// Its whole life took one worker, which was its first attempt, and one patch, which opened it.
fn had_one_worker(node: &Node) -> Result<()> {
    let (writes, state) = (node.writes()?, node.state()?);
    let (workers, patches) = (count(&writes, "create", "pods"), count(&writes, "patch", "nodes"));
    let counted = json!([workers, state["serial"], state["attempt"], patches]);
    assert_eq!(counted, json!([1, 1, 1, 1]), "{}: {writes:#?}", node.name());
    Ok(())
}

/// The number of writes of a kind that were carried out.
fn count(writes: &[Write], verb: &str, resource: &str) -> usize {
    let same = writes.iter().filter(|write| write.verb == verb && write.resource == resource);
    same.filter(|write| write.succeeded()).count()
}

fn uid(object: &Value) -> &Value {
    &object["metadata"]["uid"]
}

fn boot(node: &Node) -> Result<Value> {
    Ok(node.object()?["status"]["nodeInfo"]["bootID"].take())
}

/// The same node again, as far as a client can set its fields.
fn namesake_of(node: &Value) -> Value {
    let metadata = &node["metadata"];
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": metadata["name"], "labels": metadata["labels"], "annotations": metadata["annotations"] },
        "spec": node["spec"],
        "status": node["status"],
    })
}

/// A stopped kubelet leaves its pods pending.
fn signal_kubelet(node: &Node, signal: &str) -> Result<()> {
    let machine = node.machine()?;
    let pid = machine.exec(["pidof", "kubelet"])?;
    machine.exec(["kill", &format!("-{signal}"), pid.trim()])?;
    Ok(())
}

fn signal_controller_manager(cluster: &Cluster, signal: &str) -> Result<()> {
    let components = cluster.components()?;
    let manager = components.iter().find(|component| component.name == "kube-controller-manager");
    let pid = manager.and_then(|manager| manager.pid).context("it is not running")?;
    let status = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status()?;
    ensure!(status.success(), "kill: {status}");
    Ok(())
}

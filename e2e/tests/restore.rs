//! etcd is restored from a backup while the controller runs. Versions go back, nodes are again what they were, and some were
//! never there. The same controller finds its way, and touches nothing that is in order.

use anyhow::Result;
use knr_e2e::{Cluster, Config, Controller, GATE, Hold, Node, Write};
use lab::Component;
use serde_json::Value;

/// How many versions are undone: more than come by themselves while the test runs.
const UNDONE: u64 = 1500;
const NOTICED: &str = "The API server's store was restored from a backup; everything is read again";

#[test]
fn the_controller_finds_its_way_after_a_restore() -> Result<()> {
    let cluster = Cluster::start("restore", 2)?;
    let hold = Hold::start(&cluster)?;
    let (open, changed) = (cluster.node("n1")?, cluster.node("n2")?);
    hold.release(&open)?;
    hold.release(&changed)?;
    let controller = Controller::start(&cluster, &deleting(hold.config()), "a")?;
    let pid = controller.program().pid();
    open.close()?;
    open.wait_until_open()?;
    cluster.eventually("its worker to be gone", || Ok(open.workers()?.is_empty()))?;
    let in_order = touches(&open)?;

    versions_go_back(&cluster, &controller, &hold, &changed)?;
    versions_overtake_the_watch_before_it_notices(&cluster, &controller, &hold, &changed)?;

    assert!(open.is_verified()?);
    assert_eq!(touches(&open)?, in_order, "it has been open all the time");
    nothing_is_deleted(&cluster)?;
    assert_eq!((controller.program().pid(), controller.program().exit_status()), (pid, None));
    Ok(())
}

/// A node was closed when the backup was made, and is open since. Another has joined since, and its worker runs.
fn versions_go_back(cluster: &Cluster, controller: &Controller, hold: &Hold, changed: &Node) -> Result<()> {
    back_up_while_closed(cluster, controller, changed)?;
    let undone = cluster.join("n3")?;
    undone.wait_for_worker("Running")?;
    cluster.advance_to(cluster.version()? + UNDONE)?;
    let heard_last = cluster.version()?;

    cluster.restore()?;
    assert!(!undone.exists()? && !changed.is_open()?, "{}", cluster.story());
    assert_eq!(cluster.hear_from(heard_last)?, Value::Null, "that version is yet to come");
    let new = cluster.add_node("n4").taint(GATE.parse()?).switch_on()?;
    // Kubelets wait for that version, too, unless they are started again.
    hold.release(&undone)?;
    undone.machine()?.reboot()?;
    changed.machine()?.reboot()?;
    new.wait_until_ready()?;
    let new = cluster.node("n4")?;
    hold.release(&new)?;
    for node in [&new, &undone, changed] {
        cluster.eventually(&format!("{} to be verified", node.name()), || node.is_verified())?;
    }
    assert!(cluster.version()? < heard_last, "a watch may have gone on where it was");
    assert_eq!(times_noticed(controller)?, 1);
    Ok(())
}

/// The controller sleeps until the cluster has come further than it was before. So nothing tells it at first, and what is as it
/// was before stays unknown until everything is listed.
fn versions_overtake_the_watch_before_it_notices(
    cluster: &Cluster,
    controller: &Controller,
    hold: &Hold,
    changed: &Node,
) -> Result<()> {
    back_up_while_closed(cluster, controller, changed)?;
    cluster.eventually("its worker to be gone", || Ok(changed.workers()?.is_empty()))?;
    controller.freeze()?;
    let heard_last = cluster.version()?;
    cluster.restore()?;
    assert!(!changed.is_open()? && cluster.version()? < heard_last, "{}", cluster.story());
    cluster.advance_to(heard_last + 1)?;
    controller.thaw()?;

    let new = cluster.join("n5")?;
    hold.release(&new)?;
    cluster.eventually("the new node to be verified", || new.is_verified())?;

    // Watches have to begin with a list, the kubelets' as well.
    cluster.compact()?;
    cluster.restart(Component::ApiServer)?;
    cluster.eventually("the node of the backup to be verified", || changed.is_verified())
}

/// Makes a backup of a cluster in which this node is closed. Afterwards it is opened.
fn back_up_while_closed(cluster: &Cluster, controller: &Controller, node: &Node) -> Result<()> {
    controller.freeze()?;
    node.close()?;
    cluster.back_up()?;
    controller.thaw()?;
    node.wait_until_open()
}

/// With every right that a configuration can give, so that it could do harm.
fn deleting(config: Config) -> Config {
    config.set("nodeManagement.deleteFailedNodes", true).set("limits.deletion.maxPercent", 100)
}

/// What was done to a node, apart from reports about it.
fn touches(node: &Node) -> Result<Vec<Write>> {
    let mut writes = node.writes()?;
    writes.retain(|write| write.resource != "nodes/status");
    Ok(writes)
}

fn nothing_is_deleted(cluster: &Cluster) -> Result<()> {
    let mut writes = cluster.writes()?;
    writes.retain(|write| write.verb == "delete" && write.resource != "pods");
    assert_eq!(writes, []);
    Ok(())
}

fn times_noticed(controller: &Controller) -> Result<usize> {
    Ok(controller.log()?.iter().filter(|line| line.to_string().contains(NOTICED)).count())
}

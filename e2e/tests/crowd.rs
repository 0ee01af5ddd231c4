//! A thousand nodes whose workers never start, and a newcomer that must not wait for them.

use anyhow::{Result, ensure};
use knr_core::action::worker_name;
use knr_e2e::{Cluster, Config, Controller, LONG_GRACE, NAMESPACE};
use lab::Tool;

const STUCK: usize = 1000;
/// Fewer than there are nodes: each slot has to be handed on, because its worker does not start.
const SLOTS: usize = 100;
const PASSED: &str = r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#;

#[test]
fn a_thousand_workers_that_never_start_do_not_delay_a_newcomer() -> Result<()> {
    let cluster =
        Cluster::start_with("crowd", |lab| lab.nodes(0).flag(Tool::KubeControllerManager, LONG_GRACE))?;
    cluster.fake_workers_end(0, PASSED)?;
    cluster.idle_nodes("stuck", STUCK)?;
    let config = Config::new()
        .set("limits.maxConcurrentWorkers", SLOTS)
        .set("worker.pendingTimeoutSeconds", 600)
        // It is the only controller.
        .set("leaderElection.enabled", false);
    let _controller = Controller::start(&cluster, &config, "a")?;
    for count in [STUCK / 2, STUCK] {
        cluster.wait_for("every node to have a worker, though there are fewer slots", || {
            let pending = pending(&cluster)?;
            ensure!(pending >= count, "{pending} wait to be started");
            Ok(Some(()))
        })?;
    }

    let before = cluster.writes()?.len();
    let newcomer = &cluster.fakes("newcomer", 1)?[0];
    newcomer.wait_until_open()?;
    assert!(newcomer.is_verified()?);
    let since: Vec<_> = cluster.writes()?.into_iter().skip(before).collect();
    let made: Vec<&str> = since
        .iter()
        .filter(|write| write.verb == "create" && write.resource == "pods")
        .map(|write| write.name.as_str())
        .collect();
    assert_eq!(
        made,
        [worker_name(&newcomer.uid().into())],
        "no other worker was made before or after its own"
    );
    assert_eq!(pending(&cluster)?, STUCK, "no other worker was removed for it");
    Ok(())
}

/// The number of workers that nothing has started.
fn pending(cluster: &Cluster) -> Result<usize> {
    let pods = cluster.api().list(&format!("/api/v1/namespaces/{NAMESPACE}/pods"))?;
    Ok(pods.iter().filter(|pod| pod["status"]["phase"] == "Pending").count())
}

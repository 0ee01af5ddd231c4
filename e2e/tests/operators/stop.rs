//! The shutdown of a controller.

use anyhow::{Result, ensure};
use knr_e2e::{Cluster, Config, Controller, Outage, PATIENCE};

/// After one signal it shuts down in order, which a silent API server can delay; after a second one it ends at once.
pub(crate) fn in_order_or_at_once(cluster: &Cluster) -> Result<()> {
    // It tries to release its lease for 20 seconds.
    let config = Config::new()
        .set("leaderElection.leaseDurationSeconds", 60)
        .set("leaderElection.renewDeadlineSeconds", 40)
        .set("leaderElection.retryPeriodSeconds", 1);
    let controller = Controller::start(cluster, &config, "slow")?;
    controller.wait_until_ready()?;
    controller.wait_until_leading()?;
    controller.cut_off(Outage::Silent);
    controller.program().terminate()?;
    let answer = cluster.wait_for("the controller to say that it stops", || {
        let answer = controller.get("/readyz")?;
        Ok((answer.status != 200).then_some(answer))
    })?;
    assert_eq!((answer.status, answer.body.as_str()), (503, "not ready: stopping\n"));
    assert_eq!(controller.get("/livez")?.status, 200, "it is not dead yet");
    ensure!(controller.program().exit_status().is_none(), "it did not wait");
    controller.program().terminate()?;
    let end = controller.program().wait(PATIENCE)?;
    assert_eq!(end.code(), Some(1));
    let log = controller.log()?;
    assert_eq!(
        log.last().map(|line| &line["msg"]),
        Some(&"received a second signal to stop; exiting at once".into()),
        "{log:#?}"
    );
    Ok(())
}

//! A running controller as its operators see it: health, metrics, logs, and edits of its configuration.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use fs_err as fs;
use knr_e2e::{Cluster, Config, Controller, Metrics, in_checkout};
use lab::Fault;
use serde_json::{Value, json};

pub(crate) fn metrics_logs_and_edits(cluster: &Cluster) -> Result<()> {
    let config = Config::new()
        .set("logging.level", "trace")
        .set("worker.checkTimeoutSeconds", 1)
        .set("worker.retries", 0)
        .set("reconciliation.maxRetries", 1)
        // A failed node stays failed for the duration of this test.
        .set("reconciliation.retryDelaySeconds", 3600)
        .set("reconciliation.maxRetryDelaySeconds", 3600);
    let controller = Controller::start(cluster, &config, "watched")?;
    controller.wait_until_ready()?;
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = controller.get(path)?;
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"), "{path}");
    }
    let (fit, unfit) = (cluster.node("n2")?, cluster.node("n3")?);
    unfit.machine()?.inject(Fault::Dns)?;
    fit.close()?;
    unfit.close()?;
    fit.wait_until_open()?;
    unfit.wait_for_state("attempt", 1)?;
    unfit.machine()?.heal()?;
    cluster.eventually("all that was seen to be counted", || {
        let pods = controller.metrics()?.value("kube_node_ready_worker_pods", &[]);
        Ok(pods == Some(0.0))
    })?;
    the_metrics_have_the_names_and_labels_that_dashboards_know(&controller)?;
    the_log_is_one_object_a_line_and_holds_no_secret(&controller)?;
    an_edit_by_a_swapped_link_comes_into_force(cluster, &controller, &config)?;
    assert!(controller.terminate()?.success());
    assert_eq!(cluster.leader()?, None, "the lease is given back");
    Ok(())
}

fn the_metrics_have_the_names_and_labels_that_dashboards_know(controller: &Controller) -> Result<()> {
    let text = controller.get("/metrics")?.body;
    let metrics = Metrics::parse(&text);
    for (series, value) in [
        (r#"kube_node_ready_verification_status{node="n2",status="verified"}"#, 1.0),
        (r#"kube_node_ready_verification_status{node="n3",status="failed"}"#, 1.0),
        (r#"kube_node_ready_verifications_total{status="success"}"#, 1.0),
        (r#"kube_node_ready_verifications_total{status="failed"}"#, 1.0),
        (r#"kube_node_ready_worker_pods{status="running"}"#, 0.0),
        (r#"kube_node_ready_worker_pods{status="succeeded"}"#, 0.0),
        (r#"kube_node_ready_retry_attempts_total{node="n3"}"#, 1.0),
        ("kube_node_ready_controller_healthy", 1.0),
        ("kube_node_ready_controller_reconcile_errors_total", 0.0),
    ] {
        assert_eq!(metrics.series().get(series), Some(&value), "{series} in\n{text}");
    }
    let took = metrics.series().get(r#"kube_node_ready_verification_duration_seconds{node="n2"}"#);
    assert!(took.is_some_and(|took| *took > 0.0), "{text}");

    let reference = fs::read_to_string(in_checkout("docs/metrics.md"))?;
    let (of_controller, _) = reference.split_once("## DaemonSet mode").context("no such part")?;
    let described: BTreeSet<_> =
        of_controller.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let served: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let without_end: BTreeSet<_> =
        described.iter().map(|name| name.strip_suffix("_total").unwrap_or(name)).collect();
    assert_eq!(served, without_end, "docs/metrics.md describes what is served");
    Ok(())
}

fn the_log_is_one_object_a_line_and_holds_no_secret(controller: &Controller) -> Result<()> {
    let lines = controller.log()?;
    for line in &lines {
        let line = line.as_object().with_context(|| format!("{line} is no object"))?;
        for key in ["level", "timestamp", "msg"] {
            assert!(line.get(key).is_some_and(Value::is_string), "{line:?} has no {key}");
        }
        assert!(
            !line.values().any(|value| value.is_object() || value.is_array()),
            "{line:?} has fields below the top"
        );
    }
    assert!(lines.iter().any(|line| line["level"] == "trace"));
    assert!(
        lines.iter().any(|line| line["node"] == "n3" && line["level"] == "warn" && line["phase"] == "failed")
    );

    let kubeconfig: Value = serde_json::from_str(&fs::read_to_string(controller.kubeconfig())?)?;
    let token = kubeconfig["users"][0]["user"]["token"].as_str().context("there is a token")?;
    let log = fs::read_to_string(controller.program().log())?;
    assert!(log.contains("/api/v1/nodes"), "requests are seen");
    for part in token.split('.') {
        assert!(!log.contains(part), "a part of the token is in the log");
    }
    Ok(())
}

/// Edits the file as the kubelet updates a mounted `ConfigMap`: `config.yaml` and `..data` are symlinks, and only the
/// latter is replaced.
fn an_edit_by_a_swapped_link_comes_into_force(
    cluster: &Cluster,
    controller: &Controller,
    config: &Config,
) -> Result<()> {
    let folder = controller.kubeconfig().parent().context("it is in a folder")?.to_owned();
    let file = folder.join("config.yaml");
    publish(&folder, "..1", &fs::read_to_string(&file)?)?;
    fs::remove_file(&file)?;
    symlink("..data/config.yaml", &file)?;
    let reloads = |outcome: &str| -> Result<Option<f64>> {
        Ok(controller.metrics()?.value("kube_node_ready_config_reloads_total", &[("outcome", outcome)]))
    };

    let asks_for_more = config.clone().set("gates", json!([{ "name": "cni", "namespaces": ["default"] }]));
    publish(&folder, "..2", &asks_for_more.text())?;
    cluster.eventually("the edit to be rejected", || Ok(reloads("rejected")? == Some(1.0)))?;
    let log = controller.log()?;
    let permissions = log.iter().find_map(|line| line["permissions"].as_str()).context("no line about it")?;
    assert!(permissions.contains("watch pods in namespace default"), "{permissions}");

    let edited = config
        .clone()
        .set("reconciliation.paused", true)
        .set("logging.level", "info")
        // These cannot change while it runs.
        .set("metrics.port", 17_998)
        .set("health.port", 17_998);
    publish(&folder, "..3", &edited.text())?;
    cluster.eventually("the edit to be in force", || Ok(reloads("ok")? == Some(1.0)))?;
    let (log, paused) = cluster.wait_for("the controller to pause", || {
        let log = controller.log()?;
        let is_paused = |state: &str| state.contains("reconciliation.paused");
        let paused = |line: &Value| line["node"] == "n3" && line["state"].as_str().is_some_and(is_paused);
        Ok(log.iter().position(paused).map(|at| (log, at)))
    })?;
    assert!(
        !log[paused..].iter().any(|line| line["level"] == "trace"),
        "the level is an edit like any other"
    );
    let fixed = log.iter().rfind(|line| line["keys"].is_string()).context("nothing is fixed")?;
    assert_eq!(fixed["keys"], "metrics.port, health.port");
    Ok(())
}

/// Writes a version of the file and atomically makes it the current one.
fn publish(folder: &Path, version: &str, text: &str) -> Result<()> {
    fs::create_dir(folder.join(version))?;
    fs::write(folder.join(version).join("config.yaml"), text)?;
    symlink(version, folder.join("..data_tmp"))?;
    Ok(fs::rename(folder.join("..data_tmp"), folder.join("..data"))?)
}

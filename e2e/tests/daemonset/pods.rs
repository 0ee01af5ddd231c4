//! The pods of the `DaemonSet`: their state, logs and metrics.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use knr_e2e::{Cluster, Metrics, NAMESPACE, Node, get};
use serde_json::Value;

const COMPONENT: &str = "app.kubernetes.io/component%3Ddaemonset";

fn all(cluster: &Cluster) -> Result<Vec<Value>> {
    cluster.api().list(&format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={COMPONENT}"))
}

/// Waits until a pod runs on a node, and returns it.
pub(crate) fn pod_of(cluster: &Cluster, node: &Node<'_>) -> Result<Value> {
    cluster.wait_for(&format!("a pod on {}", node.name()), || {
        Ok(all(cluster)?.into_iter().find(|pod| {
            pod["spec"]["nodeName"] == node.name()
                && pod["status"]["phase"] == "Running"
                && pod["metadata"]["deletionTimestamp"].is_null()
        }))
    })
}

/// Waits until a pod exists for a node, in any state, or has already done its work.
pub(crate) fn wait_for_a_pod_to_be_made(cluster: &Cluster, node: &Node<'_>) -> Result<()> {
    cluster.eventually(&format!("a pod for {}", node.name()), || {
        Ok(!all(cluster)?.is_empty() || node.is_verified()?)
    })
}

/// Kills all pods at once, without letting them finish anything.
pub(crate) fn kill_all_pods(cluster: &Cluster) -> Result<()> {
    let selector = "app.kubernetes.io/component=daemonset";
    let now = ["--force", "--grace-period=0", "--wait=false"];
    cluster
        .kubectl(["-n", NAMESPACE, "delete", "pods", "--selector", selector].into_iter().chain(now))
        .map(drop)?;
    Ok(())
}

/// Waits until there are none.
pub(crate) fn no_pods_are_left(cluster: &Cluster) -> Result<()> {
    cluster.wait_for("all pods to be gone", || {
        let pods = all(cluster)?;
        let names: Vec<&Value> = pods.iter().map(|pod| &pod["metadata"]["name"]).collect();
        ensure!(names.is_empty(), "there are still {names:?}");
        Ok(Some(()))
    })
}

/// The log of a pod, line by line.
pub(crate) fn log(cluster: &Cluster, pod: &Value) -> Result<Vec<Value>> {
    let name = pod["metadata"]["name"].as_str().context("no name")?;
    let text = cluster.kubectl(["-n", NAMESPACE, "logs", name])?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// The metrics of a pod.
pub(crate) fn metrics(cluster: &Cluster, pod: &Value) -> Result<Metrics> {
    let name = pod["metadata"]["name"].as_str().context("no name")?;
    let pod = cluster.api().get(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}"))?;
    let address = pod["status"]["podIP"].as_str().context("no address yet")?;
    Ok(Metrics::parse(&get(SocketAddr::new(address.parse()?, 8080), "/metrics")?.body))
}

/// How often a check has failed.
pub(crate) fn failures(cluster: &Cluster, pod: &Value, check: &str) -> Result<f64> {
    let node = pod["spec"]["nodeName"].as_str().context("no node")?;
    let labels = [("node", node), ("check", check)];
    Ok(metrics(cluster, pod)?.value("node_check_failures_total", &labels).unwrap_or(0.0))
}

//! Checks that the pods of an installation are ready.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::{Doctor, Finding, Mode, PAUSE};
use crate::api::Failed;
use crate::calls::Call;
use crate::observe::{ContainerStatus, Meta};

/// The time that pods which were just started get to become ready.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Pod {
    pub(super) metadata: Meta,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    conditions: Option<Vec<Condition>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

/// A condition of a pod or of a node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

impl Condition {
    /// Returns whether the condition of this type has this status.
    pub(super) fn says(conditions: Option<&Vec<Self>>, kind: &str, status: &str) -> bool {
        Self::find(conditions, kind).is_some_and(|condition| condition.status == status)
    }

    fn find<'a>(conditions: Option<&'a Vec<Self>>, kind: &str) -> Option<&'a Self> {
        conditions?.iter().find(|condition| condition.kind == kind)
    }
}

impl Pod {
    /// Pods that have ended or are being deleted say nothing about the installation.
    fn counts(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && !matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    fn is_ready(&self) -> bool {
        Condition::says(self.status.conditions.as_ref(), "Ready", "True")
    }

    /// Returns why the pod is not ready, as reported by the kubelet for a container or by the scheduler for the pod.
    fn why(&self) -> String {
        let Status { conditions, init_container_statuses, container_statuses, .. } = &self.status;
        let containers = init_container_statuses.iter().chain(container_statuses).flatten();
        let container = containers.filter_map(|status| Some((status, status.state.as_ref()?))).find_map(
            |(status, state)| match (&state.waiting, &state.terminated) {
                (Some(waiting), _) if waiting.reason != "PodInitializing" => {
                    Some(describe(&status.name, &waiting.reason, &waiting.message))
                }
                (_, Some(end)) if end.exit_code != 0 => {
                    let code = format!("exit code {}", end.exit_code);
                    Some(describe(&status.name, &end.reason, &code))
                }
                _ => None,
            },
        );
        let unscheduled = || {
            let scheduled = Condition::find(conditions.as_ref(), "PodScheduled")?;
            (scheduled.status == "False")
                .then(|| describe("scheduler", &scheduled.reason, &scheduled.message))
        };
        let unready = || {
            let ready =
                Condition::find(conditions.as_ref(), "Ready").filter(|ready| !ready.reason.is_empty())?;
            Some(describe("kubelet", &ready.reason, &ready.message))
        };
        container.or_else(unscheduled).or_else(unready).unwrap_or_else(|| "no reason is given".to_owned())
    }
}

fn describe(who: &str, reason: &str, message: &str) -> String {
    let message = if message.is_empty() { String::new() } else { format!(" ({message})") };
    format!("{who}: {reason}{message}")
}

impl Doctor {
    pub(super) async fn pods(&self) -> Result<Finding, Failed> {
        let until = self.deadline.min(Instant::now() + PATIENCE);
        loop {
            let found = self.pods_now().await?;
            if found.is_ok() || Instant::now() + PAUSE >= until {
                return Ok(found);
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the pods that count, in the order of their names.
    pub(super) async fn own_pods(&self) -> Result<Vec<Pod>, Failed> {
        let selector = self.installation.selector.to_string();
        let pods: Vec<Pod> = self.api.all(Call::ListOwnPods, &selector, self.limit()).await?;
        Ok(pods.into_iter().filter(Pod::counts).collect())
    }

    async fn pods_now(&self) -> Result<Finding, Failed> {
        let pods = self.own_pods().await?;
        if pods.is_empty() {
            return self.no_pods().await;
        }
        let not_ready: Vec<&Pod> = pods.iter().filter(|pod| !pod.is_ready()).collect();
        if not_ready.is_empty() {
            return Ok(Finding::good(format!("pods: {}, all ready", pods.len())));
        }
        let lines = not_ready.iter().map(|pod| format!("{}: {}", pod.metadata.name, pod.why())).collect();
        let found = Finding::failed(format!("{} of {} pods are not ready", not_ready.len(), pods.len()));
        let namespace = &self.installation.namespace;
        Ok(found.lines(lines).next(format!("kubectl -n {namespace} describe pod, and kubectl logs")))
    }

    /// The `DaemonSet` has no pods left once all nodes are verified.
    async fn no_pods(&self) -> Result<Finding, Failed> {
        let verified = match self.installation.mode {
            Mode::Controller => 0,
            Mode::Daemonset => self.verified_nodes().await?,
        };
        if verified > 0 {
            return Ok(Finding::good(format!("no pod is left to do anything; nodes verified: {verified}")));
        }
        let (selector, namespace) = (&self.installation.selector, &self.installation.namespace);
        let found = Finding::failed(format!("there is no pod {selector} in namespace {namespace}"));
        let next = format!("kubectl -n {namespace} get events says why none was made");
        Ok(found.next(next))
    }
}

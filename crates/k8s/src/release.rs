//! Opens all gates on uninstall, because nothing would open them later.
//!
//! ```text
//!   wait for pods that would close nodes again --> remove workers --> open nodes until none is closed
//! ```
//!
//! It is idempotent, so it may run any number of times.

mod fate;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use knr_core::config::{Config, Selector, Taint};
use knr_core::engine::Outcome;
use knr_core::ids::{NodeName, WorkerRef};
use knr_core::names;
use knr_core::patch::PatchBuilder;
use knr_core::view::{Condition, ConditionStatus, NodeView};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::{Instant, sleep};

use crate::act::{BY_US, outcome};
use crate::api::{Api, Body, Failed, Target};
use crate::calls::Call;
use crate::objects;
use crate::observe::{SlimNode, SlimWorker};
use crate::read::SlimPod;

pub use fate::{Closed, Ending, Fate, ReleaseError, Step, Summary};
pub use plan::Plan;

/// Nodes that are opened at the same time.
const AT_ONCE: usize = 16;
/// The pause before anything is read or tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// A pod that still exists this long after it was deleted is on a node that does not respond. If the chart created its
/// service account, the account is gone by now, and the pod cannot close nodes any more. With another account it could,
/// should its node come back. Still, it would be worse to leave all nodes closed because one is lost.
const LONG_GONE: Duration = Duration::from_mins(1);
/// The time to pause, to open nodes again and to read them once more.
const ROUND: Duration = Duration::from_secs(3);
const PUT_BACK: &str = "the taint is put back again and again";
const TOO_LATE: &str = "it joined when no time was left";
const REASON: &str = "Released";
const MESSAGE: &str = "opened without a verdict, because kube-node-ready was uninstalled";

/// The parameters of a release.
pub struct Release {
    /// The API server.
    pub api: Api,
    /// The configuration that defines the gates.
    pub config: Config,
    /// Selects the pods that would close nodes again. They must be gone first.
    pub selector: Selector,
    /// The wall-clock time, for the condition.
    pub now: Timestamp,
    /// Nothing is done after this.
    pub deadline: Instant,
}

impl Release {
    /// Opens everything, and reports each step as it happens. A dry run only determines what there is to do.
    pub async fn run(&self, mut report: impl FnMut(&Step)) -> Result<Ending, ReleaseError> {
        if self.config.reconciliation.dry_run {
            return Ok(Ending::Planned(self.plan().await?));
        }
        self.wait(&mut report).await?;
        let mut summary =
            Summary { workers_left: self.remove_workers(&mut report).await?, ..Summary::default() };
        self.open_all(&mut summary, &mut report).await?;
        Ok(Ending::Released(summary))
    }

    /// Waits until no pod is left that would close nodes again.
    async fn wait(&self, report: &mut impl FnMut(&Step)) -> Result<(), ReleaseError> {
        let began = Instant::now();
        let mut reported = Vec::new();
        loop {
            let running = self.running().await?.into_iter();
            let (going, staying): (Vec<_>, Vec<_>) =
                running.partition(|pod| pod.metadata.deletion_timestamp.is_some());
            let are_lost = staying.is_empty() && began.elapsed() >= LONG_GONE;
            let names: Vec<String> = going.into_iter().chain(staying).map(|pod| pod.metadata.name).collect();
            if names.is_empty() {
                return Ok(());
            }
            if are_lost {
                report(&Step::Abandoned(names));
                return Ok(());
            }
            if !self.has_time() {
                return Err(ReleaseError::StillThere(names));
            }
            if names != reported {
                report(&Step::Waiting(names.clone()));
                reported = names;
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the pods that would close nodes again.
    async fn running(&self) -> Result<Vec<SlimPod>, ReleaseError> {
        let mut pods: Vec<SlimPod> = self.list(Call::ListOwnPods, &self.selector.to_string()).await?;
        pods.retain(|pod| !is_finished(pod));
        Ok(pods)
    }

    /// Removes all workers. Returns the names of those that could not be removed, and why.
    async fn remove_workers(
        &self,
        report: &mut impl FnMut(&Step),
    ) -> Result<Vec<(String, String)>, ReleaseError> {
        let mut left = Vec::new();
        for id in self.workers().await? {
            match self.remove(&id).await {
                Ok(()) => report(&Step::WorkerRemoved(id.name)),
                Err(failed) => left.push((id.name, failed.to_string())),
            }
        }
        Ok(left)
    }

    /// Returns the workers that are not being deleted yet.
    async fn workers(&self) -> Result<Vec<WorkerRef>, ReleaseError> {
        let labels = names::WORKER_LABELS.map(|(key, value)| format!("{key}={value}")).join(",");
        let workers: Vec<SlimWorker> = self.list(Call::ListWorkers, &labels).await?;
        let staying = workers.iter().filter(|worker| worker.metadata.deletion_timestamp.is_none());
        Ok(staying.filter_map(|worker| worker.identity().map(|(id, _)| id)).collect())
    }

    async fn remove(&self, worker: &WorkerRef) -> Result<(), Failed> {
        let options = objects::deletion(&worker.uid, None);
        loop {
            let target = Target::named(&worker.name);
            let sent =
                self.api.send::<_, IgnoredAny>(Call::DeleteWorker, target, Body::Json(&options), self.soon());
            match sent.await {
                Ok(_) => return Ok(()),
                // It is gone, or another pod has its name by now, which can only be somebody else's.
                Err(failed) if matches!(failed.code(), Some(404 | 409)) => return Ok(()),
                Err(failed) if self.is_worth_another_try(&failed) => sleep(PAUSE).await,
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Opens all nodes, and repeats that until none is closed: more may have joined, and taints may be put back.
    async fn open_all(
        &self,
        summary: &mut Summary,
        report: &mut impl FnMut(&Step),
    ) -> Result<(), ReleaseError> {
        let mut opened = BTreeSet::new();
        let (mut closed, without_gate) = self.closed().await?;
        summary.without_gate = without_gate;
        while !closed.is_empty() {
            let mut fates = stream::iter(closed).map(|node| self.open(node)).buffer_unordered(AT_ONCE);
            while let Some((node, fate)) = fates.next().await {
                match &fate {
                    Fate::Opened(_) => _ = opened.insert(node.clone()),
                    Fate::Gone => {}
                    Fate::Closed(closed) => summary.closed.push(closed.clone()),
                }
                report(&Step::Node(node, fate));
            }
            if !summary.closed.is_empty() {
                break;
            }
            closed = self.closed().await?.0;
            if Instant::now() + ROUND >= self.deadline {
                for closed in closed.iter().map(|node| self.given_up(node, &opened)) {
                    report(&Step::Node(closed.node.clone(), Fate::Closed(closed.clone())));
                    summary.closed.push(closed);
                }
                break;
            }
            if !closed.is_empty() {
                sleep(PAUSE).await;
            }
        }
        for closed in &summary.closed {
            opened.remove(&closed.node);
        }
        summary.opened = opened.len();
        Ok(())
    }

    /// Returns the result for a node for which no time is left.
    fn given_up(&self, node: &NodeView, opened: &BTreeSet<NodeName>) -> Closed {
        let why = if opened.contains(&node.id.name) { PUT_BACK } else { TOO_LATE };
        Closed { node: node.id.name.clone(), taints: self.gates_on(node), why: why.to_owned() }
    }

    /// Returns the nodes that have a gate, and the number of nodes that have none.
    async fn closed(&self) -> Result<(Vec<NodeView>, usize), ReleaseError> {
        let nodes: Vec<SlimNode> = self.list(Call::ListNodes, "").await?;
        let count = nodes.len();
        let has_gate = |node: &NodeView| !self.gates_on(node).is_empty();
        let closed: Vec<NodeView> = nodes.into_iter().map(NodeView::from).filter(has_gate).collect();
        let without_gate = count - closed.len();
        Ok((closed, without_gate))
    }

    /// Opens one node. If it has changed, it is read again.
    async fn open(&self, mut node: NodeView) -> (NodeName, Fate) {
        let (name, taints) = (node.id.name.clone(), self.gates_on(&node));
        loop {
            let failed = match self.open_as_seen(&node).await {
                Ok(()) => return (name, Fate::Opened(taints)),
                Err(failed) => failed,
            };
            if !self.is_worth_another_try(&failed) {
                let closed =
                    Closed { node: name.clone(), taints: self.gates_on(&node), why: failed.to_string() };
                return (name, Fate::Closed(closed));
            }
            sleep(PAUSE).await;
            match self.api.node(&name, self.soon()).await {
                Ok((None, _)) => return (name, Fate::Gone),
                Ok((Some(now), _)) if self.gates_on(&now).is_empty() => return (name, Fate::Opened(taints)),
                Ok((Some(now), _)) => node = now,
                Err(failed) => tracing::debug!(node = %name, error = %failed, "the node cannot be read"),
            }
        }
    }

    /// Sets the condition first: once the taint is off, the node is not revisited.
    async fn open_as_seen(&self, node: &NodeView) -> Result<(), Failed> {
        let target = Target { name: Some(node.id.name.as_str()), query: BY_US, ..Target::default() };
        if let Some(patch) = self.condition(node) {
            let body = Body::StrategicMerge(&patch);
            match self.api.send::<_, IgnoredAny>(Call::PatchNodeStatus, target, body, self.soon()).await {
                Ok(_) => {}
                Err(failed) if self.is_worth_another_try(&failed) => return Err(failed),
                Err(error) => tracing::warn!(node = %node.id.name, %error, "the condition cannot be set"),
            }
        }
        let patch = PatchBuilder::new(node).take_off(self.gates()).build();
        let body = Body::JsonPatch(&patch);
        self.api.send::<_, IgnoredAny>(Call::PatchNode, target, body, self.soon()).await?;
        Ok(())
    }

    /// Returns a patch for the condition of a node that is opened without a pass.
    fn condition(&self, node: &NodeView) -> Option<serde_json::Value> {
        let known = node.condition.as_ref()?;
        let mut verification = self.config.node_management.taints.iter();
        let is_unverified = verification.any(|taint| node.position(taint).is_some());
        let condition = Condition {
            status: ConditionStatus::Unknown,
            reason: REASON.to_owned(),
            message: MESSAGE.to_owned(),
        };
        (is_unverified && *known != condition)
            .then(|| objects::condition(&node.id, &condition, Some(known.status), self.now))
    }

    /// Returns the taints of all gates.
    fn gates(&self) -> impl Iterator<Item = &Taint> {
        let startup = self.config.gates.iter().map(|gate| &gate.taint);
        self.config.node_management.taints.iter().chain(startup)
    }

    fn gates_on(&self, node: &NodeView) -> Vec<Taint> {
        self.gates().filter(|taint| node.position(taint).is_some()).cloned().collect()
    }

    /// Lists everything that matches a selector. If a page cannot be read, the list starts over from the first page.
    async fn list<T: DeserializeOwned>(&self, call: Call, selector: &str) -> Result<Vec<T>, ReleaseError> {
        loop {
            let limit = self.soon().duration_since(Instant::now());
            match self.api.all(call, selector, limit).await {
                Err(failed) if self.is_worth_another_try(&failed) => sleep(PAUSE).await,
                done => return done.map_err(|failed| ReleaseError::Failed { call, failed }),
            }
        }
    }

    /// Returns the deadline of a request that is sent now.
    fn soon(&self) -> Instant {
        self.deadline.min(Instant::now() + self.config.kubernetes.request_timeout())
    }

    fn has_time(&self) -> bool {
        Instant::now() + PAUSE < self.deadline
    }

    fn is_worth_another_try(&self, failed: &Failed) -> bool {
        let may_pass = match outcome(failed) {
            Outcome::Done(_) => false,
            // The continue token of a list has expired, or a webhook could not be called.
            Outcome::Refused(_) => failed.code().is_some_and(|code| code == 410 || code >= 500),
            Outcome::Conflict | Outcome::Unavailable | Outcome::Unknown => true,
        };
        may_pass && self.has_time()
    }
}

/// A pod that has ended cannot close nodes any more.
fn is_finished(pod: &SlimPod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

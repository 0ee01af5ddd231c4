//! Simulated nodes and their workers, by the thousand.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use knr_core::config::Config;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::api::{Api, MERGE_PATCH, STRATEGIC_PATCH};
use crate::mirror::{Mirror, SeenNode, SeenPod};
use crate::objects::{self, NAMESPACE};

/// The list of all nodes.
pub(crate) const NODES: &str = "/api/v1/nodes?timeoutSeconds=3600";
/// The list of all workers.
pub(crate) const WORKERS: &str = "/api/v1/namespaces/bench/pods?timeoutSeconds=3600&labelSelector=\
    app.kubernetes.io%2Fname%3Dkube-node-ready%2Capp.kubernetes.io%2Fcomponent%3Dworker";
/// The number of the bench's own requests in flight at once.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_mins(3);
/// In addition, for each node.
const PATIENCE_FOR_A_NODE: Duration = Duration::from_millis(60);
/// By then kwok runs every pod that it has noticed.
const NUDGE: Duration = Duration::from_secs(40);
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The nodes, and a watch on them.
pub(crate) struct Fleet {
    pub(crate) api: Api,
    pub(crate) nodes: Mirror<SeenNode>,
    pub(crate) size: usize,
}

/// The worker of a node, by name.
pub(crate) type Pods = BTreeMap<String, String>;

impl Fleet {
    /// Starts without nodes.
    pub(crate) fn new(api: Api) -> Self {
        let nodes = Mirror::start(api.clone(), NODES);
        Self { api, nodes, size: 0 }
    }

    /// How long any step may take for all nodes.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE + PATIENCE_FOR_A_NODE * u32::try_from(self.size).unwrap_or(u32::MAX)
    }

    /// Adds nodes until there are this many, and waits until they are Ready.
    pub(crate) async fn grow(&mut self, size: usize) -> Result<()> {
        let numbers = std::mem::replace(&mut self.size, size)..size;
        let api = &self.api;
        each(
            numbers.clone(),
            |number| async move { api.create("/api/v1/nodes", &objects::node(number)).await },
        )
        .await?;
        let all_fresh = |nodes: &BTreeMap<String, SeenNode>| {
            let is_ready = |number| nodes.get(&objects::node_name(number)).is_some_and(SeenNode::is_ready);
            numbers.clone().all(is_ready).then_some(())
        };
        self.nodes.wait("all nodes to be Ready", self.patience(), all_fresh).await
    }

    /// Resets every node to what it was when it joined, and removes all workers.
    pub(crate) async fn reset(&self) -> Result<()> {
        self.api.delete(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await?;
        self.until_no_pod().await?;
        let api = &self.api;
        each(0..self.size, |number| async move {
            let path = format!("/api/v1/nodes/{}", objects::node_name(number));
            api.patch(&format!("{path}/status"), STRATEGIC_PATCH, &objects::reset_status()).await?;
            api.patch(&path, MERGE_PATCH, &objects::reset()).await
        })
        .await?;
        let all_fresh = |nodes: &BTreeMap<String, SeenNode>| {
            (nodes.len() == self.size && nodes.values().all(SeenNode::is_fresh)).then_some(())
        };
        self.nodes.wait("all nodes to be as they were", self.patience(), all_fresh).await
    }

    /// Waits until the last pod is gone.
    pub(crate) async fn until_no_pod(&self) -> Result<()> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?limit=1");
        let gone = async {
            while !self.api.get::<List>(&path).await?.items.is_empty() {
                sleep(LOOK_AGAIN).await;
            }
            Ok(())
        };
        timeout(self.patience(), gone).await.context("workers do not go")?
    }

    /// Creates the worker of every node, as the product would.
    pub(crate) async fn make_workers(&self, config: &Config) -> Result<()> {
        let uids: Vec<(usize, String)> = {
            let nodes = self.nodes.look();
            let uid = |number| Some((number, nodes.get(&objects::node_name(number))?.metadata.uid.clone()));
            (0..self.size).filter_map(uid).collect()
        };
        let (api, path) = (&self.api, &format!("/api/v1/namespaces/{NAMESPACE}/pods"));
        each(uids, |(number, uid)| async move {
            let (name, boot) = (objects::node_name(number), objects::boot_id(number));
            api.create(path, &objects::worker(&name, &uid, &boot, config)).await
        })
        .await
    }

    /// Waits until there are this many workers and all of them run, whoever created them.
    pub(crate) async fn running_workers(&self, count: usize) -> Result<Pods> {
        let pods = Mirror::<SeenPod>::start(self.api.clone(), WORKERS);
        let all_run = |pods: &BTreeMap<String, SeenPod>| {
            (pods.len() == count && pods.values().all(SeenPod::is_running))
                .then(|| pods.iter().map(|(node, pod)| (node.clone(), pod.metadata.name.clone())).collect())
        };
        let began = Instant::now();
        loop {
            let all = pods.wait("all workers to run", NUDGE, all_run).await;
            if all.is_ok() || began.elapsed() > self.patience() {
                return all;
            }
            self.nudge(&pods).await?;
        }
    }

    /// Occasionally kwok never runs a pod, for unknown reasons. A change to the pod makes kwok notice it.
    async fn nudge(&self, pods: &Mirror<SeenPod>) -> Result<()> {
        let waiting: Vec<String> = {
            let pods = pods.look();
            pods.values().filter(|pod| !pod.is_running()).map(|pod| pod.metadata.name.clone()).collect()
        };
        eprintln!("{} pods do not run yet and are shown to kwok again", waiting.len());
        let change = &json!({ "metadata": { "annotations": { "shown": "again" } } });
        each(waiting, |pod| async move {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}");
            self.api.patch(&path, MERGE_PATCH, change).await
        })
        .await
    }

    /// Ends all workers, as fast as possible.
    pub(crate) async fn end_workers(&self, pods: &Pods) -> Result<()> {
        let api = &self.api;
        each(pods.values(), |pod| async move { end(api, pod).await }).await
    }

    /// Ends workers one after another, and returns when the API server had accepted each end, by node.
    pub(crate) async fn end_workers_at(
        &self,
        pods: &Pods,
        every: Duration,
    ) -> Result<BTreeMap<String, Instant>> {
        let (mut ticks, mut ends) = (interval(every), JoinSet::new());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for (node, pod) in pods.clone() {
            ticks.tick().await;
            let api = self.api.clone();
            ends.spawn(async move { end(&api, &pod).await.map(|()| (node, Instant::now())) });
        }
        ends.join_all().await.into_iter().collect()
    }

    /// Waits until every node is open, and returns when each one opened.
    pub(crate) async fn openings(&self) -> Result<BTreeMap<String, Instant>> {
        self.nodes
            .wait("every gate to open", self.patience(), |nodes| {
                nodes.iter().map(|(name, node)| Some((name.clone(), node.opened_at?))).collect()
            })
            .await
    }

    /// Waits until every node shows a verdict.
    pub(crate) async fn conditions(&self) -> Result<()> {
        let all_are_judged = |nodes: &BTreeMap<String, SeenNode>| {
            nodes.values().all(|node| node.judged_at.is_some()).then_some(())
        };
        self.nodes.wait("every condition", self.patience(), all_are_judged).await
    }
}

#[derive(Deserialize)]
struct List {
    items: Vec<IgnoredAny>,
}

async fn end(api: &Api, pod: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/status");
    api.patch(&path, MERGE_PATCH, &objects::end_of_worker()).await
}

async fn each<T, F>(items: impl IntoIterator<Item = T>, work: impl Fn(T) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    stream::iter(items).map(work).buffer_unordered(AT_ONCE).try_collect::<()>().await
}

//! The objects that a watch shows, with the times at which their states were first seen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use knr_core::names;
use kube::core::WatchEvent;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::api::Api;

/// A broken watch is restarted after this long.
const PAUSE: Duration = Duration::from_millis(200);
/// Changes are examined in batches: there are hundreds a second, each examination covers thousands of objects, and the
/// processor is shared with the subject. The time at which something was seen is recorded at once.
const TOGETHER: Duration = Duration::from_millis(50);

/// An object, as far as the bench needs it.
pub(crate) trait Seen: DeserializeOwned + Clone + Send + 'static {
    /// Its key: the name of the node.
    fn key(&self) -> &str;
    /// Its resource version.
    fn version(&self) -> &str;
    /// Records what happened since the object was last seen.
    fn follows(&mut self, before: Option<Self>, now: Instant);
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) uid: String,
    resource_version: String,
}

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SeenNode {
    pub(crate) metadata: Meta,
    spec: NodeSpec,
    status: NodeStatus,
    /// When it was first seen Ready.
    #[serde(skip)]
    pub(crate) ready_at: Option<Instant>,
    /// When it was first seen without the gate that it had before.
    #[serde(skip)]
    pub(crate) opened_at: Option<Instant>,
    /// When it was first seen with a verdict as a condition.
    #[serde(skip)]
    pub(crate) judged_at: Option<Instant>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

impl SeenNode {
    pub(crate) fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|it| it.r#type == "Ready" && it.status == "True")
    }

    pub(crate) fn is_gated(&self) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == names::UNVERIFIED_TAINT)
    }

    /// Returns true if it is Ready and has the gate, no other taint, and no condition of the product.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_ready() && self.is_gated() && self.spec.taints.len() == 1 && self.condition().is_none()
    }

    /// Returns true if its condition shows that it was verified. Before that, a node that waits for long shows what it
    /// waits for.
    fn is_judged(&self) -> bool {
        self.condition().is_some_and(|condition| condition.status == "True")
    }

    fn condition(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|it| it.r#type == names::CONDITION)
    }
}

impl Seen for SeenNode {
    fn key(&self) -> &str {
        &self.metadata.name
    }

    fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn follows(&mut self, before: Option<Self>, now: Instant) {
        let ready_before = before.as_ref().and_then(|it| it.ready_at);
        self.ready_at = ready_before.or_else(|| self.is_ready().then_some(now));
        if self.is_judged() {
            self.judged_at = before.as_ref().and_then(|it| it.judged_at).or(Some(now));
        }
        if !self.is_gated() {
            let was_gated = before.as_ref().is_some_and(Self::is_gated);
            self.opened_at = if was_gated { Some(now) } else { before.and_then(|it| it.opened_at) };
        }
    }
}

/// A worker pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SeenPod {
    pub(crate) metadata: Meta,
    spec: PodSpec,
    status: PodStatus,
    /// When its container was first seen to have ended.
    #[serde(skip)]
    pub(crate) ended_at: Option<Instant>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    terminated: Option<IgnoredAny>,
}

impl SeenPod {
    pub(crate) fn is_running(&self) -> bool {
        self.status.phase == "Running"
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.status.container_statuses.iter().any(|container| container.state.terminated.is_some())
    }
}

impl Seen for SeenPod {
    fn key(&self) -> &str {
        &self.spec.node_name
    }

    fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn follows(&mut self, before: Option<Self>, now: Instant) {
        let before = before.filter(|it| it.metadata.uid == self.metadata.uid);
        self.ended_at = before.and_then(|it| it.ended_at).or_else(|| self.has_ended().then_some(now));
    }
}

type Objects<T> = BTreeMap<String, T>;

/// All objects of a list, as a watch shows them. The watch ends with this handle.
pub(crate) struct Mirror<T> {
    objects: Arc<Mutex<Objects<T>>>,
    changes: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl<T: Seen> Mirror<T> {
    /// Starts the watch; `path` is that of the list, with a query.
    pub(crate) fn start(api: Api, path: &str) -> Self {
        let objects = Arc::new(Mutex::default());
        let (sender, changes) = watch::channel(0);
        let task = tokio::spawn(follow(api, path.to_owned(), Arc::clone(&objects), sender));
        Self { objects, changes, task }
    }

    /// The objects that are known now.
    pub(crate) fn look(&self) -> MutexGuard<'_, Objects<T>> {
        lock(&self.objects)
    }

    /// Waits until `found` returns something.
    pub(crate) async fn wait<R>(
        &self,
        what: &str,
        limit: Duration,
        mut found: impl FnMut(&Objects<T>) -> Option<R>,
    ) -> Result<R> {
        let mut changes = self.changes.clone();
        let search = async {
            loop {
                if let Some(found) = found(&self.look()) {
                    return Ok(found);
                }
                changes.changed().await?;
                sleep(TOGETHER).await;
            }
        };
        let story = || format!("waited {} s for {what}", limit.as_secs());
        timeout(limit, search).await.with_context(story)?
    }
}

impl<T> Drop for Mirror<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(objects: &Mutex<T>) -> MutexGuard<'_, T> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow<T: Seen>(
    api: Api,
    path: String,
    objects: Arc<Mutex<Objects<T>>>,
    changed: watch::Sender<u64>,
) {
    let mut version = None;
    loop {
        if let Err(error) = hear(&api, &path, &objects, &changed, &mut version).await {
            eprintln!("the bench's watch of {path} begins again: {error:#}");
            version = None;
        }
        sleep(PAUSE).await;
    }
}

/// Follows one connection, from the beginning or from where the last one ended.
async fn hear<T: Seen>(
    api: &Api,
    path: &str,
    objects: &Mutex<Objects<T>>,
    changed: &watch::Sender<u64>,
    version: &mut Option<String>,
) -> Result<()> {
    let from = match version {
        Some(version) => format!("resourceVersion={version}"),
        None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=".to_owned(),
    };
    let mut events = api.watch::<T>(&format!("{path}&{from}")).await?;
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(mut object) | WatchEvent::Modified(mut object) => {
                let now = Instant::now();
                passed(version, object.version());
                let mut objects = lock(objects);
                object.follows(objects.remove(object.key()), now);
                objects.insert(object.key().to_owned(), object);
            }
            WatchEvent::Deleted(object) => {
                passed(version, object.version());
                lock(objects).remove(object.key());
            }
            WatchEvent::Bookmark(bookmark) => *version = Some(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => bail!("{} ({})", status.message, status.code),
        }
        changed.send_modify(|count| *count += 1);
    }
    Ok(())
}

/// Records the version of an event. The initial events are unordered: until a bookmark ends them, there is no version
/// to resume from.
fn passed(version: &mut Option<String>, now: &str) {
    if let Some(version) = version {
        now.clone_into(version);
    }
}

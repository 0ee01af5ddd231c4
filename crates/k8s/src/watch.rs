//! Watches: a list of everything in a feed, and then all changes, indefinitely.
//!
//! ```text
//!   list (streamed, if the server can) --> changes --> changes --> ...
//!     ^                                       |
//!     |-- the server lost the version --------|   (410: everything is listed again)
//!     |-- a relist was requested -------------|
//!     |-- silence ----------------------------|
//!                       a broken connection --+--> resume from the last version
//! ```
//!
//! Each feed has its own watch with its own backoff, so trouble with one never delays another. A server sends a
//! bookmark about every minute. If nothing arrives for longer, the connection is dead, whatever TCP says, or the server
//! waits for a future version.
//!
//! The latter happens when etcd was restored from a backup, because versions then go back. Every list is a consistent
//! read, which is at least as recent as everything the watch has delivered, however far the server or its cache lags
//! behind. So a list with a lower version is proof of a restore, and all earlier facts are void: [`Fact::Restored`].

mod kinds;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::core::WatchEvent;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use crate::api::{Api, Failed, encoded};
use crate::observe::{self, SlimInitPod, SlimNode, SlimPool, SlimWorker};
use crate::read::List;
use kinds::{Memory, Observed, query, target};
use knr_core::feed::{Feed, ObjectKind};
use knr_core::ids::Version;
use knr_core::world::Fact;

/// The server ends a watch after this many seconds.
const LIFETIME_SECONDS: u32 = 290;
/// A connection without any event for longer than this is dead.
const SILENCE: Duration = Duration::from_secs(100);
/// The timeout of a list request, and of opening a watch.
const OPENING: Duration = Duration::from_secs(30);
/// Objects in one page of a list.
const PAGE: u32 = 200;
/// The time after which a kind that is not installed is looked for again. It is long, because this is the only request
/// while nothing happens, but short enough for a sign of life even if the server cannot be reached for a minute or two.
const ABSENCE: Duration = Duration::from_mins(2);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A connection that lasted this long resets the backoff.
const STEADY: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The annotation of the bookmark that ends the initial list.
const ALL_TOLD: &str = "k8s.io/initial-events-end";

const FORGOTTEN: &str = "the server cannot go on from where the watch was";
/// The cause that a server reports for a future version, if it does not just wait for it.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// Receives the signs of life of a watch.
pub trait Pulse: Send + Sync + 'static {
    /// The server sent something.
    fn heard(&self);
    /// The watch had to restart, for this reason.
    fn restarted(&self, why: &str);
}

/// A watch of one feed.
pub struct Watch<P> {
    /// The API server.
    pub api: Api,
    /// What is watched.
    pub feed: Feed,
    /// Where facts go.
    pub facts: mpsc::Sender<Fact>,
    /// Receives its signs of life.
    pub pulse: P,
    /// Requests a relist.
    pub relist: Arc<Notify>,
}

/// How a connection ended.
enum End {
    /// Normally. The watch resumes from the last version.
    Over,
    /// Everything has to be listed again, for this reason.
    Lost(&'static str),
    /// Somebody asked for everything to be listed again.
    Asked,
    /// The receiver of the facts is gone.
    Closed,
}

/// The position of a watch.
struct Position {
    /// The version to resume from. `None` if a list has to come first.
    version: Option<String>,
    /// The latest version that the server has sent.
    heard: Version,
    streams_lists: bool,
    pause: Duration,
    memory: Memory,
}

impl<P: Pulse> Watch<P> {
    /// Follows the feed until the receiver of the facts is gone.
    pub async fn follow(self) {
        let mut position = Position {
            version: None,
            heard: Version::default(),
            streams_lists: true,
            pause: FIRST_PAUSE,
            memory: Memory::of(&self.feed),
        };
        loop {
            let began = Instant::now();
            let end = self.connect_to(&mut position).await;
            let is_steady = began.elapsed() >= STEADY;
            if is_steady {
                position.pause = FIRST_PAUSE;
            }
            match end {
                Ok(End::Over) if is_steady => {}
                // A server that accepts connections only to close them must not be retried in a tight loop.
                Ok(End::Over) => self.rest(&mut position).await,
                Ok(End::Closed) => return,
                Ok(End::Asked) => position.version = None,
                Ok(End::Lost(why)) => {
                    self.pulse.restarted(why);
                    position.version = None;
                    self.rest(&mut position).await;
                }
                Err(failed) => self.recover(&mut position, failed).await,
            }
            if self.facts.is_closed() {
                return;
            }
        }
    }

    /// The only place that maps a kind to the type of its objects.
    async fn connect_to(&self, position: &mut Position) -> Result<End, Failed> {
        match self.feed.kind() {
            ObjectKind::Nodes => self.connect::<SlimNode>(position).await,
            ObjectKind::Workers => self.connect::<SlimWorker>(position).await,
            ObjectKind::InitPods => self.connect::<SlimInitPod>(position).await,
            ObjectKind::Pools => self.connect::<SlimPool>(position).await,
        }
    }

    async fn recover(&self, position: &mut Position, failed: Failed) {
        match failed.code() {
            _ if is_lost(&failed) => position.version = None,
            // Older servers cannot stream a list, and reject the request.
            Some(400 | 422) if position.version.is_none() && position.streams_lists => {
                tracing::debug!(feed = %self.feed, "the server does not stream lists; pages are read instead");
                position.streams_lists = false;
                return;
            }
            _ => {}
        }
        tracing::warn!(feed = %self.feed, error = %failed, pause = ?position.pause, "the watch broke");
        self.pulse.restarted(&failed.to_string());
        self.rest(position).await;
    }

    /// The API server does not know the kind. That is not an error; it may be installed later.
    async fn wait_for_kind(&self, position: &mut Position, absent: Fact) -> Result<End, Failed> {
        self.pulse.heard();
        (position.version, position.memory) = (None, Memory::of(&self.feed));
        if !self.send([absent]).await {
            return Ok(End::Closed);
        }
        tokio::select! {
            () = tokio::time::sleep(ABSENCE) => Ok(End::Asked),
            () = self.facts.closed() => Ok(End::Closed),
        }
    }

    async fn rest(&self, position: &mut Position) {
        // Between half and all of the pause, so that replicas do not reconnect in step.
        let share = 512 + u32::try_from(RandomState::new().build_hasher().finish() % 512).unwrap_or(0);
        let pause = position.pause * share / 1024;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.facts.closed() => {}
        }
        position.pause = (position.pause * 2).min(LONGEST_PAUSE);
    }

    /// One connection: from the beginning or from where the last one ended.
    async fn connect<T: Observed>(&self, position: &mut Position) -> Result<End, Failed> {
        let end = self.follow_once::<T>(position).await;
        match (&end, T::ABSENT) {
            (Err(failed), Some(absent)) if failed.code() == Some(404) => {
                self.wait_for_kind(position, absent()).await
            }
            _ => end,
        }
    }

    async fn follow_once<T: Observed>(&self, position: &mut Position) -> Result<End, Failed> {
        if position.version.is_none() && !position.streams_lists {
            let (all, version) = self.list::<T>().await?;
            if !self.send(position.listed::<T>(all, version)).await {
                return Ok(End::Closed);
            }
        }
        let base = query(&self.feed);
        let mode = match &position.version {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=".to_owned(),
        };
        let query = format!("{base}{mode}&allowWatchBookmarks=true&timeoutSeconds={LIFETIME_SECONDS}");
        let target = target(&self.feed, &query);
        let events = self.api.watch::<T>(T::WATCH, target, Instant::now() + OPENING).await?;
        self.pulse.heard();
        self.hear(events, position).await
    }

    async fn hear<T: Observed>(
        &self,
        mut events: BoxStream<'static, Result<WatchEvent<T>, Failed>>,
        position: &mut Position,
    ) -> Result<End, Failed> {
        let mut so_far = position.version.is_none().then(BTreeMap::new);
        loop {
            let event = tokio::select! {
                event = timeout(SILENCE, events.next()) => event,
                () = self.relist.notified(), if so_far.is_none() => return Ok(End::Asked),
                () = self.facts.closed() => return Ok(End::Closed),
            };
            let event = match event {
                Err(_) => return Ok(End::Lost("nothing was heard for too long")),
                Ok(None) => return Ok(End::Over),
                Ok(Some(Err(Failed::Unreadable(error)))) => {
                    tracing::warn!(feed = %self.feed, error, "an object cannot be read and is left out");
                    continue;
                }
                Ok(Some(event)) => event?,
            };
            self.pulse.heard();
            let facts = match event {
                WatchEvent::Error(status) => {
                    let failed = Failed::Status(status);
                    return if is_lost(&failed) { Ok(End::Lost(FORGOTTEN)) } else { Err(failed) };
                }
                event => position.learn(event, &mut so_far),
            };
            if !self.send(facts).await {
                return Ok(End::Closed);
            }
        }
    }

    /// Lists everything, page by page.
    async fn list<T: Observed>(&self) -> Result<(Vec<T::View>, String), Failed> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let page = format!("limit={PAGE}&continue={}", encoded(&next));
            let query = format!("{}{page}", query(&self.feed));
            let target = target(&self.feed, &query);
            let list: List<T> = self.api.read(T::LIST, target, Instant::now() + OPENING).await?;
            self.pulse.heard();
            all.extend(list.items.into_iter().filter_map(Observed::view));
            next = list.metadata.next;
            if next.is_empty() {
                return Ok((all, list.metadata.resource_version));
            }
        }
    }

    /// Sends facts. Returns whether the receiver still exists.
    async fn send(&self, facts: impl IntoIterator<Item = Fact>) -> bool {
        for fact in facts {
            if self.facts.send(fact).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Returns whether the server cannot resume from the version of the watch, because it is too old or in the future.
fn is_lost(failed: &Failed) -> bool {
    let Failed::Status(status) = failed else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 410 || causes.into_iter().any(|cause| cause.reason == TOO_LARGE)
}

impl Position {
    /// Takes in a complete list.
    fn listed<T: Observed>(&mut self, all: Vec<T::View>, version: String) -> Vec<Fact> {
        let listed = observe::version(&version);
        let is_restored = listed < self.heard;
        self.heard = listed;
        self.version = Some(version);
        let restored = is_restored.then(|| Fact::Restored(self.memory.feed().clone()));
        restored.into_iter().chain([T::all(all, listed, &mut self.memory)]).collect()
    }

    /// Records that everything up to this version was delivered.
    fn advance(&mut self, version: &str) {
        self.heard = self.heard.max(observe::version(version));
        self.version = Some(version.to_owned());
    }

    /// Takes in an event. Nothing is passed on until the initial list is complete.
    fn learn<T: Observed>(
        &mut self,
        event: WatchEvent<T>,
        so_far: &mut Option<BTreeMap<String, T::View>>,
    ) -> Vec<Fact> {
        let fact = match event {
            WatchEvent::Error(_) => None,
            WatchEvent::Bookmark(bookmark) => {
                let version = bookmark.metadata.resource_version;
                let all_told = bookmark.metadata.annotations.contains_key(ALL_TOLD);
                if let Some(all) = so_far.take_if(|_| all_told) {
                    return self.listed::<T>(all.into_values().collect(), version);
                }
                if so_far.is_none() {
                    self.advance(&version);
                }
                None
            }
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                if let Some(all) = so_far {
                    let uid = object.meta().uid.clone();
                    match object.view() {
                        Some(view) => all.insert(uid, view),
                        None => all.remove(&uid),
                    };
                    return Vec::new();
                }
                self.advance(&object.meta().resource_version);
                object.changed(&mut self.memory)
            }
            WatchEvent::Deleted(object) => {
                if let Some(all) = so_far {
                    all.remove(&object.meta().uid);
                    return Vec::new();
                }
                self.advance(&object.meta().resource_version);
                object.gone(&mut self.memory)
            }
        };
        fact.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;

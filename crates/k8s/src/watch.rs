//! Watches: everything of one kind, from the beginning and for ever.
//!
//! ```text
//!   list (streamed, if the server can) --> changes --> changes --> ...
//!     ^                                       |
//!     |-- the server forgot where we were ----|   (410: everything is listed again)
//!     |-- somebody asks for everything -------|
//!     |-- silence ----------------------------|
//!                       a broken connection --+--> go on from the last version
//! ```
//!
//! Each feed has a watch of its own with a pause of its own, so trouble with one never delays another. A server sends a
//! bookmark about every minute: when nothing at all is heard for longer, the connection is dead, whatever TCP says, or the
//! server waits for a version that is yet to come.
//!
//! The latter happens when etcd was restored from a backup, for then versions go back. Every list is a consistent read, which
//! shows at least what the watch has shown before, however far the server or its cache lags behind. So a list with a lower
//! version is proof of a restore, and everything that is known is worthless: [`Fact::Restored`].

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
use knr_core::feed::{Feed, Kind};
use knr_core::ids::Version;
use knr_core::world::Fact;

/// The server ends a watch after this many seconds.
const LIFETIME_SECONDS: u32 = 290;
/// Silence for longer than this means that the connection is dead.
const SILENCE: Duration = Duration::from_secs(100);
/// A request for a list or for the beginning of a watch is given up after this long.
const OPENING: Duration = Duration::from_secs(30);
/// Objects in one page of a list.
const PAGE: u32 = 200;
/// What is not installed is looked for again after this long. Seldom, for it is all that is asked while nothing happens,
/// but often enough for a sign of life, even if the server is out of reach for a minute or two just then.
const ABSENCE: Duration = Duration::from_mins(2);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A connection that lived this long was a good one.
const STEADY: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The annotation of the bookmark after which everything has been told.
const ALL_TOLD: &str = "k8s.io/initial-events-end";

const FORGOTTEN: &str = "the server cannot go on from where the watch was";
/// How a server says that it has not come to a version yet, where it does not keep silent about it.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// What a watch tells about itself.
pub trait Pulse: Send + Sync + 'static {
    /// Something was heard.
    fn heard(&self);
    /// It had to begin again, and why.
    fn restarted(&self, why: &str);
}

/// A watch of one feed.
pub struct Watch<P> {
    /// Where to.
    pub api: Api,
    /// Of what.
    pub feed: Feed,
    /// Where facts go.
    pub facts: mpsc::Sender<Fact>,
    /// Who wants to know that it lives.
    pub pulse: P,
    /// Asks for everything to be told anew.
    pub relist: Arc<Notify>,
}

/// How a connection came to its end.
enum End {
    /// As it should: go on from where it was.
    Over,
    /// For this reason everything has to be listed again.
    Lost(&'static str),
    /// Somebody asked for everything to be listed again.
    Asked,
    /// Nobody listens any more.
    Closed,
}

/// Where a watch is.
struct Position {
    /// Where to go on. None: a list comes first.
    version: Option<String>,
    /// The latest version of which anything was heard.
    heard: Version,
    streams_lists: bool,
    pause: Duration,
    memory: Memory,
}

impl<P: Pulse> Watch<P> {
    /// Follows until nobody listens any more.
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
                // Whoever takes a connection only to end it would be asked without a pause.
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

    /// The one place that knows which type the objects of a kind have.
    async fn connect_to(&self, position: &mut Position) -> Result<End, Failed> {
        match self.feed.kind() {
            Kind::Nodes => self.connect::<SlimNode>(position).await,
            Kind::Workers => self.connect::<SlimWorker>(position).await,
            Kind::InitPods => self.connect::<SlimInitPod>(position).await,
            Kind::Pools => self.connect::<SlimPool>(position).await,
        }
    }

    async fn recover(&self, position: &mut Position, failed: Failed) {
        match failed.code() {
            _ if is_lost(&failed) => position.version = None,
            // Older servers do not know how to stream a list, and say so.
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

    /// The API server does not know the kind. That is no trouble; it may be installed some day.
    async fn wait_for_kind(&self, position: &mut Position, absent: Fact) -> Result<End, Failed> {
        self.pulse.heard();
        (position.version, position.memory) = (None, Memory::of(&self.feed));
        if !self.tell([absent]).await {
            return Ok(End::Closed);
        }
        tokio::select! {
            () = tokio::time::sleep(ABSENCE) => Ok(End::Asked),
            () = self.facts.closed() => Ok(End::Closed),
        }
    }

    async fn rest(&self, position: &mut Position) {
        // Between half and all of the pause, so that replicas do not come back in step.
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
            if !self.tell(position.listed::<T>(all, version)).await {
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
            if !self.tell(facts).await {
                return Ok(End::Closed);
            }
        }
    }

    /// Everything, page by page.
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

    /// Says whether anybody listens still.
    async fn tell(&self, facts: impl IntoIterator<Item = Fact>) -> bool {
        for fact in facts {
            if self.facts.send(fact).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// The server cannot go on from where the watch was: that is too long ago for it, or has not happened as far as it knows.
fn is_lost(failed: &Failed) -> bool {
    let Failed::Status(status) = failed else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 410 || causes.into_iter().any(|cause| cause.reason == TOO_LARGE)
}

impl Position {
    /// Everything has been listed.
    fn listed<T: Observed>(&mut self, all: Vec<T::View>, version: String) -> Vec<Fact> {
        let listed = observe::version(&version);
        let is_restored = listed < self.heard;
        self.heard = listed;
        self.version = Some(version);
        let restored = is_restored.then(|| Fact::Restored(self.memory.feed().clone()));
        restored.into_iter().chain([T::all(all, listed, &mut self.memory)]).collect()
    }

    /// Everything up to this version has been told.
    fn advance(&mut self, version: &str) {
        self.heard = self.heard.max(observe::version(version));
        self.version = Some(version.to_owned());
    }

    /// Takes an event in. Until everything has been told for the first time, nothing is passed on.
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

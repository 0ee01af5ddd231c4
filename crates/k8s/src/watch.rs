//! Watches: everything of one kind, from the beginning and for ever.
//!
//! ```text
//!   list (streamed, if the server can) --> changes --> changes --> ...
//!     ^                                       |
//!     |-- the server forgot where we were ----|   (410: everything is told anew)
//!     |-- somebody asks for everything -------|
//!         a broken connection, or silence  ---+--> go on from the last version
//! ```
//!
//! Each kind has a watch of its own with a pause of its own, so trouble with one never delays another. A server sends a
//! bookmark about every minute: when nothing at all is heard for longer, the connection is dead, whatever TCP says.

mod feed;

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
use knr_core::world::Fact;

pub use feed::{Feed, Kind};
use feed::{Memory, Observed};

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

/// What a watch tells about itself.
pub trait Pulse: Send + Sync + 'static {
    /// Something was heard.
    fn heard(&self);
    /// It had to begin again, and why.
    fn restarted(&self, why: &str);
}

/// A watch of one kind.
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
    /// As it should, or by silence: go on from where it was.
    Over,
    /// The server does not know any more where we were.
    Forgotten,
    /// Everything is to be told anew.
    Asked,
    /// Nobody listens any more.
    Closed,
}

/// Where a watch is.
struct Position {
    version: Option<String>,
    streams_lists: bool,
    pause: Duration,
    memory: Memory,
}

impl<P: Pulse> Watch<P> {
    /// Follows until nobody listens any more.
    pub async fn follow(self) {
        let mut position = Position {
            version: None,
            streams_lists: true,
            pause: FIRST_PAUSE,
            memory: Memory::of(&self.feed),
        };
        loop {
            let began = Instant::now();
            let end = match self.feed.kind {
                Kind::Nodes => self.connect::<SlimNode>(&mut position).await,
                Kind::Workers => self.connect::<SlimWorker>(&mut position).await,
                Kind::InitPods => self.connect::<SlimInitPod>(&mut position).await,
                Kind::Pools => self.connect::<SlimPool>(&mut position).await,
            };
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
                Ok(End::Forgotten) => {
                    self.pulse.restarted("the server does not know any more where the watch was");
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

    async fn recover(&self, position: &mut Position, failed: Failed) {
        match failed.code() {
            Some(410) => position.version = None,
            // Older servers do not know how to stream a list, and say so.
            Some(400 | 422) if position.version.is_none() && position.streams_lists => {
                tracing::debug!(kind = %self.feed.kind, "the server does not stream lists; pages are read instead");
                position.streams_lists = false;
                return;
            }
            // What is not installed is no trouble; it may be some day.
            Some(404) if self.feed.kind == Kind::Pools => {
                self.pulse.heard();
                (position.version, position.memory) = (None, Memory::of(&self.feed));
                let _ = self.facts.send(Fact::Pools(Vec::new())).await;
                tokio::select! {
                    () = tokio::time::sleep(ABSENCE) => {}
                    () = self.facts.closed() => {}
                }
                return;
            }
            _ => {}
        }
        tracing::warn!(kind = %self.feed.kind, error = %failed, pause = ?position.pause, "the watch broke");
        self.pulse.restarted(&failed.to_string());
        self.rest(position).await;
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
        if position.version.is_none() && !position.streams_lists {
            let (all, version) = self.list::<T>(&position.memory).await?;
            let fact = T::all(all, observe::version(&version), &mut position.memory);
            if !self.tell(Some(fact)).await {
                return Ok(End::Closed);
            }
            position.version = Some(version);
        }
        let base = self.feed.query();
        let mode = match &position.version {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=".to_owned(),
        };
        let query = format!("{base}{mode}&allowWatchBookmarks=true&timeoutSeconds={LIFETIME_SECONDS}");
        let (call, target) = (self.feed.kind.watch_call(), self.feed.target(&query));
        let events = self.api.watch::<T>(call, target, Instant::now() + OPENING).await?;
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
                Err(_) => {
                    self.pulse.restarted("nothing was heard for too long");
                    return Ok(End::Over);
                }
                Ok(None) => return Ok(End::Over),
                Ok(Some(Err(Failed::Unreadable(error)))) => {
                    tracing::warn!(kind = %self.feed.kind, error, "an object cannot be read and is left out");
                    continue;
                }
                Ok(Some(event)) => event?,
            };
            self.pulse.heard();
            let fact = match event {
                WatchEvent::Error(status) if status.code == 410 => return Ok(End::Forgotten),
                WatchEvent::Error(status) => return Err(Failed::Status(status)),
                event => position.learn(event, &mut so_far),
            };
            if !self.tell(fact).await {
                return Ok(End::Closed);
            }
        }
    }

    /// Everything, page by page.
    async fn list<T: Observed>(&self, memory: &Memory) -> Result<(Vec<T::View>, String), Failed> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let page = format!("limit={PAGE}&continue={}", encoded(&next));
            let query = format!("{}{page}", self.feed.query());
            let (call, target) = (self.feed.kind.list_call(), self.feed.target(&query));
            let list: List<T> = self.api.read(call, target, Instant::now() + OPENING).await?;
            self.pulse.heard();
            all.extend(list.items.into_iter().filter_map(|object| object.view(memory)));
            next = list.metadata.next;
            if next.is_empty() {
                return Ok((all, list.metadata.resource_version));
            }
        }
    }

    /// Says whether anybody listens still.
    async fn tell(&self, fact: Option<Fact>) -> bool {
        match fact {
            None => true,
            Some(fact) => self.facts.send(fact).await.is_ok(),
        }
    }
}

impl Position {
    /// Takes an event in. Until everything has been told for the first time, nothing is passed on.
    fn learn<T: Observed>(
        &mut self,
        event: WatchEvent<T>,
        so_far: &mut Option<BTreeMap<String, T::View>>,
    ) -> Option<Fact> {
        match event {
            WatchEvent::Error(_) => None,
            WatchEvent::Bookmark(bookmark) => {
                let version = bookmark.metadata.resource_version;
                let all_told = bookmark.metadata.annotations.contains_key(ALL_TOLD);
                let all = so_far.take_if(|_| all_told);
                let views = all.map(|all| all.into_values().collect());
                let fact = views.map(|all| T::all(all, observe::version(&version), &mut self.memory));
                if so_far.is_none() {
                    self.version = Some(version);
                }
                fact
            }
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                if let Some(all) = so_far {
                    let uid = object.meta().uid.clone();
                    match object.view(&self.memory) {
                        Some(view) => all.insert(uid, view),
                        None => all.remove(&uid),
                    };
                    return None;
                }
                self.version = Some(object.meta().resource_version.clone());
                object.changed(&mut self.memory)
            }
            WatchEvent::Deleted(object) => {
                if let Some(all) = so_far {
                    all.remove(&object.meta().uid);
                    return None;
                }
                self.version = Some(object.meta().resource_version.clone());
                object.gone(&mut self.memory)
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! One controller process: the rules, fed by watches, and the writes it has under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::config::Config;
use knr_core::engine::Engine;
use knr_core::feed::{Feed, Kind};
use knr_core::ids::Version;
use knr_core::policy::Policies;

use crate::writers::Writers;

/// One controller process.
#[derive(Debug)]
pub(crate) struct Replica {
    /// The rules, while the process runs.
    pub(crate) engine: Option<Engine>,
    /// The configuration that the process has taken up.
    pub(crate) config: Arc<Config>,
    /// What it watches, except pools: these are told to it in another way.
    feeds: Arc<[Feed]>,
    /// Whether it leads.
    pub(crate) leading: bool,
    /// How often it was started. What belongs to an earlier life is void.
    pub(crate) life: u32,
    /// How far its clock is off.
    pub(crate) clock: SignedDuration,
    /// Its watches.
    pub(crate) streams: BTreeMap<Feed, Stream>,
    /// Its writes.
    pub(crate) writers: Writers,
    /// When the right to write ends, unless the lease is renewed before.
    pub(crate) writes_until: Option<Timestamp>,
    /// Until when the process stands still.
    pub(crate) frozen_until: Option<Timestamp>,
    /// When it last listed everything.
    pub(crate) listed: Timestamp,
    /// It has learned something since it last decided.
    pub(crate) due: bool,
    /// The earliest time at which it will decide by itself.
    pub(crate) wake: Option<Timestamp>,
}

/// One watch.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// How often it was connected.
    pub(crate) connection: u32,
    /// It is connected.
    pub(crate) connected: bool,
    /// Everything is to be listed once it is connected again.
    pub(crate) relist: bool,
    /// A list of this version is on its way.
    pub(crate) listing: Option<Version>,
    /// The latest change that is on its way.
    pub(crate) sent: Version,
    /// The latest change that has arrived.
    pub(crate) delivered: Version,
    /// Nothing overtakes within one watch.
    pub(crate) last_arrival: Timestamp,
}

impl Replica {
    /// A process that is not running. `main` places are for writes that matter, `spare` ones for the rest.
    #[must_use]
    pub(crate) fn new(config: Arc<Config>, (main, spare): (usize, usize)) -> Self {
        Self {
            engine: None,
            feeds: watched(&config),
            config,
            leading: false,
            life: 0,
            clock: SignedDuration::ZERO,
            streams: BTreeMap::new(),
            writers: Writers::new(main, spare),
            writes_until: None,
            frozen_until: None,
            listed: Timestamp::UNIX_EPOCH,
            due: false,
            wake: None,
        }
    }

    /// The watch of a feed.
    pub(crate) fn stream(&mut self, feed: &Feed) -> &mut Stream {
        self.streams.entry(feed.clone()).or_default()
    }

    /// What the process watches.
    #[must_use]
    pub(crate) fn feeds(&self) -> Arc<[Feed]> {
        Arc::clone(&self.feeds)
    }

    /// Takes up a configuration. Ends watches that are no longer wanted, and says which ones are new.
    pub(crate) fn configure(&mut self, config: Arc<Config>) -> Vec<Feed> {
        let before = std::mem::replace(&mut self.feeds, watched(&config));
        self.config = config;
        for feed in before.iter().filter(|feed| !self.feeds.contains(feed)) {
            let stream = self.streams.entry(feed.clone()).or_default();
            *stream = Stream { connection: stream.connection + 1, relist: true, ..Stream::default() };
        }
        self.feeds.iter().filter(|feed| !before.contains(feed)).cloned().collect()
    }

    /// What this process takes for the time.
    #[must_use]
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        now + self.clock
    }
}

fn watched(config: &Config) -> Arc<[Feed]> {
    Feed::all(&Policies::from(config)).into_iter().filter(|feed| feed.kind() != Kind::Pools).collect()
}

//! One controller process: the rules, fed by watches, and the writes it has in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::action::Action;
use knr_core::config::Config;
use knr_core::engine::Engine;
use knr_core::feed::Feed;
use knr_core::ids::{NodeName, Version};
use knr_core::queue::{Capacity, Queue, QueuedWrite};

use crate::api::Memory;
use crate::writers::Request;

/// One controller process.
#[derive(Debug)]
pub(crate) struct Replica {
    /// The rules, while the process runs.
    pub(crate) engine: Option<Engine>,
    /// The configuration that the process has loaded.
    pub(crate) config: Arc<Config>,
    /// The configurations that it has loaded in this life, by when.
    loaded: BTreeMap<Timestamp, Arc<Config>>,
    /// What it watches.
    feeds: Arc<[Feed]>,
    /// Whether it leads.
    pub(crate) leading: bool,
    /// The number of its life, which grows with every start and crash. Events of an earlier life are void.
    pub(crate) life: u32,
    /// How far its clock is off.
    pub(crate) clock: SignedDuration,
    /// Its watches.
    pub(crate) streams: BTreeMap<Feed, Stream>,
    /// Its writes.
    pub(crate) queue: Queue,
    /// Its orders to close or delete nodes, as long as they wait to be sent.
    pub(crate) harmful: BTreeMap<NodeName, Action>,
    capacity: Capacity,
    /// When the right to write ends, if the lease cannot be renewed at the moment.
    pub(crate) writes_until: Option<Timestamp>,
    /// The time until which the process is frozen.
    pub(crate) frozen_until: Option<Timestamp>,
    /// When it last listed everything.
    pub(crate) listed: Timestamp,
    /// Whether it has learned something since it last decided.
    pub(crate) due: bool,
    /// The earliest time at which it will decide by itself.
    pub(crate) wake: Option<Timestamp>,
}

/// One watch.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The number of its current connection. Whatever belongs to an earlier one is void.
    pub(crate) connection: u32,
    pub(crate) connected: bool,
    /// Whether to list everything once it is connected again.
    pub(crate) relist: bool,
    /// The version of the list that is in flight.
    pub(crate) listing: Option<Version>,
    /// The version of the latest change that was sent.
    pub(crate) sent: Version,
    /// The version of the latest change that has arrived.
    pub(crate) delivered: Version,
    /// When the last change arrives. Later changes do not overtake it.
    pub(crate) last_arrival: Timestamp,
    pub(crate) memory: Memory,
}

impl Replica {
    /// Returns a process that is not running. `main` places are for writes that matter, `spare` ones for the rest.
    #[must_use]
    pub(crate) fn new(config: Arc<Config>, (main, spare): (usize, usize)) -> Self {
        let capacity = Capacity { main, spare };
        Self {
            engine: None,
            feeds: Arc::default(),
            config,
            loaded: BTreeMap::new(),
            leading: false,
            life: 0,
            clock: SignedDuration::ZERO,
            streams: BTreeMap::new(),
            queue: Queue::new(capacity),
            harmful: BTreeMap::new(),
            capacity,
            writes_until: None,
            frozen_until: None,
            listed: Timestamp::UNIX_EPOCH,
            due: false,
            wake: None,
        }
    }

    /// Returns the watch of a feed.
    pub(crate) fn stream(&mut self, feed: &Feed) -> &mut Stream {
        self.streams.entry(feed.clone()).or_default()
    }

    /// Returns the feeds that the process watches.
    #[must_use]
    pub(crate) fn feeds(&self) -> Arc<[Feed]> {
        Arc::clone(&self.feeds)
    }

    /// Starts the process.
    pub(crate) fn start(&mut self, config: Arc<Config>, now: Timestamp) {
        self.engine = Some(Engine::new(&config));
        self.loaded.clear();
        self.keep(config, now);
        self.life += 1;
        self.wake = None;
        self.due = false;
        self.listed = now;
        self.queue = Queue::new(self.capacity);
        self.harmful.clear();
        (self.writes_until, self.frozen_until) = (None, None);
        self.streams.clear();
    }

    fn keep(&mut self, config: Arc<Config>, now: Timestamp) {
        let feeds = self.engine.iter().flat_map(Engine::feeds);
        self.feeds = feeds.cloned().collect();
        self.loaded.insert(now, Arc::clone(&config));
        self.config = config;
    }

    /// Applies a configuration. Ends watches that are no longer wanted, and returns the feeds that are new.
    pub(crate) fn configure(&mut self, config: Arc<Config>, now: Timestamp) -> Vec<Feed> {
        if let Some(engine) = &mut self.engine {
            engine.configure(&config);
        }
        let before = self.feeds();
        self.keep(config, now);
        for feed in before.iter().filter(|feed| !self.feeds.contains(feed)) {
            let stream = self.streams.entry(feed.clone()).or_default();
            *stream = Stream { connection: stream.connection + 1, relist: true, ..Stream::default() };
        }
        self.feeds.iter().filter(|feed| !before.contains(feed)).cloned().collect()
    }

    /// Returns the request for a waiting write.
    pub(crate) fn request(&self, replica: usize, waiting: &QueuedWrite) -> Request {
        let QueuedWrite { order, since, decided, failing } = waiting;
        let (order, since, decided, failing) = (order.clone(), *since, *decided, *failing);
        // Everything that arrives at the same time is taken in before anything is decided.
        let loaded = self.loaded.range(..=decided).next_back();
        let config = Arc::clone(loaded.map_or(&self.config, |(_, config)| config));
        Request { replica, life: self.life, order, decided, since, failing, config }
    }

    /// Returns the time by the clock of this process.
    #[must_use]
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        now + self.clock
    }
}

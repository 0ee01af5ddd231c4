//! The watches of the controllers: lists, changes, and how they break.

use knr_core::feed::{Feed, ObjectKind};
use knr_core::ids::Version;
use knr_core::world::Fact;

use super::{Event, Sim, millis};
use crate::api::News;
use crate::faults::{EventFault, travel};

/// The minimum and maximum pause in milliseconds before a broken watch reconnects.
const PAUSE: (u64, u64) = (500, 8_000);
/// A watch that receives nothing for this many milliseconds lists again.
const SILENCE: u64 = 100_000;

impl Sim {
    /// Lists a feed and watches it from there. A version lower than the last one that the watch has delivered means
    /// that the store was restored from a backup.
    pub(super) fn list(&mut self, id: usize, feed: &Feed, version: Version) {
        let delay = travel(feed.kind(), self.faults.weather(), &mut self.rng);
        let arrival = self.now + millis(delay);
        let life = self.replicas[id].life;
        let stream = self.replicas[id].stream(feed);
        let is_restored = version < stream.delivered;
        stream.connected = true;
        stream.relist = false;
        stream.connection += 1;
        stream.listing = Some(version);
        stream.sent = version;
        stream.last_arrival = arrival;
        let connection = stream.connection;
        self.has_new_streams = true;
        let restored = is_restored.then(|| Fact::Restored(feed.clone()));
        let news = News::All(restored.into_iter().chain([self.api.list(feed, version)]).collect());
        let feed = feed.clone();
        self.push(arrival, Event::Deliver { replica: id, life, connection, feed, version, news });
    }

    /// Lists a feed again, as soon as its watch is connected.
    pub(super) fn relist(&mut self, id: usize, feed: &Feed) {
        if !self.replicas[id].stream(feed).connected {
            self.replicas[id].stream(feed).relist = true;
        } else if self.rng.permille(self.faults.weather().write) {
            self.break_watch(id, feed);
            self.replicas[id].stream(feed).relist = true;
        } else {
            self.list(id, feed, self.api.version());
        }
    }

    fn break_watch(&mut self, id: usize, feed: &Feed) {
        self.note("", format_args!("the watch of {feed} of replica {id} breaks"));
        self.monitor.touched(None);
        let life = self.replicas[id].life;
        let stream = self.replicas[id].stream(feed);
        stream.connected = false;
        stream.connection += 1;
        let pause = self.rng.between(PAUSE.0, PAUSE.1);
        self.at(pause, Event::Reconnect { replica: id, life, feed: feed.clone() });
    }

    /// Breaks all watches: no controller reaches the API server any more.
    pub(super) fn break_all_watches(&mut self) {
        for id in 0..self.replicas.len() {
            for feed in self.replicas[id].feeds().iter() {
                if self.replicas[id].stream(feed).connected {
                    self.break_watch(id, feed);
                }
            }
        }
    }

    /// Sends changes to all watches, in order, unless there is a fault.
    pub(super) fn feed_watches(&mut self) {
        if self.fed == self.api.version() && !self.has_new_streams {
            return;
        }
        self.has_new_streams = false;
        self.fed = self.api.version();
        for id in 0..self.replicas.len() {
            if self.replicas[id].engine.is_none() {
                continue;
            }
            for feed in self.replicas[id].feeds().iter() {
                while self.feed_next(id, feed).is_some() {}
            }
        }
    }

    fn feed_next(&mut self, id: usize, feed: &Feed) -> Option<()> {
        let life = self.replicas[id].life;
        let stream = self.replicas[id].stream(feed);
        if !stream.connected {
            return None;
        }
        let (connection, sent) = (stream.connection, stream.sent);
        let Some(changes) = self.api.changes_after(feed.kind(), sent) else {
            // 410: a stale list was older than what is still there.
            self.list(id, feed, self.api.version());
            return None;
        };
        let change = changes.first()?;
        let version = change.version;
        if !change.is_shown(feed) {
            self.replicas[id].stream(feed).sent = version;
            return Some(());
        }
        let change = change.clone();
        let weather = self.faults.weather();
        if self.rng.permille(weather.watch_breaks) {
            self.break_watch(id, feed);
            return None;
        }
        let fault = self.faults.of_event(self.stats.events, &mut self.rng);
        self.stats.events += 1;
        let delay = travel(feed.kind(), weather, &mut self.rng);
        let stream = self.replicas[id].stream(feed);
        let arrival = (self.now + millis(delay)).max(stream.last_arrival);
        stream.sent = version;
        stream.last_arrival = arrival;
        let copies = match fault {
            None => 1,
            Some(EventFault::Twice) => 2,
            Some(EventFault::Lost) => 0,
        };
        if fault == Some(EventFault::Lost) {
            self.monitor.event_lost(change.object.host(), self.now);
            if feed.kind() == ObjectKind::Pools {
                self.stats.count("NodePool event lost");
            }
        }
        if let Some(fault) = fault {
            self.note("", format_args!("event {} of {feed} to replica {id}: {fault:?}", version.0));
        }
        for _ in 0..copies {
            let (feed, news) = (feed.clone(), News::One(change.clone()));
            self.push(arrival, Event::Deliver { replica: id, life, connection, feed, version, news });
        }
        Some(())
    }

    /// Sends bookmarks to the watches, so that they can resume after a compaction.
    pub(crate) fn send_bookmarks(&mut self) {
        let version = self.api.version();
        for id in 0..self.replicas.len() {
            let life = self.replicas[id].life;
            for feed in self.replicas[id].feeds().iter() {
                let stream = self.replicas[id].stream(feed);
                // A watch gets no bookmark below the version from which it resumed.
                if stream.connected && stream.sent <= version && self.rng.permille(500) {
                    stream.sent = version;
                    let (connection, arrival) = (stream.connection, stream.last_arrival.max(self.now));
                    let feed = feed.clone();
                    let bookmark = Event::Bookmark { replica: id, life, connection, feed, version };
                    self.push(arrival, bookmark);
                }
            }
        }
    }

    /// Returns whether something that a watch has sent arrives, that is, whether the connection still exists.
    pub(super) fn arrives(
        &mut self,
        id: usize,
        life: u32,
        connection: u32,
        feed: &Feed,
        version: Version,
    ) -> bool {
        if self.replicas[id].life != life {
            return false;
        }
        let stream = self.replicas[id].stream(feed);
        let is_same = stream.connection == connection;
        if is_same {
            // A list arrives before everything that was sent after it.
            stream.delivered = stream.listing.take().unwrap_or(stream.delivered).max(version);
        }
        is_same
    }

    /// A broken watch resumes from the last version that has arrived, or lists again if that was compacted.
    pub(super) fn reconnect(&mut self, id: usize, life: u32, feed: &Feed) {
        let replica = &mut self.replicas[id];
        if replica.life != life || replica.engine.is_none() || !replica.feeds().contains(feed) {
            return;
        }
        let stream = replica.stream(feed);
        if stream.connected {
            return;
        }
        // A list that did not arrive is requested again.
        let (delivered, is_asked) = (stream.delivered, stream.relist || stream.listing.is_some());
        if let Some(back) = self.outages.stop_controllers_until(self.now) {
            let pause = self.rng.between(PAUSE.0, PAUSE.1);
            self.push(back + millis(pause), Event::Reconnect { replica: id, life, feed: feed.clone() });
            return;
        }
        if is_asked || self.api.changes_after(feed.kind(), delivered).is_none() {
            self.note("", format_args!("the watch of {feed} of replica {id} lists again"));
            self.list(id, feed, self.api.version());
            return;
        }
        let now = self.now;
        let stream = self.replicas[id].stream(feed);
        stream.connected = true;
        stream.sent = delivered;
        stream.last_arrival = now;
        self.has_new_streams = true;
        self.expect_silence(id, feed);
    }

    /// An API server accepts a watch from a future version, and sends nothing before it reaches that version, not even
    /// bookmarks.
    fn expect_silence(&mut self, id: usize, feed: &Feed) {
        let version = self.api.version();
        let life = self.replicas[id].life;
        let stream = self.replicas[id].stream(feed);
        if stream.connected && version < stream.sent {
            let connection = stream.connection;
            self.at(SILENCE, Event::Silence { replica: id, life, connection, feed: feed.clone() });
        }
    }

    /// A watch has received nothing for so long that it lists again.
    pub(super) fn silence(&mut self, id: usize, life: u32, connection: u32, feed: &Feed) {
        let version = self.api.version();
        if self.replicas[id].life == life && self.replicas[id].stream(feed).connection == connection {
            self.note("", format_args!("the watch of {feed} of replica {id} hears nothing"));
            self.list(id, feed, version);
        }
    }

    /// The store is restored from a backup.
    pub(super) fn restore(&mut self) {
        self.note("", "the store is restored from a backup");
        self.stats.count("restore");
        self.monitor.touched(None);
        // A watch that resumes from a version that is yet to come reports nothing for a while.
        self.monitor.event_lost(None, self.now);
        self.api.restore();
        for id in 0..self.replicas.len() {
            for feed in self.replicas[id].feeds().iter() {
                self.expect_silence(id, feed);
            }
        }
    }
}

//! The watches of the controllers: lists, changes one by one, and how they break.

use knr_core::ids::Version;
use knr_core::world::Fact;

use super::{Event, Sim, millis};
use crate::api::{Change, KINDS, Kind, Object};
use crate::faults::{EventFault, travel};
use crate::replica::Replica;

/// A broken watch is tried again after a pause of this many milliseconds.
const PAUSE: (u64, u64) = (500, 8_000);

impl Sim {
    /// Lists a kind and watches it from there.
    pub(super) fn list(&mut self, id: usize, kind: Kind, version: Version) {
        let delay = travel(kind, self.faults.weather(), &mut self.rng);
        let arrival = self.now + millis(delay);
        let life = self.replicas[id].life;
        let stream = self.replicas[id].stream(kind);
        stream.connected = true;
        stream.relist = false;
        stream.connection += 1;
        stream.sent = version;
        stream.delivered = version;
        stream.last_arrival = arrival;
        self.has_new_streams = true;
        let replica = &self.replicas[id];
        let facts = vec![match self.api.list(kind, version) {
            Fact::InitPods(pods, version) => {
                Fact::InitPods(pods.into_iter().filter(|pod| replica.waits_for(pod)).collect(), version)
            }
            all => all,
        }];
        self.push(arrival, Event::Learn { replica: id, life, facts });
    }

    /// Lists a kind again, as soon as its watch can do that.
    pub(super) fn relist(&mut self, id: usize, kind: Kind) {
        if !self.replicas[id].watches(kind) {
            return;
        }
        if !self.replicas[id].stream(kind).connected {
            self.replicas[id].stream(kind).relist = true;
        } else if self.rng.permille(self.faults.weather().write) {
            self.break_watch(id, kind);
            self.replicas[id].stream(kind).relist = true;
        } else {
            self.list(id, kind, self.api.version());
        }
    }

    fn break_watch(&mut self, id: usize, kind: Kind) {
        self.note("", format_args!("the watch of {kind:?} of replica {id} breaks"));
        let life = self.replicas[id].life;
        let stream = self.replicas[id].stream(kind);
        stream.connected = false;
        stream.connection += 1;
        let pause = self.rng.between(PAUSE.0, PAUSE.1);
        self.at(pause, Event::Reconnect { replica: id, life, kind });
    }

    /// No controller reaches the API server any more.
    pub(super) fn break_all_watches(&mut self) {
        for id in 0..self.replicas.len() {
            for kind in KINDS {
                if self.replicas[id].stream(kind).connected {
                    self.break_watch(id, kind);
                }
            }
        }
    }

    /// Ends a watch that is no longer wanted.
    pub(super) fn end_watch(&mut self, id: usize, kind: Kind) {
        let stream = self.replicas[id].stream(kind);
        stream.connected = false;
        stream.connection += 1;
    }

    /// Sends on what watches have to tell, in order, unless something goes wrong.
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
            for kind in KINDS {
                while self.feed_next(id, kind).is_some() {}
            }
        }
    }

    fn feed_next(&mut self, id: usize, kind: Kind) -> Option<()> {
        let life = self.replicas[id].life;
        let stream = self.replicas[id].stream(kind);
        if !stream.connected {
            return None;
        }
        let (connection, sent) = (stream.connection, stream.sent);
        let change = self.api.changes_after(kind, sent)?.first()?.clone();
        if !is_wanted(&self.replicas[id], &change) {
            self.replicas[id].stream(kind).sent = change.version;
            return Some(());
        }
        let weather = self.faults.weather();
        if self.rng.permille(weather.watch_breaks) {
            self.break_watch(id, kind);
            return None;
        }
        let fault = self.faults.of_event(self.stats.events, &mut self.rng);
        self.stats.events += 1;
        let delay = travel(kind, weather, &mut self.rng);
        let arrival = (self.now + millis(delay)).max(self.replicas[id].stream(kind).last_arrival);
        let stream = self.replicas[id].stream(kind);
        stream.sent = change.version;
        stream.last_arrival = arrival;
        let copies = match fault {
            None => 1,
            Some(EventFault::Twice) => 2,
            Some(EventFault::Lost) => 0,
        };
        if let Some(fault) = fault {
            self.note("", format_args!("event {} of {kind:?} to replica {id}: {fault:?}", change.version.0));
        }
        for _ in 0..copies {
            let (version, fact) = (change.version, Box::new(change.fact()));
            self.push(arrival, Event::Deliver { replica: id, life, connection, kind, version, fact });
        }
        Some(())
    }

    /// Tells every watch how far it has come, so that it can go on from there after a compaction.
    pub(crate) fn send_bookmarks(&mut self) {
        let version = self.api.version();
        for id in 0..self.replicas.len() {
            let life = self.replicas[id].life;
            for kind in KINDS {
                let stream = self.replicas[id].stream(kind);
                if stream.connected && self.rng.permille(500) {
                    stream.sent = version;
                    let (connection, arrival) = (stream.connection, stream.last_arrival.max(self.now));
                    let bookmark = Event::Bookmark { replica: id, life, connection, kind, version };
                    self.push(arrival, bookmark);
                }
            }
        }
    }

    /// A broken watch goes on from what has arrived, or lists again if that is too long ago.
    pub(super) fn reconnect(&mut self, id: usize, life: u32, kind: Kind) {
        let replica = &mut self.replicas[id];
        if replica.life != life || replica.engine.is_none() || !replica.watches(kind) {
            return;
        }
        let stream = replica.stream(kind);
        if stream.connected {
            return;
        }
        let (delivered, is_asked) = (stream.delivered, stream.relist);
        if let Some(back) = self.outages.stop_controllers_until(self.now) {
            let pause = self.rng.between(PAUSE.0, PAUSE.1);
            self.push(back + millis(pause), Event::Reconnect { replica: id, life, kind });
            return;
        }
        if is_asked || self.api.changes_after(kind, delivered).is_none() {
            self.note("", format_args!("the watch of {kind:?} of replica {id} lists again"));
            self.list(id, kind, self.api.version());
            return;
        }
        let now = self.now;
        let stream = self.replicas[id].stream(kind);
        stream.connected = true;
        stream.sent = delivered;
        stream.last_arrival = now;
        self.has_new_streams = true;
    }
}

/// Pods that no gate waits for are left out by the watch.
fn is_wanted(replica: &Replica, change: &Change) -> bool {
    match &change.object {
        Object::Node(_) | Object::Worker(_) => true,
        Object::InitPod(pod) => replica.waits_for(pod),
    }
}

//! The watches: one task for each feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use knr_core::feed::{Feed, ObjectKind};
use knr_core::world::Fact;
use knr_k8s::api::Api;
use knr_k8s::watch::{Pulse, Watch};
use knr_web::{Health, Metrics, Vital};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A watch that is silent for this long is dead: the server sends a bookmark about every minute.
const DEAD: Duration = Duration::from_mins(5);
const NEVER: Duration = Duration::from_hours(24 * 365);
/// Everything is listed again this often, in case a watch has lost something without any sign of it. In between, a
/// watch that is silent for too long restarts by itself, and kubelets report every few minutes anyway.
const FULL_LIST: Duration = Duration::from_mins(10);

/// All watches.
pub(super) struct Watches {
    api: Api,
    facts: mpsc::Sender<Fact>,
    health: Health,
    metrics: Arc<Metrics>,
    watched: BTreeMap<Feed, Watched>,
    rounds: BTreeMap<ObjectKind, Arc<Round>>,
    listed: Instant,
}

/// One watch.
struct Watched {
    task: JoinHandle<()>,
    /// Requests a full list.
    relist: Arc<Notify>,
}

/// All watches of one kind. They share a vital, which beats once each of them has been heard: a live watch must not
/// hide a silent one.
struct Round {
    vital: Vital,
    /// True for each watch that was heard since the last beat.
    heard: Mutex<BTreeMap<Feed, bool>>,
}

impl Round {
    fn new(vital: Vital) -> Self {
        Self { vital, heard: Mutex::default() }
    }

    fn heard(&self) -> MutexGuard<'_, BTreeMap<Feed, bool>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, feed: Feed) {
        self.heard().insert(feed, false);
    }

    fn hear(&self, feed: &Feed) {
        let mut heard = self.heard();
        if let Some(heard) = heard.get_mut(feed) {
            *heard = true;
        }
        if heard.values().all(|heard| *heard) {
            heard.values_mut().for_each(|heard| *heard = false);
            self.vital.beat();
        }
    }

    /// Removes a watch, and returns true if none is left.
    fn leave(&self, feed: &Feed) -> bool {
        let mut heard = self.heard();
        heard.remove(feed);
        heard.is_empty()
    }
}

/// Receives the signs of life of a watch.
struct Signs {
    feed: Feed,
    round: Arc<Round>,
    metrics: Arc<Metrics>,
}

impl Pulse for Signs {
    fn heard(&self) {
        self.round.hear(&self.feed);
    }

    fn restarted(&self, why: &str) {
        tracing::debug!(feed = %self.feed, why, "the watch begins again");
        self.metrics.watch_restarted(self.feed.kind().as_str());
    }
}

impl Watches {
    /// Starts the watches of these feeds.
    pub(super) fn start(
        api: Api,
        feeds: &BTreeSet<Feed>,
        facts: mpsc::Sender<Fact>,
        health: Health,
        metrics: Arc<Metrics>,
    ) -> Self {
        let mut watches = Self {
            api,
            facts,
            health,
            metrics,
            watched: BTreeMap::new(),
            rounds: BTreeMap::new(),
            listed: Instant::now(),
        };
        watches.begin(feeds);
        watches
    }

    /// Ends the watches of all other feeds. They deliver nothing afterwards.
    pub(super) async fn keep_only(&mut self, feeds: &BTreeSet<Feed>) {
        let ended: BTreeSet<Feed> =
            self.watched.keys().filter(|feed| !feeds.contains(feed)).cloned().collect();
        for feed in ended {
            if let Some(Watched { task, .. }) = self.watched.remove(&feed) {
                task.abort();
                // The task ends because it was aborted.
                let _ = task.await;
            }
            if let Some(round) = self.rounds.get(&feed.kind())
                && round.leave(&feed)
            {
                round.vital.retire();
                self.rounds.remove(&feed.kind());
            }
        }
    }

    /// Starts the watches of these feeds that do not run yet.
    pub(super) fn begin(&mut self, feeds: &BTreeSet<Feed>) {
        for feed in feeds {
            if !self.watched.contains_key(feed) {
                let watched = self.follow(feed.clone());
                self.watched.insert(feed.clone(), watched);
            }
        }
    }

    fn follow(&mut self, feed: Feed) -> Watched {
        let limit = if feed.kind().is_essential() { DEAD } else { NEVER };
        let new_round = || Arc::new(Round::new(self.health.watch(feed.kind().as_str(), limit)));
        let round = Arc::clone(self.rounds.entry(feed.kind()).or_insert_with(new_round));
        round.join(feed.clone());
        let pulse = Signs { feed: feed.clone(), round, metrics: Arc::clone(&self.metrics) };
        let relist = Arc::<Notify>::default();
        let (api, facts) = (self.api.clone(), self.facts.clone());
        let watch = Watch { api, feed, facts, pulse, relist: Arc::clone(&relist) };
        Watched { task: tokio::spawn(watch.follow()), relist }
    }

    /// Lists again as far as necessary. A watch does not lose single events: it dies, and notices that by itself. So
    /// while nothing is going on, there is nothing to list. While workers run, their end is too important to rely on
    /// that.
    pub(super) fn refresh(&mut self, live_workers: usize) {
        if self.listed.elapsed() >= FULL_LIST {
            self.relist();
        } else if live_workers > 0
            && let Some(workers) = self.watched.get(&Feed::of(ObjectKind::Workers))
        {
            workers.relist.notify_one();
        }
    }

    /// Lists everything again.
    pub(super) fn relist(&mut self) {
        self.listed = Instant::now();
        self.watched.values().for_each(|watched| watched.relist.notify_one());
    }
}

#[cfg(test)]
mod tests;

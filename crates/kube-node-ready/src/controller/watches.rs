//! The watches: one task for each kind of object.

use std::sync::Arc;
use std::time::Duration;

use knr_core::config::Config;
use knr_core::world::Fact;
use knr_k8s::api::Api;
use knr_k8s::watch::{Feed, Kind, Pulse, Watch};
use knr_web::{Health, Metrics, Vital};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// A watch from which nothing was heard for this long is dead: the server sends a sign of life every minute.
const DEAD: Duration = Duration::from_mins(5);
const NEVER: Duration = Duration::from_hours(24 * 365);

/// All watches.
pub(super) struct Watches {
    api: Api,
    facts: mpsc::Sender<Fact>,
    health: Health,
    metrics: Arc<Metrics>,
    /// Asks for all workers to be told anew.
    pub(super) relist_workers: Arc<Notify>,
    /// Asks for everything else to be told anew.
    pub(super) relist_others: Vec<Arc<Notify>>,
    init_pods: Option<(Feed, JoinHandle<()>, Vital)>,
}

/// Only nodes with a pool of Karpenter's concern its watch, and they stay as they are without it.
fn dead_after(kind: Kind) -> Duration {
    match kind {
        Kind::Nodes | Kind::Workers | Kind::InitPods => DEAD,
        Kind::Pools => NEVER,
    }
}

/// The life signs of a watch.
struct Signs {
    kind: Kind,
    vital: Vital,
    metrics: Arc<Metrics>,
}

impl Pulse for Signs {
    fn heard(&self) {
        self.vital.beat();
    }

    fn restarted(&self, why: &str) {
        tracing::debug!(kind = %self.kind, why, "the watch begins again");
        self.metrics.watch_restarted(self.kind.as_str());
    }
}

impl Watches {
    /// Starts to watch.
    pub(super) fn start(
        api: Api,
        config: &Config,
        facts: mpsc::Sender<Fact>,
        health: Health,
        metrics: Arc<Metrics>,
    ) -> Self {
        let mut watches = Self {
            api,
            facts,
            health,
            metrics,
            relist_workers: Arc::default(),
            relist_others: (0..3).map(|_| Arc::default()).collect(),
            init_pods: None,
        };
        watches.follow(Feed::nodes(), Arc::clone(&watches.relist_others[0]));
        watches.follow(Feed::pools(), Arc::clone(&watches.relist_others[1]));
        watches.follow(Feed::workers(), Arc::clone(&watches.relist_workers));
        watches.configure(config);
        watches
    }

    /// Stops to watch init pods for which no gate of this configuration waits. Afterwards nothing more comes of them.
    pub(super) async fn leave(&mut self, config: &Config) {
        let feed = Feed::init_pods(config);
        if let Some((_, task, vital)) =
            self.init_pods.take_if(|(watched, ..)| Some(&*watched) != feed.as_ref())
        {
            task.abort();
            // It ends because it was told to.
            let _ = task.await;
            vital.retire();
        }
    }

    /// Watches the init pods of the gates that there are now.
    pub(super) fn configure(&mut self, config: &Config) {
        if let Some(feed) = Feed::init_pods(config)
            && self.init_pods.is_none()
        {
            let (task, vital) = self.follow(feed.clone(), Arc::clone(&self.relist_others[2]));
            self.init_pods = Some((feed, task, vital));
        }
    }

    fn follow(&self, feed: Feed, relist: Arc<Notify>) -> (JoinHandle<()>, Vital) {
        let kind = feed.kind;
        let vital = self.health.watch(kind.as_str(), dead_after(kind));
        let pulse = Signs { kind, vital: vital.clone(), metrics: Arc::clone(&self.metrics) };
        let watch = Watch { api: self.api.clone(), feed, facts: self.facts.clone(), pulse, relist };
        (tokio::spawn(watch.follow()), vital)
    }
}

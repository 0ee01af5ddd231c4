//! Answers to what the rules ask: reads that no watch makes needless.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use knr_core::config::Config;
use knr_core::engine::Question;
use knr_core::ids::NodeRef;
use knr_core::world::Fact;
use knr_k8s::api::{Api, Failed};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;

use super::watches::Watches;

/// Reads under way at most.
const AT_ONCE: usize = 10;
/// Everything is listed anew this often, in case a watch has lost something without any sign of it. In between, a watch
/// that is silent for too long begins again by itself, and kubelets report every few minutes anyway.
const FULL_LIST: Duration = Duration::from_mins(10);
const LEDGER_PAUSE: Duration = Duration::from_secs(5);

/// What is being read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Ledger,
    Node(NodeRef),
    Occupancy(NodeRef),
}

/// The right to read something, which nobody else reads meanwhile.
struct Claim {
    all: Arc<Mutex<BTreeSet<Asked>>>,
    what: Asked,
}

impl Claim {
    fn new(all: &Arc<Mutex<BTreeSet<Asked>>>, what: Asked) -> Option<Self> {
        let is_new = all.lock().unwrap_or_else(PoisonError::into_inner).insert(what.clone());
        is_new.then(|| Self { all: Arc::clone(all), what })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.what);
    }
}

/// Answers questions.
pub(super) struct Readers {
    api: Api,
    facts: mpsc::Sender<Fact>,
    relist_workers: Arc<Notify>,
    relist_others: Vec<Arc<Notify>>,
    places: Arc<Semaphore>,
    asked: Arc<Mutex<BTreeSet<Asked>>>,
    listed: Instant,
}

impl Readers {
    pub(super) fn new(api: Api, facts: mpsc::Sender<Fact>, watches: &Watches) -> Self {
        Self {
            api,
            facts,
            relist_workers: Arc::clone(&watches.relist_workers),
            relist_others: watches.relist_others.clone(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            asked: Arc::default(),
            listed: Instant::now(),
        }
    }

    /// Answers a question some time. One that cannot be answered is asked again by the rules.
    pub(super) fn ask(&mut self, question: Question, config: &Config, live_workers: usize) {
        let limit = config.kubernetes.request_timeout();
        let with_ledger = config.node_management.delete_failed_nodes;
        match question {
            Question::Everything => self.refresh(live_workers),
            Question::Node(node) => {
                if with_ledger {
                    self.spawn(
                        Asked::Ledger,
                        move |api| async move { api.ledger(Instant::now() + limit).await },
                    );
                }
                self.spawn(Asked::Node(node.clone()), move |api| async move {
                    api.reread(&node, Instant::now() + limit).await
                });
            }
            Question::Occupancy(node) => self.spawn(Asked::Occupancy(node.clone()), move |api| async move {
                api.occupancy(&node, Instant::now() + limit).await
            }),
        }
    }

    /// A watch does not lose single events, it dies; and it notices that by itself. So as long as nothing goes on there is
    /// nothing to read. While workers run, their end is too important to rely on that.
    fn refresh(&mut self, live_workers: usize) {
        let is_due = self.listed.elapsed() >= FULL_LIST;
        if live_workers > 0 || is_due {
            self.relist_workers.notify_one();
        }
        if is_due {
            self.listed = Instant::now();
            self.relist_others.iter().for_each(|relist| relist.notify_one());
        }
    }

    /// Reads the ledger, as often as it takes.
    pub(super) fn read_ledger(&self, limit: Duration) {
        let (api, facts) = (self.api.clone(), self.facts.clone());
        tokio::spawn(async move {
            while !facts.is_closed() {
                match api.ledger(Instant::now() + limit).await {
                    Ok(fact) => {
                        let _ = facts.send(fact).await;
                        return;
                    }
                    Err(error) => tracing::warn!(%error, "the ledger of deletions cannot be read"),
                }
                tokio::time::sleep(LEDGER_PAUSE).await;
            }
        });
    }

    /// Reads something, unless that is under way already.
    fn spawn<F, R>(&self, what: Asked, read: F)
    where
        F: FnOnce(Api) -> R + Send + 'static,
        R: Future<Output = Result<Fact, Failed>> + Send,
    {
        let Some(claim) = Claim::new(&self.asked, what) else { return };
        let (api, facts, places) = (self.api.clone(), self.facts.clone(), Arc::clone(&self.places));
        tokio::spawn(async move {
            let _claim = claim;
            let Ok(_place) = places.acquire_owned().await else { return };
            match read(api).await {
                // Without a receiver the process is ending.
                Ok(fact) => drop(facts.send(fact).await),
                Err(error) => tracing::warn!(%error, "a read failed and is tried again"),
            }
        });
    }
}

//! Answers the questions of the rules, by reads that the watches do not make unnecessary.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use knr_core::engine::{Engine, Question};
use knr_core::ids::NodeRef;
use knr_core::world::Fact;
use knr_k8s::api::{Api, Failed};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::watches::Watches;

/// Maximum number of reads in flight.
const AT_ONCE: usize = 10;
const LEDGER_PAUSE: Duration = Duration::from_secs(5);

/// The subject of a read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Ledger,
    Node(NodeRef),
    Occupancy(NodeRef),
}

/// Marks a read as in flight, so that nothing is read twice at once.
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
    places: Arc<Semaphore>,
    asked: Arc<Mutex<BTreeSet<Asked>>>,
}

impl Readers {
    pub(super) fn new(api: Api, facts: mpsc::Sender<Fact>) -> Self {
        Self { api, facts, places: Arc::new(Semaphore::new(AT_ONCE)), asked: Arc::default() }
    }

    /// Answers a question asynchronously. If that fails, the rules ask again.
    pub(super) fn ask(&self, question: Question, limit: Duration, engine: &Engine, watches: &mut Watches) {
        let with_ledger = engine.policies().delete_nodes();
        match question {
            Question::Everything => watches.refresh(engine.world().live_workers()),
            Question::StartOver => {
                tracing::warn!("etcd was restored from a backup; everything is read again");
                watches.relist();
                if with_ledger {
                    self.read_ledger(limit);
                }
            }
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

    /// Reads the ledger, and retries until that succeeds.
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

    /// Starts a read, unless the same one is already in flight.
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

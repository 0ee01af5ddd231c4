//! Several replicas with one API server, and a history of when each replica believed to lead.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use knr_core::config::LeaderElection;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::api::FakeApi;
use super::link::Link;
use crate::lease::{Elected, Election, Leadership, LeaseError};

/// Freezes a process like SIGSTOP: nothing of it runs, but time goes on.
#[derive(Clone, Default)]
pub(super) struct Ice(Arc<Mutex<(bool, Option<Waker>)>>);

impl Ice {
    pub(super) fn freeze(&self) {
        self.0.lock().unwrap().0 = true;
    }

    pub(super) fn thaw(&self) {
        let mut ice = self.0.lock().unwrap();
        ice.0 = false;
        if let Some(waker) = ice.1.take() {
            waker.wake();
        }
    }

    async fn around(self, process: impl Future<Output = ()>) {
        let mut process = pin!(process);
        poll_fn(|context| {
            let mut ice = self.0.lock().unwrap();
            ice.1 = Some(context.waker().clone());
            if ice.0 {
                return Poll::Pending;
            }
            drop(ice);
            process.as_mut().poll(context)
        })
        .await;
    }
}

/// One controller.
pub(super) struct Replica {
    pub(super) identity: String,
    pub(super) link: Link,
    pub(super) ice: Ice,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) trouble: watch::Receiver<Option<LeaseError>>,
    pub(super) stop: Option<oneshot::Sender<()>>,
    elected: Option<Elected>,
    task: JoinHandle<()>,
    died: Option<Instant>,
    history: Arc<Mutex<Vec<(Instant, Leadership)>>>,
}

impl Replica {
    pub(super) fn start(api: &FakeApi, link: Link, settings: &LeaderElection) -> Self {
        let identity = link.owner();
        let settings = LeaderElection {
            lease_duration_seconds: link.seconds(settings.lease_duration_seconds),
            renew_deadline_seconds: link.seconds(settings.renew_deadline_seconds),
            retry_period_seconds: link.seconds(settings.retry_period_seconds),
            ..settings.clone()
        };
        let election = Election {
            client: api.client(&link),
            namespace: "default".to_owned(),
            name: "knr".to_owned(),
            identity: identity.clone(),
            settings,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (elected, process) = election.prepare(async move {
            let _ = stopped.await;
        });
        let ice = Ice::default();
        let task = tokio::spawn(ice.clone().around(process));
        let (leadership, trouble) = (elected.leadership.clone(), elected.trouble.clone());
        let history = Arc::default();
        tokio::spawn(keep_history(leadership.clone(), Arc::clone(&history)));
        let (stop, elected) = (Some(stop), Some(elected));
        Self { identity, link, ice, leadership, trouble, stop, elected, task, died: None, history }
    }

    pub(super) fn leads(&self) -> bool {
        self.died.is_none() && self.leadership.borrow().may_write_at(Instant::now())
    }

    pub(super) fn is_alive(&self) -> bool {
        self.died.is_none() && self.elected.is_some()
    }

    pub(super) fn is_done(&self) -> bool {
        self.task.is_finished()
    }

    pub(super) fn kill(&mut self) {
        self.task.abort();
        self.died.get_or_insert(Instant::now());
    }

    pub(super) fn drop_election(&mut self) {
        self.elected = None;
    }

    pub(super) async fn release(&mut self) -> Result<(), LeaseError> {
        self.elected.take().unwrap().release().await
    }

    /// Begins a release without waiting for its end.
    pub(super) fn begin_release(&mut self) {
        let elected = self.elected.take().unwrap();
        tokio::spawn(elected.release());
    }

    /// Returns every change of what this replica believed.
    pub(super) fn history(&self) -> Vec<(Instant, Leadership)> {
        self.history.lock().unwrap().clone()
    }

    /// Returns the periods in which it might have written.
    pub(super) fn permissions(&self) -> Vec<(Instant, Instant)> {
        let history = self.history();
        let ends = history.iter().skip(1).map(|(at, _)| Some(*at)).chain([None]);
        let mut permissions = Vec::new();
        for ((from, belief), end) in history.iter().zip(ends) {
            if let Leadership::Leading { until } = belief {
                let mut to = *until;
                for bound in [end, self.died].into_iter().flatten() {
                    to = to.min(bound);
                }
                if *from < to {
                    permissions.push((*from, to));
                }
            }
        }
        permissions
    }
}

async fn keep_history(
    mut leadership: watch::Receiver<Leadership>,
    history: Arc<Mutex<Vec<(Instant, Leadership)>>>,
) {
    loop {
        let belief = leadership.borrow_and_update().clone();
        history.lock().unwrap().push((Instant::now(), belief));
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// Returns the first two replicas that might have written at the same time, if any.
pub(super) fn overlap(replicas: &[Replica]) -> Option<String> {
    for (index, one) in replicas.iter().enumerate() {
        for other in &replicas[index + 1..] {
            for (from, to) in one.permissions() {
                if let Some((start, end)) =
                    other.permissions().into_iter().find(|(start, end)| *start < to && from < *end)
                {
                    let (one, other) = (&one.identity, &other.identity);
                    let common = end.min(to) - start.max(from);
                    return Some(format!("{one} and {other} both led for {common:?}"));
                }
            }
        }
    }
    None
}

/// Waits until a replica leads. Fails if that takes longer than `limit`.
pub(super) async fn leads_within(replica: &Replica, limit: Duration) -> Duration {
    let begun = Instant::now();
    let mut leadership = replica.leadership.clone();
    let wait = leadership.wait_for(|belief| belief.may_write_at(Instant::now()));
    let led = timeout(limit, wait).await.is_ok_and(|led| led.is_ok());
    assert!(led, "{} does not lead after {limit:?}", replica.identity);
    begun.elapsed()
}

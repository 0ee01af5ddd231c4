//! The watch by which a standby learns of a release at once.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::WatchEvent;
use tokio::time::{Instant, sleep_until};

use super::calls::{Events, LeaseCalls};
use super::error::{Cause, LeaseError};
use crate::calls::Verb;

/// The maximum factor by which a failing watch is opened less often.
const SELDOM: u32 = 16;

/// An event of the watch.
pub(super) enum Heard {
    /// The lease, new or changed.
    Lease(Box<Lease>),
    /// The lease was deleted.
    Gone,
    /// The watch broke. It is opened again after a pause.
    Broken(LeaseError),
}

/// A watch of the lease that is opened again whenever it ends.
pub(super) struct LeaseWatch {
    calls: LeaseCalls,
    events: Option<Events>,
    opened: Instant,
    pause: Duration,
    shortest: Duration,
}

impl LeaseWatch {
    /// Opens the watch. It is reopened no sooner than after `shortest`.
    pub(super) fn new(calls: LeaseCalls, shortest: Duration) -> Self {
        let now = Instant::now();
        Self { events: Some(calls.watch()), calls, opened: now, pause: shortest, shortest }
    }

    /// Waits for the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            let Some(events) = &mut self.events else {
                sleep_until(self.opened + self.pause).await;
                self.opened = Instant::now();
                self.events = Some(self.calls.watch());
                continue;
            };
            match events.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    self.pause = self.shortest;
                    return Heard::Lease(Box::new(lease));
                }
                Some(Ok(WatchEvent::Deleted(_))) => return Heard::Gone,
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => return self.broken(&kube::Error::Api(status)),
                Some(Err(error)) => return self.broken(&error),
                None => self.reopen(),
            }
        }
    }

    /// Closes the watch. The next one is opened after a pause, which doubles each time until one works.
    pub(super) fn reopen(&mut self) {
        if self.events.take().is_some() {
            self.pause = (self.pause * 2).min(self.shortest * SELDOM);
        }
    }

    fn broken(&mut self, error: &kube::Error) -> Heard {
        self.reopen();
        Heard::Broken(self.calls.error(Verb::Watch, Cause::of(Verb::Watch, error)))
    }
}

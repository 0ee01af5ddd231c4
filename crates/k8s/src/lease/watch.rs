//! The watch by which a standby hears of a release at once.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::WatchEvent;
use tokio::time::{Instant, sleep_until};

use super::calls::{Events, LeaseCalls};
use super::error::{Cause, LeaseError};
use crate::calls::Verb;

/// A watch that keeps failing is tried this many times less often in the end.
const SELDOM: u32 = 16;

/// What a watch brought.
pub(super) enum Heard {
    /// The lease, new or changed.
    Lease(Box<Lease>),
    /// The lease was deleted.
    Gone,
    /// The watch broke. It is opened again by and by.
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
    /// There are at least `shortest` between two openings.
    pub(super) fn new(calls: LeaseCalls, shortest: Duration) -> Self {
        let now = Instant::now();
        Self { events: Some(calls.watch()), calls, opened: now, pause: shortest, shortest }
    }

    /// Waits for something to happen. Nothing is lost if the wait is given up.
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

    /// Gives the open watch up and opens another, later each time until one works.
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

//! The task behind an election: standby and leader in turn.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use knr_core::config::LeaderElection;
use tokio::sync::watch::Sender;
use tokio::time::{Instant, sleep, sleep_until};

use super::Leadership;
use super::calls::LeaseCalls;
use super::error::{Cause, LeaseError};
use super::record::{Candidate, Change, Role, View, released};
use super::watch::{Heard, LeaseWatch};
use crate::calls::Verb;

/// If the record turns out to have changed, it is read and, if it may still be taken, tried once more.
const CLAIM_TRIES: u32 = 2;
/// A watch counts as dead if it has missed this many changes that polling found.
const DEAF: u32 = 2;
/// The maximum time for a release.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// The time between two attempts to release the lease.
const RELEASE_PAUSE: Duration = Duration::from_millis(250);
/// The jitter of a standby's attempts, in thousandths of the retry period.
const JITTER: u64 = 200;

/// A candidate in an election.
pub(super) struct Elector {
    calls: LeaseCalls,
    me: Candidate,
    view: View,
    /// Whether the outcome of the last write is unknown.
    in_doubt: bool,
    waits: u64,
    leadership: Sender<Leadership>,
    trouble: Sender<Option<LeaseError>>,
}

impl Elector {
    pub(super) fn new(
        calls: LeaseCalls,
        identity: String,
        settings: LeaderElection,
        leadership: Sender<Leadership>,
        trouble: Sender<Option<LeaseError>>,
    ) -> Self {
        let me = Candidate { identity, settings };
        Self { calls, me, view: View::Unknown, in_doubt: false, waits: 0, leadership, trouble }
    }

    /// Alternates between standby and leader indefinitely. After `stop` it no longer becomes the leader.
    pub(super) async fn elect(&mut self, stop: impl Future<Output = ()>) -> Infallible {
        let mut stop = pin!(stop);
        loop {
            let sent = tokio::select! {
                biased;
                () = &mut stop => return pending().await,
                sent = self.stand_by() => sent,
            };
            self.lead(sent).await;
            self.resign();
        }
    }

    /// Announces that this process does not lead.
    pub(super) fn resign(&self) {
        self.announce(Leadership::Standby { holder: self.view.holder().map(ToOwned::to_owned) });
    }

    fn announce(&self, leadership: Leadership) {
        self.leadership.send_if_modified(|last| {
            let news = *last != leadership;
            *last = leadership;
            news
        });
    }

    /// Waits for the lease to become free and takes it. Returns when the write that took it was sent.
    async fn stand_by(&mut self) -> Instant {
        let mut watch = LeaseWatch::new(self.calls.clone(), self.me.settings.retry_period());
        let mut poll_at = Instant::now();
        let mut claim_from = poll_at;
        let mut missed = 0;
        loop {
            self.resign();
            let claim_at = self.view.free_from(&self.me).map(|free| free.max(claim_from));
            let wake = claim_at.map_or(poll_at, |claim_at| claim_at.min(poll_at));
            let heard = tokio::select! {
                biased;
                () = sleep_until(wake) => None,
                heard = watch.next() => Some(heard),
            };
            let now = Instant::now();
            if let Some(heard) = heard {
                missed = 0;
                if self.hear(heard) == Change::New {
                    // The record has changed, so the last failure says nothing about the next attempt.
                    (poll_at, claim_from) = (now + self.pause(), now);
                }
            } else if claim_at.is_some_and(|claim_at| claim_at <= now) {
                (poll_at, claim_from) = (now + self.pause(), now + self.pause());
                if let Some(sent) = self.claim(now + self.me.settings.renew_deadline()).await {
                    return sent;
                }
            } else {
                poll_at = now + self.pause();
                if self.read(now + self.me.settings.renew_deadline()).await == Some(Change::New) {
                    claim_from = now;
                    missed += 1;
                }
                if missed == DEAF {
                    watch.reopen();
                    missed = 0;
                }
            }
        }
    }

    /// Renews the lease until it is lost.
    async fn lead(&mut self, mut sent: Instant) {
        let settings = self.me.settings.clone();
        let mut next = sent + settings.retry_period();
        loop {
            let until = sent + settings.renew_deadline();
            if until <= Instant::now() {
                return;
            }
            self.announce(Leadership::Leading { until });
            sleep_until(next.min(until)).await;
            next = Instant::now() + settings.retry_period();
            match self.claim(until).await {
                Some(renewed) => sent = renewed,
                None if self.view.holder().is_some_and(|holder| holder != self.me.identity) => return,
                None => {}
            }
        }
    }

    /// Takes or renews the lease if the record permits it and there is time left. Returns when the write was sent: the
    /// right counts from then, because other processes may have seen the write as early as that.
    async fn claim(&mut self, limit: Instant) -> Option<Instant> {
        for _ in 0..CLAIM_TRIES {
            let sent = Instant::now();
            if limit <= sent || self.view.free_from(&self.me).is_none_or(|free| sent < free) {
                return None;
            }
            match self.write_claim(limit).await {
                Ok(lease) => {
                    self.view.see(Box::new(lease), Instant::now());
                    return Some(sent);
                }
                Err(Cause::Outdated) => self.read(limit).await?,
                Err(_) => return None,
            };
        }
        None
    }

    async fn write_claim(&mut self, limit: Instant) -> Result<Lease, Cause> {
        let known = self.view.lease();
        let spec = self.me.claim(known, Timestamp::now());
        self.in_doubt = true;
        let written = match known {
            Some(known) => self.calls.replace(known, spec, limit).await,
            None => self.calls.create(spec, limit).await,
        };
        self.settle(written)
    }

    /// Records the outcome of a write.
    fn settle(&mut self, written: Result<Lease, LeaseError>) -> Result<Lease, Cause> {
        match written {
            Ok(lease) => {
                self.in_doubt = false;
                self.trouble.send_if_modified(|trouble| trouble.take().is_some());
                Ok(lease)
            }
            Err(error) => {
                let cause = error.cause.clone();
                self.in_doubt = cause.leaves_doubt();
                if cause != Cause::Outdated {
                    self.complain(error);
                }
                Err(cause)
            }
        }
    }

    /// Reads the lease. Returns `None` if that failed.
    async fn read(&mut self, limit: Instant) -> Option<Change> {
        match self.calls.get(limit).await {
            Ok(found) => {
                self.in_doubt = false;
                self.forget_trouble_with(Verb::Get);
                Some(self.see(found.map(Box::new)))
            }
            Err(error) => {
                self.complain(error);
                None
            }
        }
    }

    fn hear(&mut self, heard: Heard) -> Change {
        let found = match heard {
            Heard::Lease(lease) => Some(lease),
            Heard::Gone => None,
            Heard::Broken(error) => {
                self.complain(error);
                return Change::Same;
            }
        };
        self.forget_trouble_with(Verb::Watch);
        self.see(found)
    }

    fn see(&mut self, found: Option<Box<Lease>>) -> Change {
        let now = Instant::now();
        let leads = self.leadership.borrow().may_write_at(now);
        match found {
            Some(lease) => self.view.see(lease, now),
            None if leads => self.view.miss(&self.me, Role::Leader, now),
            None => self.view.miss(&self.me, Role::Standby, now),
        }
    }

    /// Releases the lease if this process holds it.
    pub(super) async fn release(&mut self) -> Result<(), LeaseError> {
        let limit = Instant::now() + RELEASE_LIMIT;
        loop {
            let outcome = self.try_release(limit).await;
            let Err(error) = outcome else { return Ok(()) };
            let hopeless = error.cause != Cause::Outdated && !error.cause.leaves_doubt();
            if hopeless || Instant::now() + RELEASE_PAUSE >= limit {
                return Err(error);
            }
            sleep(RELEASE_PAUSE).await;
        }
    }

    async fn try_release(&mut self, limit: Instant) -> Result<(), LeaseError> {
        // Each request gets half of the remaining time, so that one that hangs leaves time for another.
        let now = Instant::now();
        let limit = now + limit.saturating_duration_since(now) / 2;
        if self.in_doubt {
            let found = self.calls.get(limit).await?;
            self.see(found.map(Box::new));
            self.in_doubt = false;
        }
        let Some(lease) = self.view.lease().filter(|_| self.view.holder() == Some(&self.me.identity)) else {
            return Ok(());
        };
        self.in_doubt = true;
        let spec = released(lease, Timestamp::now());
        self.calls.replace(lease, spec, limit).await.map(drop)
    }

    /// Publishes an error. A failing watch is the least severe one and hides no other.
    fn complain(&self, error: LeaseError) {
        self.trouble.send_if_modified(|trouble| {
            let hidden =
                error.verb == Verb::Watch && trouble.as_ref().is_some_and(|old| old.verb != Verb::Watch);
            let news = !hidden && trouble.as_ref() != Some(&error);
            if news {
                *trouble = Some(error);
            }
            news
        });
    }

    /// Clears the error of a verb that works again. A definite refusal of another verb remains.
    fn forget_trouble_with(&self, verb: Verb) {
        let over = |error: &mut LeaseError| error.verb == verb || error.cause.leaves_doubt();
        self.trouble.send_if_modified(|trouble| trouble.take_if(over).is_some());
    }

    /// Returns the retry period with jitter, so that standbys do not all act at once.
    fn pause(&mut self) -> Duration {
        self.waits += 1;
        let mut hasher = DefaultHasher::new();
        (&self.me.identity, self.waits).hash(&mut hasher);
        let extra = u32::try_from(hasher.finish() % JITTER).unwrap_or(0);
        self.me.settings.retry_period() * (1000 + extra) / 1000
    }
}

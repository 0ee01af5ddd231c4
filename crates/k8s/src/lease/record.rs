//! What the record of a lease says, when we may take it, and what we write into it. Nothing here waits.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knr_core::config::LeaderElection;
use tokio::time::Instant;

/// The duration in a record that its holder has given back.
const RELEASED_SECONDS: i32 = 1;

/// The lease as we last saw it.
pub(super) enum View {
    /// We have not seen it yet.
    Unknown,
    /// It is there.
    Present {
        /// All of it.
        lease: Lease,
        /// When we saw its record change.
        changed: Instant,
    },
    /// It is not there.
    Absent {
        /// When the time of its last holder is over.
        free_from: Instant,
    },
}

/// Whether something was news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The record changed.
    Yes,
    /// It is what it was.
    No,
}

impl View {
    /// Takes note of the lease as it was just seen.
    pub(super) fn see(&mut self, found: Option<Lease>, me: &Candidate, now: Instant) -> News {
        match (&mut *self, found) {
            (Self::Present { lease, .. }, Some(found)) if lease.spec == found.spec => {
                *lease = found;
                News::No
            }
            (Self::Unknown | Self::Present { .. } | Self::Absent { .. }, Some(lease)) => {
                *self = Self::Present { lease, changed: now };
                News::Yes
            }
            (Self::Absent { .. }, None) => News::No,
            (Self::Unknown, None) => {
                *self = Self::Absent { free_from: now };
                News::Yes
            }
            (Self::Present { lease, .. }, None) => {
                // It may have been renewed just before, and its holder need not know yet that it is gone.
                *self = Self::Absent { free_from: now + me.waits_for(lease) };
                News::Yes
            }
        }
    }

    /// From when on we may take the lease. Nothing, if we do not know.
    pub(super) fn free_from(&self, me: &Candidate) -> Option<Instant> {
        match self {
            Self::Unknown => None,
            Self::Present { lease, changed } => Some(*changed + me.waits_for(lease)),
            Self::Absent { free_from } => Some(*free_from),
        }
    }

    /// Who has the lease.
    pub(super) fn holder(&self) -> Option<&str> {
        match self {
            Self::Present { lease, .. } => holder(lease),
            Self::Unknown | Self::Absent { .. } => None,
        }
    }

    /// The lease, if there is one.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Present { lease, .. } => Some(lease),
            Self::Unknown | Self::Absent { .. } => None,
        }
    }
}

/// Who stands for election, and on what terms.
pub(super) struct Candidate {
    pub(super) identity: String,
    pub(super) settings: LeaderElection,
}

impl Candidate {
    /// How long after a change of the record we leave the lease alone.
    fn waits_for(&self, lease: &Lease) -> Duration {
        match holder(lease) {
            None => Duration::ZERO,
            Some(holder) if holder == self.identity => Duration::ZERO,
            Some(_) => term(lease).unwrap_or(self.settings.lease_duration()),
        }
    }

    /// The record with which we take or renew the lease. The time in it is for people.
    pub(super) fn claim(&self, known: Option<&Lease>, now: Timestamp) -> LeaseSpec {
        let old = known.and_then(|lease| lease.spec.clone());
        let now = later_than(old.as_ref(), now);
        let renewal = known.and_then(holder) == Some(self.identity.as_str());
        let old = old.unwrap_or_default();
        let transitions = match known {
            None => 0,
            Some(_) => old.lease_transitions.unwrap_or(0).saturating_add(i32::from(!renewal)),
        };
        let acquired = if renewal { old.acquire_time } else { Some(now.clone()) };
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.settings.lease_duration_seconds).unwrap_or(i32::MAX),
            ),
            acquire_time: acquired,
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..old
        }
    }
}

/// The record with which its holder gives a lease back.
pub(super) fn released(known: &Lease, now: Timestamp) -> LeaseSpec {
    let now = later_than(known.spec.as_ref(), now);
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(RELEASED_SECONDS),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        ..known.spec.clone().unwrap_or_default()
    }
}

/// A time for the record that is not the one in it, even if the wall clock stands still: a renewal that changes nothing
/// is not seen by anybody.
fn later_than(old: Option<&LeaseSpec>, now: Timestamp) -> MicroTime {
    let last = old.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.as_microsecond());
    let mut micros = now.as_microsecond();
    if last == Some(micros) {
        micros += 1;
    }
    MicroTime(Timestamp::from_microsecond(micros).unwrap_or(now))
}

fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}

/// How long the holder may do without a renewal, by its own word.
fn term(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

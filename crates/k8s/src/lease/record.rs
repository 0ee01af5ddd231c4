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
        lease: Box<Lease>,
        /// When we saw its record change.
        changed: Instant,
    },
    /// It is not there.
    Absent {
        /// When the time of whoever had it is over.
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

/// What we are while we look at the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The leader: nobody else can have had the lease since we renewed it.
    Leading,
    /// A standby: anybody may have had it since we last looked, may have renewed it just before it was deleted, and need not
    /// know yet that it is gone.
    By,
}

impl View {
    /// Takes note of the lease as it was just seen.
    pub(super) fn see(&mut self, found: Box<Lease>, now: Instant) -> News {
        if let Self::Present { lease, .. } = self
            && lease.spec == found.spec
        {
            *lease = found;
            return News::No;
        }
        *self = Self::Present { lease: found, changed: now };
        News::Yes
    }

    /// Takes note that there is no lease.
    pub(super) fn miss(&mut self, me: &Candidate, standing: Standing, now: Instant) -> News {
        let wait = match (&*self, standing) {
            (Self::Absent { .. }, _) => return News::No,
            (Self::Unknown, _) | (Self::Present { .. }, Standing::Leading) => Duration::ZERO,
            (Self::Present { lease, .. }, Standing::By) => {
                term(lease).unwrap_or_default().max(me.settings.lease_duration())
            }
        };
        *self = Self::Absent { free_from: now + wait };
        News::Yes
    }

    /// From when on we may take the lease. Nothing, if we do not know.
    pub(super) fn free_from(&self, me: &Candidate) -> Option<Instant> {
        match self {
            Self::Unknown => None,
            Self::Present { lease, changed } => Some(match holder(lease) {
                None => *changed,
                Some(holder) if holder == me.identity => *changed,
                Some(_) => *changed + term(lease).unwrap_or(me.settings.lease_duration()),
            }),
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

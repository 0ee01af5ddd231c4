//! The record of a lease: its content, when it may be taken, and what is written into it. Nothing here waits.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knr_core::config::LeaderElection;
use tokio::time::Instant;

/// The lease duration in a record that its holder has released.
const RELEASED_SECONDS: i32 = 1;

/// The lease as this process last saw it.
pub(super) enum View {
    /// It was not read yet.
    Unknown,
    /// It exists.
    Present {
        /// The whole object.
        lease: Box<Lease>,
        /// When this process saw its record change.
        changed: Instant,
    },
    /// It does not exist.
    Absent {
        /// When the time of its last holder is over.
        free_from: Instant,
    },
}

/// Whether a record was new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The record is new.
    New,
    /// The record is the same.
    Same,
}

/// The role of this process while it reads the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The leader: no other process can have held the lease since this one renewed it.
    Leader,
    /// A standby: another process may have held the lease since this one last read it, may have renewed it just before
    /// it was deleted, and may not know yet that it is gone.
    Standby,
}

impl View {
    /// Records the lease as it was just read.
    pub(super) fn see(&mut self, found: Box<Lease>, now: Instant) -> Change {
        if let Self::Present { lease, .. } = self
            && lease.spec == found.spec
        {
            *lease = found;
            return Change::Same;
        }
        *self = Self::Present { lease: found, changed: now };
        Change::New
    }

    /// Records that there is no lease.
    pub(super) fn miss(&mut self, me: &Candidate, role: Role, now: Instant) -> Change {
        let wait = match (&*self, role) {
            (Self::Absent { .. }, _) => return Change::Same,
            (Self::Unknown, _) | (Self::Present { .. }, Role::Leader) => Duration::ZERO,
            (Self::Present { lease, .. }, Role::Standby) => {
                term(lease).unwrap_or_default().max(me.settings.lease_duration())
            }
        };
        *self = Self::Absent { free_from: now + wait };
        Change::New
    }

    /// Returns the time from which this process may take the lease, or `None` if it is unknown.
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

    /// Returns the holder of the lease.
    pub(super) fn holder(&self) -> Option<&str> {
        match self {
            Self::Present { lease, .. } => holder(lease),
            Self::Unknown | Self::Absent { .. } => None,
        }
    }

    /// Returns the lease, if there is one.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Present { lease, .. } => Some(lease),
            Self::Unknown | Self::Absent { .. } => None,
        }
    }
}

/// The identity and the settings of a candidate.
pub(super) struct Candidate {
    pub(super) identity: String,
    pub(super) settings: LeaderElection,
}

impl Candidate {
    /// Returns the record that takes or renews the lease. The times in it are for operators.
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

/// Returns the record that releases a lease.
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

/// Returns a renew time that differs from the last one, even if the wall clock has not advanced. Other processes would
/// not notice a renewal that changes nothing.
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

/// Returns the lease duration that the holder has written into the record.
fn term(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

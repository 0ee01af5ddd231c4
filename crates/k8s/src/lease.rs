//! Leader election with a Lease, by the rules of client-go: only one of several controllers acts.
//!
//! ```text
//!             free or expired, and the write succeeded
//!   standby ----------------------------------------------> leading, until (renewal sent + renewDeadline)
//!      ^                                                        |
//!      +---- another one holds it, or `until` has passed -------+
//! ```
//!
//! # Guarantees
//!
//! The right to write lasts until [`Leadership::Leading`]'s `until`, which a writer compares with the clock at each
//! write. A process that was frozen therefore finds its right expired before it writes anything. The right counts from
//! when the renewal was *sent*. Other processes count `leaseDuration` from when they have *seen* it, which is later,
//! and `leaseDuration` is longer than `renewDeadline`. The difference is a margin for requests that are still in flight
//! and for clocks that do not run at the same rate. Nobody compares wall clocks.
//!
//! Every write carries the version of the record that it replaces, so of two concurrent writes one is refused.
//!
//! # Assumptions
//!
//! * The monotonic clock runs while the process is frozen. It stops while the whole machine is suspended.
//! * A write that was begun in time arrives within `leaseDuration - renewDeadline`. Writers ensure that with a
//!   timeout, and with preconditions on what they write.
//! * Only the holder of a lease clears its holder. A lease that is *deleted* does not count as released: a process that
//!   has seen its holder waits until the holder's time is over. Only a controller that starts just then knows nothing
//!   of the holder.

mod calls;
mod elector;
mod error;
mod record;
#[cfg(test)]
mod tests;
mod watch;

use std::future::Future;

use knr_core::config::LeaderElection;
use tokio::sync::{oneshot, watch as channel};
use tokio::time::Instant;

use crate::calls::Verb;
use calls::LeaseCalls;
use elector::Elector;
pub use error::{Cause, LeaseError};

/// The parameters of an election.
pub struct Election {
    /// The client of the API server. It must not retry requests by itself.
    pub client: kube::Client,
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// The identity of this process. No other process may ever use the same one, not even after a restart.
    pub identity: String,
    /// The timing. `leaseDuration` > `renewDeadline` > `retryPeriod`.
    pub settings: LeaderElection,
}

/// Whether this process may write.
#[derive(Clone, Debug, PartialEq)]
pub enum Leadership {
    /// No.
    Standby {
        /// The process that may write, as far as this one knows.
        holder: Option<String>,
    },
    /// Yes, for now.
    Leading {
        /// The time at which the right ends. Each renewal extends it.
        until: Instant,
    },
}

impl Leadership {
    /// Returns whether a write may begin at this time. Call it for each write, with the current time.
    #[must_use]
    pub fn may_write_at(&self, now: Instant) -> bool {
        match self {
            Self::Standby { .. } => false,
            Self::Leading { until } => now < *until,
        }
    }
}

/// A running election. It ends when this is released or dropped.
pub struct Elected {
    /// Whether this process may write.
    pub leadership: channel::Receiver<Leadership>,
    /// The current problem with the lease, if any. The election continues anyway.
    pub trouble: channel::Receiver<Option<LeaseError>>,
    release: oneshot::Sender<Answer>,
    ended: LeaseError,
}

/// Where the outcome of a release is sent.
type Answer = oneshot::Sender<Result<(), LeaseError>>;

impl Election {
    /// Starts the election.
    ///
    /// Once `stop` is ready the lease is no longer taken. If this process leads at that time, the lease is renewed
    /// until it is released, so that writes in flight can be finished.
    pub fn start(self, stop: impl Future<Output = ()> + Send + 'static) -> Elected {
        let (elected, task) = self.prepare(stop);
        tokio::spawn(task);
        elected
    }

    fn prepare(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> (Elected, impl Future<Output = ()> + Send + 'static) {
        let Self { client, namespace, name, identity, settings } = self;
        let (leadership, leads) = channel::channel(Leadership::Standby { holder: None });
        let (trouble, troubles) = channel::channel(None);
        let (release, released) = oneshot::channel::<Answer>();
        let calls = LeaseCalls::new(client, namespace, name, settings.renew_deadline() / 2);
        let ended = calls.error(Verb::Update, Cause::Ended);
        let mut elector = Elector::new(calls, identity, settings, leadership, trouble);
        let task = async move {
            let order = tokio::select! {
                biased;
                order = released => order,
                never = elector.elect(stop) => match never {},
            };
            elector.resign();
            if let Ok(answer) = order {
                // The receiver may be gone.
                let _ = answer.send(elector.release().await);
            }
        };
        (Elected { leadership: leads, trouble: troubles, release, ended }, task)
    }
}

impl Elected {
    /// Releases the lease if this process holds it, so that another one can take it at once, and ends the election. All
    /// writes must be finished.
    ///
    /// # Errors
    ///
    /// If the lease could not be released. Other processes then wait until it has expired.
    pub async fn release(self) -> Result<(), LeaseError> {
        let (answer, outcome) = oneshot::channel();
        if self.release.send(answer).is_err() {
            return Err(self.ended);
        }
        outcome.await.unwrap_or(Err(self.ended))
    }
}

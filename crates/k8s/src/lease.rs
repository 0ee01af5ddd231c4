//! Which of several controllers acts: leader election over a Lease, after the rules of client-go.
//!
//! ```text
//!             free or expired, and our write got through
//!   standby ----------------------------------------------> leading, until (renewal sent + renewDeadline)
//!      ^                                                        |
//!      +---- somebody else has it, or `until` has come ---------+
//! ```
//!
//! # What it promises
//!
//! The right to write is a moment, [`Leadership::Leading`]'s `until`, that a writer compares with the clock at each
//! write. A process that was frozen therefore finds its right expired before anything else of it has run. The
//! right counts from when the renewal was *sent*. Others count `leaseDuration` from when they have *seen* it, which is
//! later, and `leaseDuration` is more than `renewDeadline`: what lies between is for requests that are still on
//! their way and for clocks that do not run at the same rate. Nobody compares wall clocks.
//!
//! Every write carries the version of the record it replaces, so of two that try at the same time one is refused.
//!
//! # What it assumes
//!
//! * The monotonic clock runs while the process is frozen. It stands still while the whole machine sleeps.
//! * A write that was begun in time arrives within `leaseDuration - renewDeadline`. Whoever writes sees to that with
//!   a timeout, and with preconditions on what is written.
//! * Nobody clears the holder of a lease but the holder. A lease that is *deleted* is not taken for released: who
//!   has seen its holder waits until that one's time is over. Only a controller that starts just then knows nothing
//!   of it.

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

/// What an election needs.
pub struct Election {
    /// How the API server is reached. It must not repeat requests by itself.
    pub client: kube::Client,
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Who we are. No other process may ever have the same, not even our own successor.
    pub identity: String,
    /// The times. `leaseDuration` > `renewDeadline` > `retryPeriod`.
    pub settings: LeaderElection,
}

/// Whether we may write.
#[derive(Clone, Debug, PartialEq)]
pub enum Leadership {
    /// No.
    Standby {
        /// Who may, as far as we know.
        holder: Option<String>,
    },
    /// Yes, for now.
    Leading {
        /// The moment from which we may not any more. It moves on with each renewal.
        until: Instant,
    },
}

impl Leadership {
    /// Whether a write may begin at this moment. To be asked with the time of each write, not once for many.
    #[must_use]
    pub fn may_write_at(&self, now: Instant) -> bool {
        match self {
            Self::Standby { .. } => false,
            Self::Leading { until } => now < *until,
        }
    }
}

/// An election under way. It ends when this is released or dropped.
pub struct Elected {
    /// Whether we may write.
    pub leadership: channel::Receiver<Leadership>,
    /// What is wrong with the lease, until it works again. The election goes on all the same.
    pub trouble: channel::Receiver<Option<LeaseError>>,
    release: oneshot::Sender<Answer>,
    ended: LeaseError,
}

/// Where the outcome of a release is sent.
type Answer = oneshot::Sender<Result<(), LeaseError>>;

impl Election {
    /// Begins to stand for election.
    ///
    /// Once `stop` is ready the lease is not taken any more. If we lead then, it is renewed until it is released, so
    /// that what has been begun can be finished.
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
                // Nobody has to wait for the outcome.
                let _ = answer.send(elector.release().await);
            }
        };
        (Elected { leadership: leads, trouble: troubles, release, ended }, task)
    }
}

impl Elected {
    /// Gives the lease back if we have it, so that another takes it at once, and ends the election. All writes must be
    /// finished.
    ///
    /// # Errors
    ///
    /// If the lease could not be given back. Others then wait until it has expired.
    pub async fn release(self) -> Result<(), LeaseError> {
        let (answer, outcome) = oneshot::channel();
        if self.release.send(answer).is_err() {
            return Err(self.ended);
        }
        outcome.await.unwrap_or(Err(self.ended))
    }
}

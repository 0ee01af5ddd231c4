//! Writes on their way to the API server.

use std::sync::Arc;

use jiff::Timestamp;
use knr_core::config::Config;
use knr_core::engine::Order;
use knr_core::queue::QueuedWrite;

/// An order that is waiting or in flight.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The replica that gave the order.
    pub(crate) replica: usize,
    /// The life of the replica.
    pub(crate) life: u32,
    pub(crate) order: Order,
    /// When the order was decided.
    pub(crate) decided: Timestamp,
    /// The start of its wait.
    pub(crate) since: Timestamp,
    /// Since when the API server has not taken it, for an event that is sent again.
    pub(crate) failing: Option<Timestamp>,
    /// The configuration under which it was decided.
    pub(crate) config: Arc<Config>,
}

impl Request {
    /// Returns the number of milliseconds after which it times out.
    pub(crate) fn limit(&self) -> u64 {
        u64::from(self.config.kubernetes.request_timeout_seconds) * 1_000
    }

    /// Returns the write as it was before it was sent.
    pub(crate) fn unsent(&self) -> QueuedWrite {
        let Self { order, decided, since, failing, .. } = self;
        QueuedWrite { order: order.clone(), since: *since, decided: *decided, failing: *failing }
    }
}

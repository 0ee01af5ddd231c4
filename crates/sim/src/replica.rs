//! One of our processes: the rules, fed by watches, and what it has under way.

use jiff::{SignedDuration, Timestamp};
use knr_core::engine::{Engine, Order};
use knr_core::ids::Version;

use crate::api::{KINDS, Kind};

/// One of our processes.
#[derive(Debug)]
pub(crate) struct Replica {
    /// The rules, while the process runs.
    pub(crate) engine: Option<Engine>,
    /// Whether it leads.
    pub(crate) leading: bool,
    /// How often it was started. What belongs to an earlier life is void.
    pub(crate) life: u32,
    /// How far its clock is off.
    pub(crate) clock: SignedDuration,
    /// Its watches.
    pub(crate) streams: [Stream; 3],
    /// The earliest time at which it will decide by itself.
    pub(crate) wake: Option<Timestamp>,
}

/// One watch.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    /// How often it was connected.
    pub(crate) connection: u32,
    /// It is connected.
    pub(crate) connected: bool,
    /// The latest change that is on its way.
    pub(crate) sent: Version,
    /// The latest change that has arrived.
    pub(crate) delivered: Version,
    /// Nothing overtakes within one watch.
    pub(crate) last_arrival: Timestamp,
}

/// A request on its way.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Who sent it.
    pub(crate) replica: usize,
    /// In which of its lives.
    pub(crate) life: u32,
    /// What it asks for.
    pub(crate) order: Order,
}

impl Replica {
    /// A process that is not running.
    #[must_use]
    pub(crate) fn new() -> Self {
        let stream = |_| Stream {
            connection: 0,
            connected: false,
            sent: Version(0),
            delivered: Version(0),
            last_arrival: Timestamp::UNIX_EPOCH,
        };
        Self {
            engine: None,
            leading: false,
            life: 0,
            clock: SignedDuration::ZERO,
            streams: KINDS.map(stream),
            wake: None,
        }
    }

    /// The stream of a kind.
    pub(crate) fn stream(&mut self, kind: Kind) -> &mut Stream {
        let index = match kind {
            Kind::Nodes => 0,
            Kind::Workers => 1,
            Kind::InitPods => 2,
        };
        &mut self.streams[index]
    }
}

impl Default for Replica {
    fn default() -> Self {
        Self::new()
    }
}

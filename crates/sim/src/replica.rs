//! One controller process: the rules, fed by watches, and the writes it has under way.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::config::Config;
use knr_core::engine::Engine;
use knr_core::ids::Version;
use knr_core::view::InitPodView;

use crate::api::{KINDS, Kind};
use crate::writers::Writers;

/// One controller process.
#[derive(Debug)]
pub(crate) struct Replica {
    /// The rules, while the process runs.
    pub(crate) engine: Option<Engine>,
    /// The configuration that the process has taken up.
    pub(crate) config: Arc<Config>,
    /// Whether it leads.
    pub(crate) leading: bool,
    /// How often it was started. What belongs to an earlier life is void.
    pub(crate) life: u32,
    /// How far its clock is off.
    pub(crate) clock: SignedDuration,
    /// Its watches.
    pub(crate) streams: [Stream; 3],
    /// Its writes.
    pub(crate) writers: Writers,
    /// When the right to write ends, unless the lease is renewed before.
    pub(crate) writes_until: Option<Timestamp>,
    /// Until when the process stands still.
    pub(crate) frozen_until: Option<Timestamp>,
    /// When it last listed everything.
    pub(crate) listed: Timestamp,
    /// It has learned something since it last decided.
    pub(crate) due: bool,
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
    /// Everything is to be listed once it is connected again.
    pub(crate) relist: bool,
    /// The latest change that is on its way.
    pub(crate) sent: Version,
    /// The latest change that has arrived.
    pub(crate) delivered: Version,
    /// Nothing overtakes within one watch.
    pub(crate) last_arrival: Timestamp,
}

impl Replica {
    /// A process that is not running. When it does, it has so many places for writes that matter, and so many for the rest.
    #[must_use]
    pub(crate) fn new(config: Arc<Config>, (main, spare): (usize, usize)) -> Self {
        let stream = |_| Stream {
            connection: 0,
            connected: false,
            relist: false,
            sent: Version(0),
            delivered: Version(0),
            last_arrival: Timestamp::UNIX_EPOCH,
        };
        Self {
            engine: None,
            config,
            leading: false,
            life: 0,
            clock: SignedDuration::ZERO,
            streams: KINDS.map(stream),
            writers: Writers::new(main, spare),
            writes_until: None,
            frozen_until: None,
            listed: Timestamp::UNIX_EPOCH,
            due: false,
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

    /// Whether the process watches a kind. Init pods matter to startup gates only.
    #[must_use]
    pub(crate) fn watches(&self, kind: Kind) -> bool {
        match kind {
            Kind::Nodes | Kind::Workers => true,
            Kind::InitPods => !self.config.gates.is_empty(),
        }
    }

    /// Whether a gate may wait for an init pod.
    #[must_use]
    pub(crate) fn waits_for(&self, pod: &InitPodView) -> bool {
        self.config.gates.iter().any(|gate| gate.pod_selector.matches(&pod.labels))
    }

    /// What this process takes for the time.
    #[must_use]
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        now + self.clock
    }
}

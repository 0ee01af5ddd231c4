//! Outages that last for minutes: something that all nodes or all controllers need is gone, and comes back.

use jiff::{SignedDuration, Timestamp};

use crate::rng::Rng;

/// What is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutageKind {
    /// Cluster DNS: the checks fail on every node.
    Dns,
    /// The API server: nobody can read or write, and the checks fail on every node.
    ApiServer,
    /// The image registry: a worker cannot start where its image has never been pulled.
    Registry,
    /// The way from the controllers to the API server. Everybody else still reaches it.
    Partition,
}

const KINDS: [OutageKind; 4] =
    [OutageKind::Dns, OutageKind::ApiServer, OutageKind::Registry, OutageKind::Partition];

impl OutageKind {
    /// Its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dns => "outage of DNS",
            Self::ApiServer => "outage of the API server",
            Self::Registry => "outage of the registry",
            Self::Partition => "outage of the way to the API server",
        }
    }

    fn fails_checks(self) -> bool {
        matches!(self, Self::Dns | Self::ApiServer)
    }

    fn stops_everybody(self) -> bool {
        self == Self::ApiServer
    }

    fn stops_controllers(self) -> bool {
        matches!(self, Self::ApiServer | Self::Partition)
    }
}

/// One outage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    /// What is gone.
    pub(crate) kind: OutageKind,
    /// From when on.
    pub(crate) begins: Timestamp,
    /// Until when.
    pub(crate) ends: Timestamp,
}

/// All outages of a run, which are known from its start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outages(Vec<Outage>);

impl Outages {
    /// So many outages, all of which end before the storm does.
    pub(crate) fn draw(rng: &mut Rng, number: u64, start: Timestamp, stormy: SignedDuration) -> Self {
        let stormy = u64::try_from(stormy.as_secs()).unwrap_or(0);
        let outage = |_| {
            let kind = *rng.pick(&KINDS).unwrap_or(&OutageKind::Dns);
            let lasts = rng.between(30, 300);
            let begins = rng.between(20, stormy.saturating_sub(lasts + 5));
            Outage { kind, begins: start + seconds(begins), ends: start + seconds(begins + lasts) }
        };
        Self((0..number).map(outage).collect())
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Outage] {
        &self.0
    }

    fn is_on(&self, now: Timestamp, of_interest: fn(OutageKind) -> bool) -> bool {
        self.until(now, of_interest).is_some()
    }

    fn until(&self, now: Timestamp, of_interest: fn(OutageKind) -> bool) -> Option<Timestamp> {
        let on = self.0.iter().filter(|outage| outage.begins <= now && now < outage.ends);
        on.filter(|outage| of_interest(outage.kind)).map(|outage| outage.ends).max()
    }

    /// The checks fail on every node.
    #[must_use]
    pub(crate) fn fail_checks(&self, now: Timestamp) -> bool {
        self.is_on(now, OutageKind::fails_checks)
    }

    /// No image can be pulled.
    #[must_use]
    pub(crate) fn stop_pulls(&self, now: Timestamp) -> bool {
        self.is_on(now, |kind| kind == OutageKind::Registry)
    }

    /// Until when nobody reaches the API server.
    #[must_use]
    pub(crate) fn stop_everybody_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.until(now, OutageKind::stops_everybody)
    }

    /// Until when no controller reaches the API server.
    #[must_use]
    pub(crate) fn stop_controllers_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.until(now, OutageKind::stops_controllers)
    }

    /// No image could be pulled at some time in between.
    #[must_use]
    pub(crate) fn stopped_pulls(&self, from: Timestamp, to: Timestamp) -> bool {
        self.0
            .iter()
            .any(|outage| outage.kind == OutageKind::Registry && outage.begins <= to && from <= outage.ends)
    }

    /// From when on a controller that knows nothing older than this may have been cut off.
    #[must_use]
    pub(crate) fn cut_off_since(&self, at: Timestamp) -> Timestamp {
        let cut = self.0.iter().filter(|outage| outage.kind.stops_controllers());
        cut.filter(|outage| outage.begins <= at && at <= outage.ends)
            .map(|outage| outage.begins)
            .min()
            .unwrap_or(at)
    }
}

fn seconds(number: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(number).unwrap_or(i64::MAX))
}

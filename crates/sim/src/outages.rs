//! Outages that last for minutes: something that all nodes or all controllers need is down, and recovers.

use jiff::{SignedDuration, Timestamp};

use crate::rng::Rng;

/// What is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutageKind {
    /// Cluster DNS: the checks fail on every node.
    Dns,
    /// The API server: nobody can read or write, and the checks fail on every node.
    ApiServer,
    /// The image registry: a worker cannot start where its image has never been pulled.
    Registry,
    /// The network between the controllers and the API server. Everybody else still reaches it.
    Partition,
}

const KINDS: [OutageKind; 4] =
    [OutageKind::Dns, OutageKind::ApiServer, OutageKind::Registry, OutageKind::Partition];

impl OutageKind {
    /// A name for the story.
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
    /// What is down.
    pub(crate) kind: OutageKind,
    pub(crate) begins: Timestamp,
    pub(crate) ends: Timestamp,
}

/// All outages of a run. They are drawn before it starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outages(Vec<Outage>);

impl Outages {
    /// Draws this number of outages. All of them end before the storm does.
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

    pub(crate) fn all(&self) -> &[Outage] {
        &self.0
    }

    fn is_on(&self, now: Timestamp, of_interest: fn(OutageKind) -> bool) -> bool {
        self.until(now, of_interest).is_some()
    }

    fn until(&self, now: Timestamp, of_interest: fn(OutageKind) -> bool) -> Option<Timestamp> {
        let on = self.on(now).filter(|outage| of_interest(outage.kind));
        on.map(|outage| outage.ends).max()
    }

    fn on(&self, now: Timestamp) -> impl Iterator<Item = &Outage> {
        self.0.iter().filter(move |outage| outage.begins <= now && now < outage.ends)
    }

    /// Returns the outage by which the checks fail on every node, that of DNS before any other.
    #[must_use]
    pub(crate) fn fail_checks(&self, now: Timestamp) -> Option<OutageKind> {
        let kinds = self.on(now).map(|outage| outage.kind).filter(|kind| kind.fails_checks());
        kinds.max_by_key(|kind| *kind == OutageKind::Dns)
    }

    /// Returns whether no image can be pulled.
    #[must_use]
    pub(crate) fn stop_pulls(&self, now: Timestamp) -> bool {
        self.is_on(now, |kind| kind == OutageKind::Registry)
    }

    /// Returns whether anything is down.
    #[must_use]
    pub(crate) fn is_any(&self, now: Timestamp) -> bool {
        self.on(now).next().is_some()
    }

    /// Returns the time until which nobody reaches the API server.
    #[must_use]
    pub(crate) fn stop_everybody_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.until(now, OutageKind::stops_everybody)
    }

    /// Returns the time until which no controller reaches the API server.
    #[must_use]
    pub(crate) fn stop_controllers_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.until(now, OutageKind::stops_controllers)
    }

    /// Returns whether pulls failed at any time in between.
    #[must_use]
    pub(crate) fn stopped_pulls(&self, from: Timestamp, to: Timestamp) -> bool {
        self.0
            .iter()
            .any(|outage| outage.kind == OutageKind::Registry && outage.begins <= to && from <= outage.ends)
    }

    /// Returns the time since which a controller may have been cut off at `at`, or `at` itself if it was not.
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

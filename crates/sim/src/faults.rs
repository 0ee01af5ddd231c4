//! What goes wrong: by chance, or exactly as planned.

use knr_core::feed::Kind;

use crate::rng::Rng;

/// What happens to one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteFault {
    /// The process ends before the request is sent.
    CrashBefore,
    /// The request is carried out, and the process ends.
    CrashAfter,
    /// The request is carried out, but no answer comes.
    AnswerLost,
    /// No answer comes, and the request is carried out after that.
    Late,
    /// The request is not carried out.
    Error(ErrorClass),
}

/// How the API server fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// 403: not allowed.
    Forbidden,
    /// 409: it says so although nothing changed.
    Conflict,
    /// 410, 422 and the like: the request cannot be done as it is.
    Invalid,
    /// 429: too many requests.
    TooMany,
    /// 500: internal error; it may have been done.
    Internal,
    /// 503: not available, or no connection.
    Unavailable,
    /// 504: timed out; it may have been done.
    Timeout,
}

/// Everything that can happen to a write.
pub(crate) const WRITE_FAULTS: [WriteFault; 11] = [
    WriteFault::CrashBefore,
    WriteFault::CrashAfter,
    WriteFault::AnswerLost,
    WriteFault::Late,
    WriteFault::Error(ErrorClass::Forbidden),
    WriteFault::Error(ErrorClass::Conflict),
    WriteFault::Error(ErrorClass::Invalid),
    WriteFault::Error(ErrorClass::TooMany),
    WriteFault::Error(ErrorClass::Internal),
    WriteFault::Error(ErrorClass::Unavailable),
    WriteFault::Error(ErrorClass::Timeout),
];

/// What happens to one event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventFault {
    /// It never comes.
    Lost,
    /// It comes twice.
    Twice,
}

/// One thing that is to go wrong, numbered by what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planned {
    /// This happens to the n-th write.
    Write(usize, WriteFault),
    /// This happens to the n-th event of a watch.
    Event(usize, EventFault),
    /// After the n-th deletion the process is restarted and sees everything as it was before.
    StaleRead(usize),
}

/// How likely what goes wrong is, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Something happens to a write.
    pub(crate) write: u64,
    /// Something happens to an event.
    pub(crate) event: u64,
    /// A watch breaks when an event is due.
    pub(crate) watch_breaks: u64,
    /// What a restarted process reads is old.
    pub(crate) stale_list: u64,
    /// Events come this much later than at once, at most, in milliseconds.
    pub(crate) delay: u64,
    /// Requests and answers travel this much longer than usual, at most, in milliseconds.
    pub(crate) latency: u64,
}

/// What goes wrong in a run.
#[derive(Debug, Clone)]
pub(crate) enum Faults {
    /// By chance.
    Weather(Weather),
    /// Exactly this.
    Planned(Vec<Planned>),
    /// Nothing.
    None,
}

impl Faults {
    /// What happens to this write.
    pub(crate) fn of_write(&self, number: usize, rng: &mut Rng) -> Option<WriteFault> {
        match self {
            Self::None => None,
            Self::Weather(weather) => {
                rng.permille(weather.write).then(|| rng.pick(&WRITE_FAULTS).copied()).flatten()
            }
            Self::Planned(plan) => plan.iter().find_map(|planned| match planned {
                Planned::Write(at, fault) if *at == number => Some(*fault),
                _ => None,
            }),
        }
    }

    /// What happens to this event.
    pub(crate) fn of_event(&self, number: usize, rng: &mut Rng) -> Option<EventFault> {
        match self {
            Self::None => None,
            Self::Weather(weather) => rng
                .permille(weather.event)
                .then(|| if rng.permille(500) { EventFault::Lost } else { EventFault::Twice }),
            Self::Planned(plan) => plan.iter().find_map(|planned| match planned {
                Planned::Event(at, fault) if *at == number => Some(*fault),
                _ => None,
            }),
        }
    }

    /// The process is restarted after this deletion and reads what was before it.
    pub(crate) fn is_stale_after(&self, deletion: usize) -> bool {
        matches!(self, Self::Planned(plan) if plan.contains(&Planned::StaleRead(deletion)))
    }

    /// The weather, if it is left to chance.
    #[must_use]
    pub(crate) fn weather(&self) -> Weather {
        match self {
            Self::Weather(weather) => *weather,
            Self::Planned(_) | Self::None => Weather::default(),
        }
    }
}

/// For how long an event travels, in milliseconds.
pub(crate) fn travel(kind: Kind, weather: Weather, rng: &mut Rng) -> u64 {
    let base = match kind {
        Kind::Nodes => 5,
        Kind::Workers | Kind::InitPods | Kind::Pools => 6,
    };
    base + rng.below(weather.delay + 1)
}

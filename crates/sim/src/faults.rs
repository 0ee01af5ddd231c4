//! Faults: at random, or exactly as planned.

use knr_core::feed::ObjectKind;

use crate::rng::Rng;

/// A fault of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteFault {
    /// The process crashes before the request is sent.
    CrashBefore,
    /// The request is carried out, and the process crashes.
    CrashAfter,
    /// The request is carried out, but the answer is lost.
    AnswerLost,
    /// The request times out, and is carried out afterwards.
    Late,
    /// The request is not carried out.
    Error(ErrorClass),
}

/// How the API server fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// 403: not allowed.
    Forbidden,
    /// 409, although nothing has changed.
    Conflict,
    /// 410, 422 and the like: the request cannot be carried out as it is.
    Invalid,
    /// 429: too many requests.
    TooMany,
    /// 500: internal error. The request may have been carried out.
    Internal,
    /// 503: not available, or no connection.
    Unavailable,
    /// 504: timed out. The request may have been carried out.
    Timeout,
}

/// All faults of a write.
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

/// A fault of one watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventFault {
    /// It never arrives.
    Lost,
    /// It arrives twice.
    Twice,
}

/// One planned fault. Writes, events and deletions are numbered as in the run without faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planned {
    /// A fault of the n-th write.
    Write(usize, WriteFault),
    /// A fault of the n-th watch event.
    Event(usize, EventFault),
    /// After the n-th deletion the process is restarted and reads the state from before it.
    StaleRead(usize),
}

/// How likely faults are, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// A write has a fault.
    pub(crate) write: u64,
    /// A watch event has a fault.
    pub(crate) event: u64,
    /// A watch breaks when an event is due.
    pub(crate) watch_breaks: u64,
    /// A restarted process reads a stale list.
    pub(crate) stale_list: u64,
    /// The maximum additional delay of a watch event, in milliseconds.
    pub(crate) delay: u64,
    /// The maximum additional latency of a request or an answer, in milliseconds.
    pub(crate) latency: u64,
}

/// The faults of a run.
#[derive(Debug, Clone)]
pub(crate) enum Faults {
    /// At random.
    Weather(Weather),
    /// Exactly these.
    Planned(Vec<Planned>),
    None,
}

impl Faults {
    /// Returns the fault of a write, if it has one.
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

    /// Returns the fault of a watch event, if it has one.
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

    /// Returns whether the process is restarted after this deletion and reads the state from before it.
    pub(crate) fn is_stale_after(&self, deletion: usize) -> bool {
        matches!(self, Self::Planned(plan) if plan.contains(&Planned::StaleRead(deletion)))
    }

    /// Returns the weather. Without random faults it is calm.
    #[must_use]
    pub(crate) fn weather(&self) -> Weather {
        match self {
            Self::Weather(weather) => *weather,
            Self::Planned(_) | Self::None => Weather::default(),
        }
    }
}

/// Draws the delay of a watch event, in milliseconds.
pub(crate) fn travel(kind: ObjectKind, weather: Weather, rng: &mut Rng) -> u64 {
    let base = match kind {
        ObjectKind::Nodes => 5,
        ObjectKind::Workers | ObjectKind::InitPods | ObjectKind::Pools => 6,
    };
    base + rng.below(weather.delay + 1)
}

//! An admission policy that refuses one kind of write: for a while, or for good.

use jiff::{SignedDuration, Timestamp};
use knr_core::action::Action;
use knr_core::names;

use crate::rng::Rng;

/// The kind of write that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Creating workers.
    Worker,
    /// Opening the verification gate.
    Verification,
    /// Opening startup gates.
    Startup,
    /// Setting the condition.
    Condition,
}

/// What is refused, and when.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    what: Refused,
    begins: Timestamp,
    ends: Timestamp,
}

/// The policy of a run, if it has one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Option<Refusal>);

impl Refusals {
    /// Draws a policy that is installed during the storm. Some policies stay for good.
    pub(crate) fn draw(rng: &mut Rng, start: Timestamp) -> Self {
        let what = [Refused::Worker, Refused::Verification, Refused::Startup, Refused::Condition];
        let what = *rng.pick(&what).unwrap_or(&Refused::Worker);
        let begins = start + seconds(rng.below(300));
        let ends = if rng.permille(500) { Timestamp::MAX } else { begins + seconds(rng.between(30, 150)) };
        Self(Some(Refusal { what, begins, ends }))
    }

    /// Returns whether a write is refused now.
    pub(crate) fn refuse(&self, action: &Action, now: Timestamp) -> bool {
        self.now(now).is_some_and(|what| match (what, action) {
            (Refused::Worker, Action::StartWorker { .. })
            | (Refused::Condition, Action::SetCondition { .. }) => true,
            (Refused::Verification, Action::OpenGate { gate, .. }) => gate == names::VERIFICATION_GATE,
            (Refused::Startup, Action::OpenGate { gate, .. }) => gate != names::VERIFICATION_GATE,
            _ => false,
        })
    }

    /// Returns the kind of write that is refused now.
    #[must_use]
    pub(crate) fn now(&self, now: Timestamp) -> Option<Refused> {
        self.0.filter(|refusal| refusal.begins <= now && now < refusal.ends).map(|refusal| refusal.what)
    }
}

fn seconds(number: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(number).unwrap_or(i64::MAX))
}

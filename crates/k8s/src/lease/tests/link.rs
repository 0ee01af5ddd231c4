//! The network between one replica and the API server with all its faults, and the replica's clock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};

use super::rng::Rng;
use crate::calls::Verb;

/// The fault of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    None,
    /// An answer with this status, without an effect.
    Refuse(u16),
    /// Neither an effect nor an answer.
    Hang,
    /// The effect without an answer.
    LostAnswer,
    /// The effect, delayed by this time.
    Late(Duration),
}

/// How bad the network is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Weather {
    /// A few milliseconds each way.
    Fair,
    /// Seconds each way.
    Slow,
    /// Every kind of fault now and then.
    Stormy,
    /// Every request is refused with this status.
    Refusing(u16),
    /// Nothing is answered.
    Silent,
}

struct State {
    owner: String,
    rng: Rng,
    weather: Weather,
    cut: bool,
    forbidden: Vec<Verb>,
    next: VecDeque<(Verb, Fault, Duration, Duration)>,
    permille: i64,
}

/// The network between one replica and the API server.
#[derive(Clone)]
pub(super) struct Link(Arc<Mutex<State>>);

impl Link {
    pub(super) fn new(owner: &str, seed: u64) -> Self {
        let owner = owner.to_owned();
        Self(Arc::new(Mutex::new(State {
            owner,
            rng: Rng::new(seed),
            weather: Weather::Fair,
            cut: false,
            forbidden: Vec::new(),
            next: VecDeque::new(),
            permille: 1000,
        })))
    }

    /// Sets the rate of the replica's clock, in thousandths of the true rate. All electors measure true time, so a fast
    /// clock is simulated by fewer seconds in the record.
    pub(super) fn set_rate(&self, permille: i64) {
        self.state().permille = permille;
    }

    /// Returns the true length of this many seconds by the replica's clock.
    pub(super) fn seconds(&self, nominal: u32) -> u32 {
        u32::try_from(i64::from(nominal) * 1000 / self.state().permille).unwrap()
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    pub(super) fn set_cut(&self, cut: bool) {
        self.state().cut = cut;
    }

    pub(super) fn forbid(&self, verbs: &[Verb]) {
        self.state().forbidden = verbs.to_vec();
    }

    /// Sets the fault of the next request with this verb, and how long it takes there and back.
    pub(super) fn script(&self, verb: Verb, fault: Fault, there: Duration, back: Duration) {
        self.state().next.push_back((verb, fault, there, back));
    }

    pub(super) fn owner(&self) -> String {
        self.state().owner.clone()
    }

    pub(super) fn is_cut(&self) -> bool {
        self.state().cut
    }

    pub(super) fn forbids(&self, verb: Verb) -> bool {
        self.state().forbidden.contains(&verb)
    }

    /// Returns the fault of a request with this verb, and how long it takes there and back.
    pub(super) fn fault(&self, verb: Verb) -> (Fault, Duration, Duration) {
        let mut state = self.state();
        if let Some(at) = state.next.iter().position(|(scripted, ..)| *scripted == verb) {
            let (_, fault, there, back) = state.next.remove(at).unwrap();
            return (fault, there, back);
        }
        let weather = state.weather;
        let rng = &mut state.rng;
        let (there, back) = match weather {
            Weather::Slow => (rng.millis(100..3000), rng.millis(100..3000)),
            Weather::Stormy if rng.percent(20) => (rng.millis(0..9000), rng.millis(0..9000)),
            Weather::Fair | Weather::Stormy | Weather::Refusing(_) | Weather::Silent => {
                (rng.millis(0..10), rng.millis(0..10))
            }
        };
        let fault = match weather {
            Weather::Fair | Weather::Slow => Fault::None,
            Weather::Silent => Fault::Hang,
            Weather::Refusing(code) => Fault::Refuse(code),
            Weather::Stormy => match rng.within(0..100) {
                0..10 => Fault::Refuse(500),
                10..15 => Fault::Refuse(429),
                15..25 => Fault::Hang,
                25..45 => Fault::LostAnswer,
                45..60 => Fault::Late(rng.millis(0..30_000)),
                _ => Fault::None,
            },
        };
        (fault, there, back)
    }

    pub(super) fn to_server(&self, lease: Value) -> Value {
        let permille = self.state().permille;
        with_seconds(lease, |seconds| seconds * permille / 1000)
    }

    pub(super) fn to_client(&self, lease: Value) -> Value {
        let permille = self.state().permille;
        with_seconds(lease, |seconds| seconds * 1000 / permille)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn with_seconds(mut lease: Value, change: impl FnOnce(i64) -> i64) -> Value {
    let seconds = &mut lease["spec"]["leaseDurationSeconds"];
    if let Some(number) = seconds.as_i64() {
        *seconds = json!(change(number).max(1));
    }
    lease
}

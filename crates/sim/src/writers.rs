//! Orders on their way to the API server, as the product's `controller/writers.rs` and `controller/queue.rs` send them:
//! so many at once, gates first, reports last, and nothing that has waited for too long.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::action::{Action, Removal};
use knr_core::config::Config;
use knr_core::engine::{LONGEST_QUEUE, Order};
use knr_core::view::ConditionStatus;

/// Of the requests under way, so many may be such that nothing waits for them.
const IN_THE_BACKGROUND: usize = 8;
/// They are sent once nothing else was under way for this long.
const QUIET: SignedDuration = SignedDuration::from_millis(250);
/// They give way to others for this long.
const GIVES_WAY: SignedDuration = SignedDuration::from_secs(20);

/// An order on its way.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Who gave it.
    pub(crate) replica: usize,
    /// In which of its lives.
    pub(crate) life: u32,
    /// What it asks for.
    pub(crate) order: Order,
    /// When it was decided.
    pub(crate) decided: Timestamp,
    /// Under which configuration.
    pub(crate) config: Arc<Config>,
}

impl Request {
    /// Nothing waits for it.
    fn is_background(&self) -> bool {
        match &self.order.action {
            Action::RemoveWorker { why, .. } => *why == Removal::Spent,
            Action::SetCondition { condition, .. } => condition.status == ConditionStatus::True,
            Action::Tell { .. } => true,
            _ => false,
        }
    }

    fn is_urgent(&self) -> bool {
        matches!(self.order.action, Action::OpenGate { .. } | Action::CloseGate { .. })
    }
}

/// Requests that wait and requests that are under way.
#[derive(Debug)]
pub(crate) struct Writers {
    urgent: VecDeque<Request>,
    usual: VecDeque<Request>,
    background: VecDeque<Request>,
    at_once: usize,
    in_flight: usize,
    in_background: usize,
    /// When something that is waited for was last begun or answered.
    busy: Timestamp,
}

impl Writers {
    /// Nothing waits yet.
    #[must_use]
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            urgent: VecDeque::new(),
            usual: VecDeque::new(),
            background: VecDeque::new(),
            at_once,
            in_flight: 0,
            in_background: 0,
            busy: Timestamp::UNIX_EPOCH,
        }
    }

    /// Forgets everything: the process was started again.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.at_once);
    }

    /// Takes a request.
    pub(crate) fn take(&mut self, request: Request) {
        if request.is_urgent() {
            self.urgent.push_back(request);
        } else if request.is_background() {
            self.background.push_back(request);
        } else {
            self.usual.push_back(request);
        }
    }

    /// The request that is sent next, if one may be sent now.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Request> {
        if self.in_flight >= self.at_once {
            return None;
        }
        let foreground = self.urgent.pop_front().or_else(|| self.usual.pop_front());
        let next = foreground.or_else(|| {
            let has_room = self.in_background < IN_THE_BACKGROUND;
            let is_quiet = self.in_flight == self.in_background && now.duration_since(self.busy) >= QUIET;
            let goes = |request: &mut Request| {
                has_room && (is_quiet || now.duration_since(request.decided) >= GIVES_WAY)
            };
            self.background.pop_front_if(goes)
        })?;
        self.begin(&next, now);
        Some(next)
    }

    /// When to look again, even if nothing happens until then.
    #[must_use]
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        let is_quiet = self.in_flight == self.in_background;
        let has_room = self.in_flight < self.at_once.min(IN_THE_BACKGROUND);
        let for_background = (!self.background.is_empty() && is_quiet && has_room).then(|| self.busy + QUIET);
        let oldest = [&self.urgent, &self.usual, &self.background].into_iter().filter_map(VecDeque::front);
        oldest.map(|request| request.decided + LONGEST_QUEUE).chain(for_background).min()
    }

    /// Takes out what has waited for so long that the rules are about to look into it. It must not be sent any more.
    pub(crate) fn drain_late(&mut self, now: Timestamp) -> Vec<Request> {
        let is_late = |request: &mut Request| now.duration_since(request.decided) >= LONGEST_QUEUE;
        let mut late = Vec::new();
        for queue in [&mut self.urgent, &mut self.usual, &mut self.background] {
            while let Some(request) = queue.pop_front_if(is_late) {
                late.push(request);
            }
        }
        late
    }

    /// Takes out everything that waits.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let all = self.urgent.drain(..).chain(self.usual.drain(..)).chain(self.background.drain(..));
        all.collect()
    }

    /// A request is under way.
    pub(crate) fn begin(&mut self, request: &Request, now: Timestamp) {
        self.in_flight += 1;
        if request.is_background() {
            self.in_background += 1;
        } else {
            self.busy = now;
        }
    }

    /// A request was answered.
    pub(crate) fn landed(&mut self, request: &Request, now: Timestamp) {
        self.in_flight -= 1;
        if request.is_background() {
            self.in_background -= 1;
        } else {
            self.busy = now;
        }
    }
}

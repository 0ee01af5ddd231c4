//! The controllers' writes in flight: sent, carried out or not, answered or not.

use knr_core::action::{Action, Closing, Recorded};
use knr_core::engine::Outcome;
use knr_core::ids::Version;
use knr_core::names;
use knr_core::view::Purpose;

use super::process::is_deletion;
use super::{Event, Sim};
use crate::actors;
use crate::api::Refusal;
use crate::faults::{ErrorClass, WriteFault};
use crate::invariants::Write;
use crate::writers::Request;

impl Sim {
    /// Draws the latency of a request or an answer, in milliseconds.
    pub(crate) fn latency(&mut self) -> u64 {
        let slow = self.faults.weather().latency;
        self.rng.between(1, 4 + slow)
    }

    /// Sends as many requests as may be in flight at once. Without the right to write, all of them wait.
    pub(super) fn dispatch(&mut self, id: usize) {
        let dropped = self.replicas[id].queue.drop_old_events(self.now);
        self.stats.count_many("event dropped: waited for too long", dropped);
        let replica = &self.replicas[id];
        if replica.engine.is_none() || !replica.leading {
            return;
        }
        if replica.writes_until.is_some_and(|until| until <= self.now) {
            self.stats.count("nothing is sent: the lease has ended");
            return;
        }
        while let Some(next) = self.replicas[id].queue.next(self.now) {
            self.replicas[id].harmful.remove(&next.order.action.node().name);
            let request = self.replicas[id].request(id, &next);
            self.monitor.sent(&request, &self.replicas[id].config, &self.api);
            let latency = self.latency();
            self.at(latency, Event::Arrive(Box::new(request)));
        }
    }

    /// A request reaches the API server, or is lost.
    pub(super) fn arrive(&mut self, request: Request) {
        let action = &request.order.action;
        let is_refused = self.refusals.refuse(action, self.now);
        let fault = match (action, self.outages.stop_controllers_until(self.now)) {
            (_, Some(_)) if self.rng.permille(500) => Some(WriteFault::Error(ErrorClass::Timeout)),
            (_, Some(_)) => Some(WriteFault::Error(ErrorClass::Unavailable)),
            (_, None) if is_refused => {
                self.stats.count(match action {
                    Action::OpenGate { gate, .. } if gate != names::VERIFICATION_GATE => {
                        "startup gate refused by a policy"
                    }
                    _ => "write refused by a policy",
                });
                Some(WriteFault::Error(ErrorClass::Forbidden))
            }
            (Action::SendEvent { .. }, None) if !action.reports_deletion() => None,
            (_, None) => self.faults.of_write(self.stats.writes, &mut self.rng),
        };
        let node = request.order.action.node().name.clone();
        self.note(
            node.as_str(),
            format_args!("replica {}: {}{}", request.replica, request.order.action, ShownFault(fault)),
        );
        let is_same_life = self.replicas[request.replica].life == request.life;
        self.stats.writes += 1;
        if fault.is_some() {
            self.monitor.touched(Some(node.as_str()));
        }
        match fault {
            None => {
                let outcome = self.carry_out(&request);
                let latency = self.latency();
                self.at(latency, Event::Answer(Box::new(request), outcome));
            }
            Some(WriteFault::CrashBefore) if is_same_life => self.crash(request.replica, None),
            Some(WriteFault::CrashAfter) => {
                self.carry_out(&request);
                if is_same_life {
                    self.crash(request.replica, None);
                }
            }
            Some(WriteFault::AnswerLost) => {
                self.carry_out(&request);
                self.at(request.limit(), Event::Answer(Box::new(request), Outcome::Unknown));
            }
            Some(WriteFault::Late) => {
                let late = Request { life: 0, ..request.clone() };
                let limit = request.limit();
                self.at(limit, Event::Answer(Box::new(request), Outcome::Unknown));
                let after = limit + self.rng.between(0, 3_000);
                self.at(after, Event::Arrive(Box::new(late)));
            }
            Some(WriteFault::Error(class)) => {
                let (outcome, after) = failure(class, &request);
                self.at(after, Event::Answer(Box::new(request), outcome));
            }
            Some(WriteFault::CrashBefore) => {}
        }
    }

    /// Carries out a request, and checks it against the rules.
    pub(crate) fn carry_out(&mut self, request: &Request) -> Outcome {
        let action = &request.order.action;
        let name = action.node().name.as_str();
        let before = self.api.node(name).cloned();
        let result = self.api.carry_out(action);
        self.stats.deletions += usize::from(is_deletion(action));
        match result {
            Ok(facts) => {
                let write = Write {
                    api: &self.api,
                    machines: &self.actors.machines,
                    outages: &self.outages,
                    request,
                    before,
                    now: self.now,
                };
                self.monitor.after(&write);
                self.stats.count(kind_of(action));
                if matches!(action, Action::DeleteNode { claim: Some(_), .. }) {
                    actors::claim_deleted(self, action.node());
                }
                if is_deletion(action) && self.faults.is_stale_after(self.stats.deletions) {
                    let past = Version(self.api.version().0.saturating_sub(1));
                    self.crash(request.replica, Some(past));
                }
                Outcome::Done(facts)
            }
            Err(refusal) => {
                self.note(name, format_args!("  refused: {refusal:?}"));
                match refusal {
                    Refusal::NotFound | Refusal::Conflict | Refusal::Invalid(_) => Outcome::Conflict,
                }
            }
        }
    }

    pub(super) fn answer(&mut self, request: &Request, outcome: Outcome) {
        let Request { replica: id, life, order, .. } = request;
        let (now, true_now) = (self.replicas[*id].time(self.now), self.now);
        let replica = &mut self.replicas[*id];
        if replica.life != *life {
            return;
        }
        let Some(engine) = &mut replica.engine else { return };
        replica.queue.answered(&order.action, true_now);
        self.monitor.answered(request, &outcome, true_now);
        let is_taken = !matches!(outcome, Outcome::Unavailable | Outcome::Unknown);
        let settings = &replica.config.reconciliation;
        let is_silent = settings.paused || settings.dry_run;
        for event in engine.settle(order, outcome, now) {
            if !is_silent || event.reports_deletion() {
                replica.queue.report(event, true_now);
            }
        }
        if !is_taken
            && order.action.reports_deletion()
            && replica.queue.send_again(request.unsent(), true_now)
        {
            self.stats.count("report of a deletion sent again");
        }
        replica.due = true;
    }
}

/// Returns a short description of a write, for the statistics.
fn kind_of(action: &Action) -> &'static str {
    match action {
        Action::StartWorker { stamp } if stamp.purpose == Purpose::Reference => "reference run",
        Action::StartWorker { .. } => "run to verify",
        Action::RemoveWorker { .. } => "worker removed",
        Action::OpenGate { gate, .. } if gate == names::VERIFICATION_GATE => "verification gate opened",
        Action::OpenGate { .. } => "startup gate opened",
        Action::CloseGate { because: Closing::FailedAgain, .. } => "gate closed: failed again",
        Action::CloseGate { because: Closing::Rebooted, .. } => "gate closed: restarted",
        Action::CloseGate { because: Closing::Backfill, .. } => "gate closed: never had it",
        Action::Record { what: Recorded::Failure, .. } => "failure recorded",
        Action::Record { what: Recorded::NoVerdict, .. } => "run without a verdict recorded",
        Action::Record { what: Recorded::Reference, .. } => "reference run recorded",
        Action::SetCondition { .. } => "condition set",
        Action::SendEvent { .. } => "event",
        Action::ReserveDeletion { .. } => "deletion reserved",
        Action::DeleteNode { claim: Some(_), .. } => "node deleted by its claim",
        Action::DeleteNode { claim: None, .. } => "node deleted",
    }
}

/// A fault as it is shown in the story.
pub(crate) struct ShownFault(pub(crate) Option<WriteFault>);

impl std::fmt::Display for ShownFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |fault| write!(f, " ({fault:?})"))
    }
}

/// Returns the answer to a request that fails, and its delay in milliseconds.
pub(crate) fn failure(class: ErrorClass, request: &Request) -> (Outcome, u64) {
    match class {
        ErrorClass::Forbidden => (Outcome::Refused("forbidden".to_owned()), 2),
        ErrorClass::Conflict | ErrorClass::Invalid => (Outcome::Conflict, 2),
        ErrorClass::TooMany | ErrorClass::Unavailable => (Outcome::Unavailable, 2),
        ErrorClass::Internal => (Outcome::Unknown, 2),
        ErrorClass::Timeout => (Outcome::Unknown, request.limit()),
    }
}

//! Writes for tests.

use jiff::Timestamp;

use crate::action::{Action, EventReason, EventText, Removal};
use crate::engine::Order;
use crate::ids::{NodeRef, WorkerRef};
use crate::names;
use crate::patch::NodePatch;
use crate::view::{Condition, ConditionStatus, Purpose, Stamp};

pub(super) fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

pub(crate) fn node(name: &str) -> NodeRef {
    NodeRef { name: name.into(), uid: format!("uid-of-{name}").as_str().into() }
}

fn event_text(reason: EventReason) -> EventText {
    EventText { reason, message: String::new(), warning: false }
}

pub(super) fn order(ticket: u64, action: Action) -> Order {
    Order { ticket, action }
}

pub(crate) fn event(name: &str) -> Action {
    Action::SendEvent { node: node(name), claim: None, event: event_text(EventReason::Verified) }
}

pub(super) fn deletion_event(name: &str) -> Action {
    Action::SendEvent { node: node(name), claim: None, event: event_text(EventReason::NodeDeleted) }
}

pub(crate) fn stamp(name: &str) -> Stamp {
    Stamp {
        node: node(name),
        boot: "b".into(),
        serial: 1,
        attempt: 1,
        purpose: Purpose::Verify,
        policy: "default".into(),
        requires: "".into(),
    }
}

pub(crate) fn start(name: &str) -> Action {
    Action::StartWorker { stamp: stamp(name) }
}

pub(super) fn open(name: &str) -> Action {
    let (gate, patch) = (names::VERIFICATION_GATE.to_owned(), NodePatch(Vec::new()));
    Action::OpenGate { node: node(name), gate, patch, event: event_text(EventReason::Verified) }
}

pub(super) fn condition(name: &str, status: ConditionStatus) -> Action {
    let condition = Condition { status, reason: String::new(), message: String::new() };
    Action::SetCondition { node: node(name), condition, before: None, only_waits: false }
}

pub(super) fn waiting(name: &str) -> Action {
    let condition =
        Condition { status: ConditionStatus::Unknown, reason: String::new(), message: String::new() };
    Action::SetCondition { node: node(name), condition, before: None, only_waits: true }
}

pub(super) fn verified(name: &str) -> Action {
    condition(name, ConditionStatus::True)
}

pub(super) fn removal(name: &str) -> Action {
    let worker = WorkerRef { name: format!("worker-of-{name}"), uid: "w".into() };
    Action::RemoveWorker { node: node(name), worker, why: Removal::Spent }
}

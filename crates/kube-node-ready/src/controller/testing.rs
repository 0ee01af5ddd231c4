//! Orders for tests.

use knr_core::action::{Action, EventReason, EventText, Removal};
use knr_core::engine::Order;
use knr_core::ids::{NodeRef, Version, WorkerRef};
use knr_core::patch::NodePatch;
use knr_core::view::{Condition, ConditionStatus, Purpose, Stamp};

pub(super) fn node(name: &str) -> NodeRef {
    NodeRef { name: name.into(), uid: format!("uid-of-{name}").as_str().into() }
}

fn event_text() -> EventText {
    EventText { reason: EventReason::Verified, message: String::new(), warning: false }
}

pub(super) fn order(ticket: u64, action: Action) -> Order {
    Order { ticket, action }
}

pub(super) fn event(name: &str) -> Action {
    Action::SendEvent { node: node(name), claim: None, event: event_text() }
}

pub(super) fn deletion_event(name: &str) -> Action {
    let event = EventText { reason: EventReason::NodeDeleted, ..event_text() };
    Action::SendEvent { node: node(name), claim: None, event }
}

pub(super) fn deletion(name: &str, version: Version) -> Action {
    Action::DeleteNode { node: node(name), version, claim: None, event: event_text() }
}

pub(super) fn start(name: &str) -> Action {
    let stamp = Stamp {
        node: node(name),
        boot: "b".into(),
        serial: 1,
        attempt: 1,
        purpose: Purpose::Verify,
        policy: "default".into(),
        requires: "".into(),
    };
    Action::StartWorker { stamp }
}

pub(super) fn open(name: &str) -> Action {
    let (gate, patch) = (knr_core::names::VERIFICATION_GATE.to_owned(), NodePatch(Vec::new()));
    Action::OpenGate { node: node(name), gate, patch, event: event_text() }
}

pub(super) fn condition(name: &str, status: ConditionStatus) -> Action {
    let condition = Condition { status, reason: String::new(), message: String::new() };
    Action::SetCondition { node: node(name), condition, before: None }
}

pub(super) fn verified(name: &str) -> Action {
    condition(name, ConditionStatus::True)
}

pub(super) fn removal(name: &str) -> Action {
    let worker = WorkerRef { name: format!("worker-of-{name}"), uid: "w".into() };
    Action::RemoveWorker { node: node(name), worker, why: Removal::Spent }
}

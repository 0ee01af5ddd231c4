//! Orders for tests.

use jiff::Timestamp;
use knr_core::action::{Action, EventReason, EventText};
use knr_core::engine::Order;
use knr_core::ids::{NodeRef, Version};
use knr_core::queue::QueuedWrite;

pub(super) fn node(name: &str) -> NodeRef {
    NodeRef { name: name.into(), uid: format!("uid-of-{name}").as_str().into() }
}

pub(super) fn sent(action: Action) -> QueuedWrite {
    let now = Timestamp::UNIX_EPOCH;
    QueuedWrite { order: order(1, action), since: now, decided: now, failing: None }
}

pub(super) fn order(ticket: u64, action: Action) -> Order {
    Order { ticket, action }
}

pub(super) fn deletion(name: &str, version: Version) -> Action {
    let event = EventText { reason: EventReason::NodeDeleted, message: String::new(), warning: true };
    Action::DeleteNode { node: node(name), version, claim: None, event }
}

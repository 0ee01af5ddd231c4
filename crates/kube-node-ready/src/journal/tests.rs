use knr_core::action::{Closing, EventText, Recorded};
use knr_core::config::Level;
use knr_core::explain::{Access, Why};
use knr_core::ids::NodeRef;
use knr_core::patch::NodePatch;
use knr_core::view::{ClaimRef, Condition, ConditionStatus};
use serde_json::json;

use super::*;
use crate::telemetry::tests::Captured;

fn node() -> NodeRef {
    NodeRef { name: "n1".into(), uid: "u1".into() }
}

fn start() -> Action {
    let stamp = Stamp {
        node: node(),
        boot: "b".into(),
        serial: 1,
        attempt: 1,
        purpose: Purpose::Verify,
        policy: "default".into(),
        requires: "".into(),
    };
    Action::StartWorker { stamp }
}

fn open(gate: &str, reason: EventReason) -> Action {
    let event = EventText { reason, message: "open: verified on attempt 1".to_owned(), warning: false };
    Action::OpenGate { node: node(), gate: gate.to_owned(), patch: NodePatch(Vec::new()), event }
}

fn close(gate: &str) -> Action {
    let event = EventText { reason: EventReason::Closed, message: String::new(), warning: true };
    let (gate, patch) = (gate.to_owned(), NodePatch(Vec::new()));
    Action::CloseGate { node: node(), gate, because: Closing::Rebooted, patch, event }
}

fn condition() -> Action {
    let condition =
        Condition { status: ConditionStatus::True, reason: String::new(), message: String::new() };
    Action::SetCondition { node: node(), condition, before: None, only_waits: false }
}

fn delete(claim: Option<&str>) -> Action {
    let claim = claim.map(|name| ClaimRef { name: name.to_owned(), uid: "c".into() });
    let event =
        EventText { reason: EventReason::NodeDeleted, message: "it failed".to_owned(), warning: true };
    Action::DeleteNode { node: node(), version: knr_core::ids::Version(1), claim, event }
}

/// The phases of a node, one after another.
struct Life {
    before: Option<Phase>,
    is_taken_over: bool,
}

impl From<Option<Phase>> for Life {
    fn from(before: Option<Phase>) -> Self {
        Self { before, is_taken_over: false }
    }
}

impl Life {
    fn turns(&mut self, phase: Phase, order: Option<&Action>) {
        let now = Explanation::new(phase, Access::Closed, Why::Deleting);
        let is_taken_over = self.is_taken_over;
        status(&Change { node: &node().name, before: self.before, now: Some(&now), order, is_taken_over });
        self.before = Some(phase);
    }
}

fn done(action: &Action, worker_took: Option<Duration>) {
    let (outcome, label) = (Outcome::Done(Vec::new()), Label::default());
    let took = Duration::ZERO;
    let answered = Answered { action, outcome: &outcome, took, worker_took, label: &label };
    answer(&answered, &mut Refusals::default());
}

#[test]
fn a_node_that_passes_costs_four_lines() {
    let log = Captured::start(Level::Info);
    let mut life = Life::from(None);
    life.turns(Phase::Unverified, Some(&start()));
    sending(&start());
    done(&start(), None);
    life.turns(Phase::Pending, None);
    life.turns(Phase::InProgress, None);
    let opening = open(names::VERIFICATION_GATE, EventReason::Verified);
    life.turns(Phase::Unverified, Some(&opening));
    sending(&opening);
    done(&opening, Some(Duration::from_millis(45_240)));
    life.turns(Phase::Verified, Some(&condition()));
    sending(&condition());
    done(&condition(), None);
    assert_eq!(
        log.lines(),
        [
            json!({ "level": "info", "msg": "Node added to queue", "node": "n1", "phase": "unverified", "state": "closed: the node is being deleted" }),
            json!({ "level": "info", "msg": "Creating worker pod", "node": "n1", "pod": worker_name(&"u1".into()), "attempt": 1 }),
            json!({ "level": "info", "msg": "Worker completed successfully", "node": "n1", "duration": "45.2s" }),
            json!({ "level": "info", "msg": "Node verified", "node": "n1", "label": "node-ready/verified=true", "state": "open: verified on attempt 1" }),
        ]
    );
}

#[test]
fn what_a_node_waits_for_besides_is_reported() {
    let log = Captured::start(Level::Info);
    let mut life = Life::from(Some(Phase::Pending));
    life.turns(Phase::Pending, None);
    life.turns(Phase::InProgress, None);
    life.turns(Phase::Unverified, None);
    assert_eq!(log.messages(), vec![("info".to_owned(), "Node status changed".to_owned()); 2]);
}

#[test]
fn a_failure_is_one_warning_for_each_attempt() {
    let log = Captured::start(Level::Info);
    let record =
        Action::Record { node: node(), what: Recorded::Failure, patch: NodePatch(Vec::new()), event: None };
    let mut life = Life::from(Some(Phase::InProgress));
    life.turns(Phase::Failed, Some(&record));
    life.turns(Phase::Failed, Some(&start()));
    assert_eq!(log.messages(), [("warn".to_owned(), "Verification failed".to_owned())]);
    life.turns(Phase::Pending, None);
    life.turns(Phase::Failed, Some(&record));
    assert_eq!(log.messages(), [("warn".to_owned(), "Verification failed".to_owned())]);
}

#[test]
fn nodes_that_were_verified_before_are_not_told_of_one_by_one() {
    let log = Captured::start(Level::Info);
    for phase in [Phase::Verified, Phase::OutOfScope] {
        Life::from(None).turns(phase, None);
    }
    status(&Change {
        node: &node().name,
        before: Some(Phase::OutOfScope),
        now: None,
        order: None,
        is_taken_over: false,
    });
    assert!(log.lines().is_empty());
    status(&Change {
        node: &node().name,
        before: Some(Phase::Verified),
        now: None,
        order: None,
        is_taken_over: false,
    });
    assert_eq!(log.messages(), [("info".to_owned(), "Node is gone".to_owned())]);
}

#[test]
fn a_deletion_is_reported_before_and_after() {
    let log = Captured::start(Level::Info);
    for action in [delete(Some("default-12345")), delete(None)] {
        sending(&action);
        done(&action, None);
    }
    let claim = "default-12345";
    assert_eq!(
        log.lines(),
        [
            json!({ "level": "info", "msg": "Found NodeClaim for failed node, deleting NodeClaim instead", "node": "n1", "nodeClaim": claim }),
            json!({ "level": "info", "msg": "Successfully deleted NodeClaim, node should be terminated by Karpenter", "node": "n1", "nodeClaim": claim, "reason": "it failed" }),
            json!({ "level": "info", "msg": "Deleting failed node", "node": "n1" }),
            json!({ "level": "info", "msg": "Successfully deleted node", "node": "n1", "reason": "it failed" }),
        ]
    );
}

#[test]
fn gates_that_open_and_close_are_reported() {
    let log = Captured::start(Level::Info);
    for action in [close("cni"), open("cni", EventReason::StartupCompleted), close(names::VERIFICATION_GATE)]
    {
        sending(&action);
        done(&action, None);
    }
    done(&open(names::VERIFICATION_GATE, EventReason::TaintRemovedAgain), None);
    let messages: Vec<String> = log.messages().into_iter().map(|(_, message)| message).collect();
    let expected = [
        "Adding startup taint",
        "Node closed",
        "Removed startup taint",
        "Node closed",
        "Taint removed again",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn a_failure_of_the_time_before_is_no_warning() {
    let log = Captured::start(Level::Info);
    for phase in [Phase::Failed, Phase::Unverified, Phase::Pending, Phase::Verified] {
        Life { before: None, is_taken_over: true }.turns(phase, None);
    }
    assert!(log.lines().is_empty());
    Life::from(None).turns(Phase::Failed, None);
    assert_eq!(log.messages(), [("info".to_owned(), "Node status changed".to_owned())]);
}

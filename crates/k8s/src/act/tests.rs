use knr_core::action::{Closing, EventReason, EventText, Recorded, Removal};
use knr_core::config::Config;
use knr_core::ids::WorkerRef;
use knr_core::patch::PatchBuilder;
use knr_core::policy::{Policies, Policy};
use knr_core::view::{Condition, ConditionStatus, Purpose, Stamp};
use serde_json::json;

use super::*;
use crate::testing::{Answer, FakeServer};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

fn node() -> NodeRef {
    NodeRef { name: "n1".into(), uid: "u1".into() }
}

fn event_text() -> EventText {
    EventText { reason: EventReason::Verified, message: "open: verified".to_owned(), warning: false }
}

fn object(kind: &str) -> Value {
    json!({ "kind": kind, "metadata": { "name": "n1", "uid": "u1", "resourceVersion": "8" } })
}

fn patch() -> NodePatch {
    let view = NodeView::from(serde_json::from_value::<SlimNode>(object("Node")).unwrap());
    PatchBuilder::new(&view).annotate("a", "b".to_owned()).build()
}

fn stamp() -> Stamp {
    Stamp {
        node: node(),
        boot: "b1".into(),
        serial: 1,
        attempt: 1,
        purpose: Purpose::Verify,
        policy: "default".into(),
        requires: "".into(),
    }
}

async fn outcome(action: &Action, answers: Vec<Answer>) -> (Outcome, FakeServer) {
    let server = FakeServer::answering(answers);
    let actor = Actor::new(server.api(), "me".to_owned());
    let outcome = actor
        .carry_out(action, &Policies::from(&Config::default()), Timestamp::UNIX_EPOCH, Instant::now() + LIMIT)
        .await;
    (outcome, server)
}

#[expect(clippy::too_many_lines, reason = "one entry for each action")]
fn actions() -> Vec<(Action, &'static str, Option<&'static str>)> {
    let (json, patch_type) = (Some("application/json"), Some("application/json-patch+json"));
    let worker = WorkerRef { name: "w".into(), uid: "wu".into() };
    let condition = Condition { status: ConditionStatus::True, reason: "r".into(), message: "m".into() };
    let gate = || "verification".to_owned();
    vec![
        (
            Action::StartWorker { stamp: stamp() },
            "POST /api/v1/namespaces/workers/pods?fieldManager=kube-node-ready",
            json,
        ),
        (
            Action::RemoveWorker { node: node(), worker, why: Removal::Spent },
            "DELETE /api/v1/namespaces/workers/pods/w",
            json,
        ),
        (
            Action::OpenGate { node: node(), gate: gate(), patch: patch(), event: event_text() },
            "PATCH /api/v1/nodes/n1?fieldManager=kube-node-ready",
            patch_type,
        ),
        (
            Action::CloseGate {
                node: node(),
                gate: gate(),
                because: Closing::Rebooted,
                patch: patch(),
                event: event_text(),
            },
            "PATCH /api/v1/nodes/n1?fieldManager=kube-node-ready",
            patch_type,
        ),
        (
            Action::Record { node: node(), what: Recorded::Failure, patch: patch(), event: None },
            "PATCH /api/v1/nodes/n1?fieldManager=kube-node-ready",
            patch_type,
        ),
        (
            Action::SetCondition { node: node(), condition, before: None, only_waits: false },
            "PATCH /api/v1/nodes/n1/status?fieldManager=kube-node-ready",
            Some("application/strategic-merge-patch+json"),
        ),
        (
            Action::SendEvent { node: node(), claim: None, event: event_text() },
            "POST /apis/events.k8s.io/v1/namespaces/default/events?fieldManager=kube-node-ready",
            json,
        ),
        (
            Action::ReserveDeletion { node: node(), version: Version(0), entries: Vec::new() },
            "POST /api/v1/namespaces/own/configmaps?fieldManager=kube-node-ready",
            json,
        ),
        (
            Action::ReserveDeletion { node: node(), version: Version(3), entries: Vec::new() },
            "PUT /api/v1/namespaces/own/configmaps/kube-node-ready-deletions?fieldManager=kube-node-ready",
            json,
        ),
        (
            Action::DeleteNode { node: node(), version: Version(8), claim: None, event: event_text() },
            "DELETE /api/v1/nodes/n1",
            json,
        ),
    ]
}

#[tokio::test]
async fn every_action_is_one_request() {
    for (action, line, kind) in actions() {
        let (outcome, server) = outcome(&action, vec![Answer::Json(200, object("Any"))]).await;
        assert!(matches!(outcome, Outcome::Done(_)), "{action}: {outcome:?}");
        let received = server.received();
        assert_eq!(received.len(), 1, "{action}");
        assert_eq!((received[0].line.as_str(), received[0].kind.as_deref()), (line, kind), "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_of_it_is_reported_in_the_words_of_the_rules() {
    let status = |code: u16| json!({ "kind": "Status", "code": code, "message": "m", "reason": "r" });
    for (action, ..) in actions() {
        for (code, expected) in [
            (400, "refused"),
            (403, "refused"),
            (404, "conflict"),
            (409, "conflict"),
            (422, "conflict"),
            (429, "unavailable"),
            (500, "unknown"),
            (503, "unavailable"),
            (504, "unknown"),
        ] {
            if code == 404 && matches!(&action, Action::ReserveDeletion { version: Version(3), .. }) {
                continue;
            }
            let (outcome, _) = outcome(&action, vec![Answer::Json(code, status(code))]).await;
            assert_eq!(outcome_name(&outcome), expected, "{action}: {code}");
        }
        let (outcome, _) = outcome(&action, vec![Answer::Silence]).await;
        assert_eq!(outcome, Outcome::Unknown, "{action}: silence");
    }
}

#[tokio::test]
async fn an_object_that_is_not_allowed_is_a_refusal_and_a_failed_test_is_not() {
    let (open, ..) = actions().swap_remove(2);
    let invalid = |field: &str| {
        json!({
            "kind": "Status", "code": 422, "reason": "Invalid", "message": "n1 is invalid",
            "details": { "causes": [{ "reason": "FieldValueInvalid", "message": "bad", "field": field }] },
        })
    };
    let (refused, _) = outcome(&open, vec![Answer::Json(422, invalid("spec.taints"))]).await;
    assert_eq!(refused, Outcome::Refused("n1 is invalid".to_owned()));
    let (other, _) = outcome(&open, vec![Answer::Json(422, invalid("metadata.uid"))]).await;
    assert_eq!(other, Outcome::Conflict);
}

#[tokio::test]
async fn who_refused_a_worker_is_reported() {
    let start = Action::StartWorker { stamp: stamp() };
    let refusals = [
        (
            403,
            "pods \"w\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1",
        ),
        (403, "pods \"w\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true"),
        (403, "pods is forbidden: User \"x\" cannot create resource \"pods\" in API group \"\""),
        (422, "pods \"w\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
        (400, "admission webhook \"validate.kyverno.svc-fail\" denied the request: no"),
        (409, "admission webhook \"a.example\" denied the request without explanation"),
        (422, "admission webhook \"a.example\" denied the request: no"),
        (429, "admission webhook \"a.example\" denied the request: no"),
        (500, "admission webhook \"a.example\" denied the request: no"),
        (500, "Internal error occurred: failed calling webhook \"a.example\": no endpoints available"),
    ];
    for (code, message) in refusals {
        let causes = if message.contains("Policy") { json!([{ "message": "no" }]) } else { json!([]) };
        let status = json!({
            "kind": "Status", "code": code, "message": message, "reason": "r", "details": { "causes": causes },
        });
        let (refused, _) = outcome(&start, vec![Answer::Json(code, status)]).await;
        assert_eq!(refused, Outcome::Refused(message.to_owned()), "{code}");
    }
}

#[tokio::test]
async fn a_refusal_is_one_line_of_a_bearable_length() {
    let start = Action::StartWorker { stamp: stamp() };
    let said =
        |message: String| json!({ "kind": "Status", "code": 403, "message": message, "reason": "Forbidden" });
    let (refused, _) =
        outcome(&start, vec![Answer::Json(403, said("blocked by\n\n  policy: p\n".to_owned()))]).await;
    assert_eq!(refused, Outcome::Refused("blocked by policy: p".to_owned()));
    let (refused, _) = outcome(&start, vec![Answer::Json(403, said(String::new()))]).await;
    assert_eq!(refused, Outcome::Refused("status 403 Forbidden".to_owned()));
    let (refused, _) = outcome(&start, vec![Answer::Json(403, said("ü".repeat(9000)))]).await;
    let Outcome::Refused(why) = refused else { panic!("{refused:?}") };
    assert_eq!(why.chars().count(), MAX_REFUSAL_CHARS + 1);
}

#[tokio::test]
async fn answers_bring_facts() {
    let (open, ..) = actions().swap_remove(2);
    let (done, _) = outcome(&open, vec![Answer::Json(200, object("Node"))]).await;
    let Outcome::Done(facts) = done else { panic!() };
    assert!(matches!(&facts[..], [Fact::Node(view, Source::Answer)] if view.version == Version(8)));

    let start = Action::StartWorker { stamp: stamp() };
    let mut pod = objects::worker(&stamp(), &Policy::from(&Config::default()));
    pod["metadata"]["uid"] = json!("wu");
    let (done, _) = outcome(&start, vec![Answer::Json(201, pod.clone())]).await;
    let Outcome::Done(facts) = done else { panic!() };
    assert!(matches!(&facts[..], [Fact::Worker(view, Source::Answer)] if view.stamp == stamp()));

    let remove = Action::RemoveWorker {
        node: node(),
        worker: WorkerRef { name: "w".into(), uid: "wu".into() },
        why: Removal::Spent,
    };
    let (done, server) = outcome(&remove, vec![Answer::Json(200, pod.clone())]).await;
    let Outcome::Done(facts) = done else { panic!() };
    assert!(
        matches!(&facts[..], [Fact::WorkerGone(_, node, _, Source::Answer)] if *node == stamp().node.name)
    );
    assert_eq!(server.received()[0].body["preconditions"], json!({ "uid": "wu" }));
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (done, _) = outcome(&remove, vec![Answer::Json(200, pod)]).await;
    let Outcome::Done(facts) = done else { panic!() };
    assert!(matches!(&facts[..], [Fact::Worker(view, _)] if view.leaving));
}

#[tokio::test]
async fn a_deleted_node_is_gone_at_once_unless_others_clean_up_first() {
    let delete = Action::DeleteNode { node: node(), version: Version(8), claim: None, event: event_text() };
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                         "details": { "name": "n1", "kind": "nodes", "uid": "u1" } });
    let (done, _) = outcome(&delete, vec![Answer::Json(200, status)]).await;
    assert_eq!(done, Outcome::Done(vec![Fact::NodeGone(node(), Version(8))]));
    let mut left = object("Node");
    left["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (done, _) = outcome(&delete, vec![Answer::Json(200, left)]).await;
    let Outcome::Done(facts) = done else { panic!() };
    assert!(matches!(&facts[..], [Fact::Node(view, _)] if view.leaving), "{facts:?}");
}

#[tokio::test]
async fn a_claim_is_deleted_only_if_its_node_is_still_what_was_seen() {
    let claim = Some(ClaimRef { name: "c1".into(), uid: "cu".into() });
    let delete = Action::DeleteNode { node: node(), version: Version(8), claim, event: event_text() };
    let list =
        |items: Value| Answer::Json(200, json!({ "metadata": { "resourceVersion": "9" }, "items": items }));
    let unchanged = || list(json!([object("Node")]));
    let of = |uid: &str, node: &str| {
        Answer::Json(200, json!({ "metadata": { "uid": uid }, "status": { "nodeName": node } }))
    };
    let (done, server) =
        outcome(&delete, vec![unchanged(), of("cu", "n1"), Answer::Json(200, json!({}))]).await;
    assert_eq!(done, Outcome::Done(Vec::new()));
    assert_eq!(
        server.lines(),
        [
            "GET /api/v1/nodes?fieldSelector=metadata.name%3Dn1",
            "GET /apis/karpenter.sh/v1/nodeclaims/c1",
            "DELETE /apis/karpenter.sh/v1/nodeclaims/c1"
        ]
    );
    // The node's reference to its claim is under the control of the kubelet.
    let gone = Answer::Json(404, json!({ "kind": "Status", "code": 404, "reason": "NotFound" }));
    let leaving = json!({ "uid": "cu", "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let leaving = Answer::Json(200, json!({ "metadata": leaving, "status": { "nodeName": "n1" } }));
    for claim in [of("cu", "n2"), of("other", "n1"), gone, leaving] {
        let (outcome, server) = outcome(&delete, vec![unchanged(), claim]).await;
        assert_eq!((outcome, server.lines().len()), (Outcome::Conflict, 2));
    }
    let mut changed = object("Node");
    changed["metadata"]["resourceVersion"] = json!("9");
    let mut another = object("Node");
    another["metadata"]["uid"] = json!("u2");
    for items in [json!([]), json!([changed]), json!([another])] {
        let (outcome, server) = outcome(&delete, vec![list(items)]).await;
        assert_eq!((outcome, server.lines().len()), (Outcome::Conflict, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_deadline() {
    let server = FakeServer::answering([]);
    let actor = Actor::new(server.api(), "me".to_owned());
    for (action, ..) in actions() {
        let outcome = actor
            .carry_out(&action, &Policies::from(&Config::default()), Timestamp::UNIX_EPOCH, Instant::now())
            .await;
        assert_eq!(outcome, Outcome::Unavailable, "{action}");
    }
    assert!(server.lines().is_empty());
}

#[tokio::test]
async fn a_missing_namespace_is_reported() {
    let (start, ..) = actions().swap_remove(0);
    let missing = json!({
        "kind": "Status", "code": 404, "reason": "NotFound", "message": "namespaces \"x\" not found",
        "details": { "name": "x", "kind": "namespaces" },
    });
    let (refused, _) = outcome(&start, vec![Answer::Json(404, missing)]).await;
    assert_eq!(refused, Outcome::Refused("namespaces \"x\" not found".to_owned()));
}

#[tokio::test]
async fn a_ledger_that_was_deleted_is_made_again() {
    let reserve = Action::ReserveDeletion { node: node(), version: Version(3), entries: Vec::new() };
    let gone = json!({ "kind": "Status", "code": 404, "reason": "NotFound" });
    let (done, server) =
        outcome(&reserve, vec![Answer::Json(404, gone), Answer::Json(201, object("ConfigMap"))]).await;
    assert!(matches!(done, Outcome::Done(_)));
    assert!(server.lines()[1].starts_with("POST "));
    assert!(server.received()[1].body["metadata"].get("resourceVersion").is_none());
}

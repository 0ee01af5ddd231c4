use serde_json::{Value, json};

use super::*;
use crate::testing::{Answer, FakeServer};

const LIMIT: Duration = Duration::from_mins(4);
const MINE: &str = "gates: [{name: startup}]";

fn list(items: Value) -> Answer {
    let mut list = json!({ "metadata": { "resourceVersion": "9" } });
    list["items"] = items;
    Answer::Json(200, list)
}

fn none() -> Answer {
    list(json!([]))
}

fn refused(code: u16) -> Answer {
    Answer::Json(code, json!({ "kind": "Status", "code": code, "message": "no", "reason": "r" }))
}

fn done() -> Answer {
    Answer::Json(200, json!({}))
}

fn gate() -> Value {
    json!({ "key": "node-ready/unverified", "value": "true", "effect": "NoSchedule" })
}

fn startup() -> Value {
    json!({ "key": "startup.k8s.io/initializing", "value": "wait", "effect": "NoSchedule" })
}

fn foreign(key: &str) -> Value {
    json!({ "key": key, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" })
}

fn node(name: &str, taints: Value) -> Value {
    let mut node = json!({
        "metadata": { "name": name, "uid": format!("u-{name}") },
        "status": { "nodeInfo": { "bootID": "b1" } },
    });
    node["spec"]["taints"] = taints;
    node
}

fn pod(name: &str, is_going: bool) -> Value {
    let going = is_going.then_some("2026-01-01T00:00:00Z");
    json!({ "metadata": { "name": name, "deletionTimestamp": going }, "status": { "phase": "Running" } })
}

fn worker() -> Value {
    let stamp = knr_core::view::Stamp {
        node: knr_core::ids::NodeRef { name: "n1".into(), uid: "u1".into() },
        boot: "b1".into(),
        serial: 1,
        attempt: 1,
        purpose: knr_core::view::Purpose::Verify,
        policy: "default".into(),
        requires: "".into(),
    };
    let mut worker = objects::worker(&stamp, &knr_core::policy::Policy::from(&Config::default()));
    worker["metadata"]["uid"] = json!("wu");
    worker
}

async fn run(
    answers: impl IntoIterator<Item = Answer>,
) -> (Result<Summary, ReleaseError>, Vec<Step>, FakeServer) {
    let (ending, steps, server) = run_as(MINE, answers).await;
    let summary = ending.map(|ending| match ending {
        Ending::Released(summary) => summary,
        Ending::Planned(plan) => panic!("nothing was done: {plan:?}"),
    });
    (summary, steps, server)
}

async fn run_as(
    config: &str,
    answers: impl IntoIterator<Item = Answer>,
) -> (Result<Ending, ReleaseError>, Vec<Step>, FakeServer) {
    let server = FakeServer::answering(answers);
    let release = Release {
        api: server.api(),
        config: Config::parse(config).unwrap(),
        selector: "app=x,part in (a, b)".parse().unwrap(),
        now: Timestamp::UNIX_EPOCH,
        deadline: Instant::now() + LIMIT,
    };
    let mut steps = Vec::new();
    let ending = release.run(|step| steps.push(step.clone())).await;
    (ending, steps, server)
}

/// Answers with no pods and no workers, then with nodes.
async fn open(
    answers: impl IntoIterator<Item = Answer>,
) -> (Result<Summary, ReleaseError>, Vec<Step>, FakeServer) {
    run([none(), none()].into_iter().chain(answers)).await
}

fn opened(node: &str) -> Step {
    let gate = Config::default().node_management.taints;
    Step::Node(node.into(), Fate::Opened(gate))
}

#[tokio::test(start_paused = true)]
async fn our_taints_go_and_those_of_others_stay() {
    let taints = json!([foreign("a"), startup(), foreign("b"), gate(), foreign("c")]);
    let nodes = list(json!([node("n1", taints), node("n2", json!([foreign("a")])), node("n3", Value::Null)]));
    let (summary, steps, server) = open([nodes, done(), none()]).await;
    assert_eq!(summary.unwrap(), Summary { opened: 1, without_gate: 2, ..Summary::default() });
    assert!(matches!(&steps[..], [Step::Node(_, Fate::Opened(taints))] if taints.len() == 2), "{steps:?}");
    assert_eq!(
        server.lines(),
        [
            "GET /api/v1/namespaces/own/pods?labelSelector=app%3Dx%2Cpart+in+%28a%2C+b%29&limit=200&continue=",
            "GET /api/v1/namespaces/workers/pods?labelSelector=app.kubernetes.io%2Fname%3Dkube-node-ready\
             %2Capp.kubernetes.io%2Fcomponent%3Dworker&limit=200&continue=",
            "GET /api/v1/nodes?labelSelector=&limit=200&continue=",
            "PATCH /api/v1/nodes/n1?fieldManager=kube-node-ready",
            "GET /api/v1/nodes?labelSelector=&limit=200&continue=",
        ]
    );
    assert_eq!(
        server.received()[3].body,
        json!([
            { "op": "test", "path": "/metadata/uid", "value": "u-n1" },
            { "op": "test", "path": "/status/nodeInfo/bootID", "value": "b1" },
            { "op": "test", "path": "/spec/taints/3", "value": gate() },
            { "op": "remove", "path": "/spec/taints/3" },
            { "op": "test", "path": "/spec/taints/1", "value": startup() },
            { "op": "remove", "path": "/spec/taints/1" },
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_it_would_do_and_changes_nothing() {
    let (worker, nodes) = (worker(), json!([node("n1", json!([startup()])), node("n2", json!([]))]));
    let answers = [list(json!([pod("a", false)])), list(json!([worker])), list(nodes)];
    let config = "gates: [{name: startup}]\nreconciliation: {dryRun: true}";
    let (ending, steps, server) = run_as(config, answers).await;
    let expected = Plan {
        waits_for: vec!["a".to_owned()],
        workers: vec![worker["metadata"]["name"].as_str().unwrap().to_owned()],
        nodes: vec![("n1".into(), vec![Config::parse(MINE).unwrap().gates[0].taint.clone()])],
        without_gate: 1,
    };
    assert_eq!((ending.unwrap(), steps), (Ending::Planned(expected), vec![]));
    assert!(server.lines().iter().all(|line| line.starts_with("GET ")), "{:?}", server.lines());
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_nothing_closed_that_is_uninstalled() {
    let answers = [none(), none(), list(json!([node("n1", json!([gate()]))])), done(), none()];
    let (ending, ..) = run_as("reconciliation: {paused: true}", answers).await;
    assert_eq!(ending.unwrap(), Ending::Released(Summary { opened: 1, ..Summary::default() }));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_changed_is_read_again() {
    let again = node("n1", json!([foreign("new"), gate()]));
    let answers =
        [list(json!([node("n1", json!([gate()]))])), refused(422), list(json!([again])), done(), none()];
    let (summary, steps, server) = open(answers).await;
    assert_eq!((summary.unwrap().opened, steps), (1, vec![opened("n1")]));
    assert_eq!(server.lines()[4], "GET /api/v1/nodes?fieldSelector=metadata.name%3Dn1");
    assert_eq!(server.received()[5].body[3], json!({ "op": "remove", "path": "/spec/taints/1" }));
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_cannot_be_asked_is_asked_again() {
    let closed = || list(json!([node("n1", json!([gate()]))]));
    let message = "Internal error occurred: failed calling webhook \"a.example\": no endpoints available";
    let failing = Answer::Json(500, json!({ "kind": "Status", "code": 500, "message": message }));
    let (summary, steps, _) = open([closed(), failing, closed(), done(), none()]).await;
    assert_eq!((summary.unwrap().opened, steps), (1, vec![opened("n1")]));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_no_trouble() {
    let closed = || list(json!([node("n1", json!([gate()]))]));
    let (summary, steps, _) = open([closed(), refused(404), none(), none()]).await;
    assert_eq!(summary.unwrap(), Summary::default());
    assert_eq!(steps, [Step::Node("n1".into(), Fate::Gone)]);
    let open_now = list(json!([node("n1", json!([]))]));
    let (summary, steps, _) = open([closed(), refused(409), open_now, none()]).await;
    assert_eq!((summary.unwrap().opened, steps), (1, vec![opened("n1")]), "somebody else was faster");
}

#[tokio::test(start_paused = true)]
async fn every_page_is_read() {
    let first = json!({ "metadata": { "continue": "x/y" }, "items": [node("n1", json!([]))] });
    let second = list(json!([node("n2", json!([gate()]))]));
    let (summary, steps, server) = open([Answer::Json(200, first), second, done(), none()]).await;
    assert_eq!(summary.unwrap(), Summary { opened: 1, without_gate: 1, ..Summary::default() });
    assert_eq!(steps, [opened("n2")]);
    assert!(server.lines()[3].ends_with("&continue=x%2Fy"), "{:?}", server.lines());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_forgotten_is_begun_again() {
    let first = json!({ "metadata": { "continue": "x" }, "items": [node("n1", json!([]))] });
    let (summary, _, _) =
        open([Answer::Json(200, first), refused(410), list(json!([node("n1", json!([]))]))]).await;
    assert_eq!(summary.unwrap().without_gate, 1);
}

#[tokio::test(start_paused = true)]
async fn the_condition_says_that_nobody_has_verified_the_node() {
    let with = |reason: &str, message: &str| {
        let mut node = node("n1", json!([gate()]));
        let condition =
            json!({ "type": "NodeReadyVerified", "status": "Unknown", "reason": reason, "message": message });
        node["status"]["conditions"] = json!([condition]);
        list(json!([node]))
    };
    let (summary, _, server) = open([with("DnsTimeout", "dns"), done(), done(), none()]).await;
    assert_eq!(summary.unwrap().opened, 1);
    let patch = &server.received()[3];
    assert_eq!(patch.line, "PATCH /api/v1/nodes/n1/status?fieldManager=kube-node-ready");
    let condition = &patch.body["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("Unknown"), &json!("Released")));
    assert_eq!(patch.body["metadata"]["uid"], "u-n1");

    let (_, _, server) = open([with(REASON, MESSAGE), done(), none()]).await;
    assert_eq!(server.lines().len(), 5, "it says so already");

    let (summary, _, _) = open([with("DnsTimeout", "dns"), refused(403), done(), none()]).await;
    assert_eq!(summary.unwrap().opened, 1, "the gate matters more");
}

#[tokio::test(start_paused = true)]
async fn the_verdict_on_a_node_that_waits_for_another_gate_stays() {
    let mut node = node("n1", json!([startup()]));
    node["status"]["conditions"] = json!([{ "type": "NodeReadyVerified", "status": "True" }]);
    let (summary, _, server) = open([list(json!([node])), done(), none()]).await;
    assert_eq!(summary.unwrap().opened, 1);
    assert!(server.lines().iter().all(|line| !line.contains("/status")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_opened_is_named_with_what_to_do() {
    let nodes = list(json!([node("n1", json!([gate(), startup()])), node("n2", json!([gate()]))]));
    let (summary, ..) = open([nodes, refused(403), done()]).await;
    let summary = summary.unwrap();
    let [closed] = &summary.closed[..] else { panic!("{summary:?}") };
    assert_eq!((summary.opened, closed.why.as_str()), (1, "no (403)"));
    assert_eq!(
        closed.by_hand(),
        "kubectl taint node n1 node-ready/unverified:NoSchedule- startup.k8s.io/initializing:NoSchedule-"
    );
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_is_put_back_is_taken_off_again() {
    let closed = || list(json!([node("n1", json!([gate()]))]));
    let (summary, steps, _) = open([closed(), done(), closed(), done(), none()]).await;
    assert_eq!((summary.unwrap().opened, steps.len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_is_put_back_indefinitely_is_reported_with_what_to_do() {
    let began = Instant::now();
    let rounds = (0..300).flat_map(|_| [list(json!([node("n1", json!([gate()]))])), done()]);
    let (summary, steps, _) = open(rounds).await;
    let closed = Closed {
        node: "n1".into(),
        taints: Config::default().node_management.taints,
        why: "the taint is put back again and again".to_owned(),
    };
    assert_eq!(steps.last(), Some(&Step::Node("n1".into(), Fate::Closed(closed.clone()))));
    assert_eq!(summary.unwrap(), Summary { closed: vec![closed], ..Summary::default() });
    assert!(began.elapsed() < LIMIT, "it ends before the deadline");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_when_no_time_is_left_is_reported_too() {
    let last = LIMIT.as_secs() - ROUND.as_secs();
    let rounds = (0..300).flat_map(|round| {
        let names = if round <= last { &["n1"][..] } else { &["n1", "n2"] };
        let nodes: Vec<Value> = names.iter().map(|name| node(name, json!([gate()]))).collect();
        [list(json!(nodes)), done()]
    });
    let (summary, ..) = open(rounds).await;
    let closed: Vec<_> = summary.unwrap().closed.into_iter().map(|node| (node.node, node.why)).collect();
    let expected =
        [("n1", "the taint is put back again and again"), ("n2", "it joined when no time was left")];
    assert_eq!(closed, expected.map(|(node, why)| (node.into(), why.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_opened_while_somebody_would_close_it_again() {
    let finished = json!({ "metadata": { "name": "done" }, "status": { "phase": "Succeeded" } });
    let began = Instant::now();
    let pods = [
        list(json!([pod("a", false), pod("b", false)])),
        list(json!([pod("a", true), pod("b", false), finished])),
        list(json!([pod("a", true)])),
        list(json!([finished])),
    ];
    let (summary, steps, _) = run(pods.into_iter().chain([none(), none()])).await;
    summary.unwrap();
    let waiting = |names: &[&str]| Step::Waiting(names.iter().map(ToString::to_string).collect());
    assert_eq!(steps, [waiting(&["a", "b"]), waiting(&["a"])]);
    assert_eq!(began.elapsed(), 3 * PAUSE);

    let (stuck, _, server) = run((0..300).map(|_| list(json!([pod("a", false)])))).await;
    assert!(matches!(stuck, Err(ReleaseError::StillThere(names)) if names == ["a"]));
    assert!(server.lines().iter().all(|line| line.contains("/namespaces/own/pods")));
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_that_does_not_answer_is_not_waited_for_for_ever() {
    let pods = (0..61).map(|_| list(json!([pod("a", true)])));
    let (summary, steps, _) = run(pods.chain([none(), none()])).await;
    summary.unwrap();
    assert_eq!(steps.last(), Some(&Step::Abandoned(vec!["a".to_owned()])));
}

#[tokio::test(start_paused = true)]
async fn workers_are_removed_and_look_alikes_are_not() {
    let worker = worker();
    let (name, alike) = (worker["metadata"]["name"].as_str().unwrap().to_owned(), pod("alike", false));
    let workers = || list(json!([worker, alike]));
    for answer in [done(), refused(404), refused(409)] {
        let (summary, steps, server) = run([none(), workers(), answer, none()]).await;
        assert_eq!(summary.unwrap(), Summary::default());
        assert_eq!(steps, [Step::WorkerRemoved(name.clone())]);
        let received = &server.received()[2];
        assert_eq!(received.line, format!("DELETE /api/v1/namespaces/workers/pods/{name}"));
        assert_eq!(received.body["preconditions"], json!({ "uid": "wu" }));
    }
    let (summary, ..) = run([none(), workers(), refused(403), none()]).await;
    assert_eq!(summary.unwrap().workers_left, [(name, "no (403)".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn trouble_that_passes_is_waited_out_and_a_refusal_is_reported_at_once() {
    let (summary, ..) = run([Answer::Silence, refused(503), none(), none(), none()]).await;
    assert_eq!(summary.unwrap(), Summary::default());
    let (summary, _, server) = run([refused(403)]).await;
    assert_eq!(summary.unwrap_err().to_string(), "list pods: no (403)");
    assert_eq!(server.lines().len(), 1);
    let (summary, ..) = run([]).await;
    assert!(summary.unwrap_err().to_string().contains("list pods: no "), "silence ends at the deadline");
}

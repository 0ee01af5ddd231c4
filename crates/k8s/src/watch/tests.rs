use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::*;
use crate::testing::{Answer, FakeServer};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Pulse for Log {
    fn heard(&self) {}

    fn restarted(&self, why: &str) {
        self.0.lock().unwrap().push(why.to_owned());
    }
}

struct Followed {
    server: FakeServer,
    facts: Receiver<Fact>,
    log: Log,
    relist: Arc<Notify>,
}

fn follow(feed: Feed, answers: Vec<Answer>) -> Followed {
    let server = FakeServer::answering(answers);
    let (sender, facts) = mpsc::channel(16);
    let (log, relist) = (Log::default(), Arc::new(Notify::new()));
    let watch =
        Watch { api: server.api(), feed, facts: sender, pulse: log.clone(), relist: Arc::clone(&relist) };
    tokio::spawn(watch.follow());
    Followed { server, facts, log, relist }
}

impl Followed {
    async fn next(&mut self) -> String {
        // An hour of virtual time, so that no test waits indefinitely.
        let fact = timeout(Duration::from_hours(1), self.facts.recv()).await.expect("a fact within an hour");
        match fact.unwrap() {
            Fact::Nodes(views, version) => {
                let names: Vec<_> = views.iter().map(|view| view.id.name.to_string()).collect();
                format!("all {} at {}", names.join(" "), version.0)
            }
            Fact::Node(view, _) => format!("{} at {}", view.id.name, view.version.0),
            Fact::NodeGone(id, version) => format!("{} gone at {}", id.name, version.0),
            Fact::Pools(pools) => format!("{} pools", pools.len()),
            Fact::InitPods(pods, version, feed) => format!("{} pods at {} by {feed}", pods.len(), version.0),
            Fact::InitPod(pod, feed) => format!("{} at {} by {feed}", pod.name, pod.version.0),
            Fact::InitPodGone(uid, _, version, feed) => format!("{uid} gone at {} by {feed}", version.0),
            Fact::Restored(feed) => format!("{feed} restored"),
            other => panic!("{other:?}"),
        }
    }
}

fn node(name: &str, version: u32) -> Value {
    json!({ "metadata": { "name": name, "uid": name, "resourceVersion": version.to_string() } })
}

#[expect(clippy::needless_pass_by_value, reason = "so that tests can say json! in place")]
fn event(kind: &str, object: Value) -> Value {
    json!({ "type": kind, "object": object })
}

fn bookmark(version: u32, all_told: bool) -> Value {
    let annotations = if all_told { json!({ "k8s.io/initial-events-end": "true" }) } else { json!({}) };
    let metadata = json!({ "resourceVersion": version.to_string(), "annotations": annotations });
    event("BOOKMARK", json!({ "kind": "Node", "apiVersion": "v1", "metadata": metadata }))
}

fn status(code: u16) -> Value {
    json!({ "kind": "Status", "status": "Failure", "code": code, "message": "m", "reason": "r" })
}

#[tokio::test(start_paused = true)]
async fn a_list_is_streamed_and_its_changes_follow() {
    let lines = vec![
        event("ADDED", node("a", 3)),
        event("ADDED", node("b", 4)),
        bookmark(7, true),
        event("MODIFIED", node("b", 8)),
        event("DELETED", node("a", 9)),
    ];
    let mut followed = follow(Feed::of(ObjectKind::Nodes), vec![Answer::LinesThenSilence(lines)]);
    assert_eq!(followed.next().await, "all a b at 7");
    assert_eq!(followed.next().await, "b at 8");
    assert_eq!(followed.next().await, "a gone at 9");
    assert!(followed.server.lines()[0].contains("sendInitialEvents=true"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_stream_lists_is_asked_for_pages() {
    let page = |name: &str, next: &str| json!({ "metadata": { "resourceVersion": "7", "continue": next }, "items": [node(name, 3)] });
    let mut followed = follow(
        Feed::of(ObjectKind::Nodes),
        vec![
            Answer::Json(422, status(422)),
            Answer::Json(200, page("a", "more")),
            Answer::Json(200, page("b", "")),
            Answer::LinesThenSilence(vec![event("MODIFIED", node("b", 8))]),
        ],
    );
    assert_eq!(followed.next().await, "all a b at 7");
    assert_eq!(followed.next().await, "b at 8");
    let lines = followed.server.lines();
    assert!(lines[2].contains("continue=more"), "{lines:?}");
    assert!(lines[3].contains("resourceVersion=7"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_the_last_version_it_has_heard_of() {
    for (line, version) in [(event("MODIFIED", node("a", 8)), 8), (bookmark(9, false), 9)] {
        let mut followed = follow(
            Feed::of(ObjectKind::Nodes),
            vec![
                Answer::Lines(vec![bookmark(7, true), line]),
                Answer::LinesThenSilence(vec![event("MODIFIED", node("a", 20))]),
            ],
        );
        while followed.next().await != "a at 20" {}
        let lines = followed.server.lines();
        assert!(lines[1].contains(&format!("resourceVersion={version}&")), "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_before_everything_is_listed_begins_again() {
    let mut followed = follow(
        Feed::of(ObjectKind::Nodes),
        vec![
            Answer::Lines(vec![event("ADDED", node("a", 3)), bookmark(5, false)]),
            Answer::LinesThenSilence(vec![event("ADDED", node("b", 4)), bookmark(7, true)]),
        ],
    );
    assert_eq!(followed.next().await, "all b at 7");
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_before_everything_is_listed_does_not_come_back() {
    let lines =
        vec![event("ADDED", node("a", 3)), event("ADDED", node("b", 4)), event("DELETED", node("a", 5))];
    let ends = follow(
        Feed::of(ObjectKind::Nodes),
        vec![Answer::Lines(lines.clone()), Answer::LinesThenSilence(vec![bookmark(7, true)])],
    );
    let whole = lines.into_iter().chain([bookmark(7, true)]).collect();
    let stays = follow(Feed::of(ObjectKind::Nodes), vec![Answer::LinesThenSilence(whole)]);
    for (mut followed, expected) in [(ends, "all  at 7"), (stays, "all b at 7")] {
        assert_eq!(followed.next().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn init_pods_are_reported_with_the_feed_that_shows_them() {
    let feed = Feed::init_pods("one", &"x=y".parse().unwrap());
    let pod = |version: &str| {
        let metadata = json!({ "name": "p", "namespace": "one", "uid": "u", "resourceVersion": version,
                               "labels": { "x": "y" } });
        json!({ "metadata": metadata, "spec": { "nodeName": "n1" } })
    };
    let lines = vec![
        event("ADDED", pod("3")),
        bookmark(7, true),
        event("MODIFIED", pod("8")),
        event("DELETED", pod("9")),
    ];
    let mut followed = follow(feed, vec![Answer::LinesThenSilence(lines)]);
    for expected in ["1 pods at 7", "p at 8", "u gone at 9"] {
        assert_eq!(followed.next().await, format!("{expected} by init-pods (x=y in one)"));
    }
    let line = &followed.server.lines()[0];
    assert!(line.contains("/namespaces/one/pods?") && line.contains("labelSelector=x%3Dy&"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn whoever_ends_every_connection_at_once_is_not_asked_without_a_pause() {
    let mut answers: Vec<Answer> = (0..8).map(|_| Answer::Lines(vec![bookmark(7, true)])).collect();
    answers.push(Answer::LinesThenSilence(vec![event("MODIFIED", node("a", 8))]));
    let mut followed = follow(Feed::of(ObjectKind::Nodes), answers);
    let began = Instant::now();
    while followed.next().await != "a at 8" {}
    assert!(began.elapsed() > Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_the_server_has_forgotten_is_reported_again() {
    let again = || Answer::LinesThenSilence(vec![event("ADDED", node("b", 30)), bookmark(31, true)]);
    let forgotten: [(Vec<Answer>, &str); 2] = [
        (vec![Answer::Lines(vec![bookmark(7, true), event("ERROR", status(410))]), again()], "an event"),
        (vec![Answer::Lines(vec![bookmark(7, true)]), Answer::Json(410, status(410)), again()], "an answer"),
    ];
    for (answers, how) in forgotten {
        let mut followed = follow(Feed::of(ObjectKind::Nodes), answers);
        assert_eq!(followed.next().await, "all  at 7", "{how}");
        assert_eq!(followed.next().await, "all b at 31", "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_silence_everything_is_listed_again() {
    let mut followed = follow(
        Feed::of(ObjectKind::Nodes),
        vec![
            Answer::LinesThenSilence(vec![bookmark(7, true)]),
            Answer::LinesThenSilence(vec![event("ADDED", node("a", 6)), bookmark(7, true)]),
        ],
    );
    assert_eq!(followed.next().await, "all  at 7");
    assert_eq!(followed.next().await, "all a at 7");
    assert!(followed.server.lines()[1].contains("sendInitialEvents=true"));
    assert_eq!(*followed.log.0.lock().unwrap(), ["nothing was heard for too long"]);
}

/// Returns the facts when the server ends a watch in this way, and then lists everything at this version.
async fn listed_after(end: Vec<Answer>, version: u32) -> Vec<String> {
    let began = Answer::Lines(vec![bookmark(7, true), event("MODIFIED", node("a", 8)), bookmark(9, false)]);
    let list = Answer::LinesThenSilence(vec![event("ADDED", node("a", 3)), bookmark(version, true)]);
    let answers = std::iter::once(began).chain(end).chain([list]).collect();
    let mut followed = follow(Feed::of(ObjectKind::Nodes), answers);
    let mut events = vec![followed.next().await, followed.next().await];
    assert_eq!(events, ["all  at 7", "a at 8"]);
    events.clear();
    while !events.last().is_some_and(|events| events.starts_with("all")) {
        events.push(followed.next().await);
    }
    events
}

/// Returns the ways in which a server can handle a watch from a future version.
fn from_the_future() -> Vec<Vec<Answer>> {
    let mut too_large = status(504);
    too_large["details"] =
        json!({ "causes": [{ "reason": TOO_LARGE, "message": "Too large resource version" }] });
    vec![
        vec![Answer::LinesThenSilence(Vec::new())],
        vec![Answer::Lines(vec![event("ERROR", too_large.clone())])],
        vec![Answer::Json(504, too_large)],
    ]
}

#[tokio::test(start_paused = true)]
async fn a_list_below_what_was_heard_means_that_the_store_was_restored() {
    for end in from_the_future() {
        assert_eq!(listed_after(end, 5).await, ["nodes restored", "all a at 5"]);
    }
    for end in from_the_future() {
        assert_eq!(listed_after(end, 9).await, ["all a at 9"], "nothing has happened since");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_below_what_was_heard_mean_that_the_store_was_restored() {
    let page = |version: &str| json!({ "metadata": { "resourceVersion": version }, "items": [] });
    let mut followed = follow(
        Feed::of(ObjectKind::Nodes),
        vec![
            Answer::Json(422, status(422)),
            Answer::Json(200, page("7")),
            Answer::LinesThenSilence(Vec::new()),
            Answer::Json(200, page("5")),
            Answer::LinesThenSilence(Vec::new()),
            Answer::Json(200, page("6")),
        ],
    );
    for expected in ["all  at 7", "nodes restored", "all  at 5", "all  at 6"] {
        assert_eq!(followed.next().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_left_out() {
    let broken = event("MODIFIED", json!({ "metadata": { "name": 7 } }));
    let lines = vec![bookmark(7, true), broken, event("MODIFIED", node("a", 9))];
    let mut followed = follow(Feed::of(ObjectKind::Nodes), vec![Answer::LinesThenSilence(lines)]);
    assert_eq!(followed.next().await, "all  at 7");
    assert_eq!(followed.next().await, "a at 9");
    assert_eq!(followed.server.lines().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn trouble_is_followed_by_a_pause_and_another_try() {
    let mut answers: Vec<Answer> = (0..5).map(|_| Answer::Json(500, status(500))).collect();
    answers.push(Answer::LinesThenSilence(vec![bookmark(7, true)]));
    let mut followed = follow(Feed::of(ObjectKind::Nodes), answers);
    assert_eq!(followed.next().await, "all  at 7");
    assert_eq!(followed.log.0.lock().unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn everything_is_reported_again_on_request() {
    let mut followed = follow(
        Feed::of(ObjectKind::Nodes),
        vec![
            Answer::LinesThenSilence(vec![bookmark(7, true)]),
            Answer::LinesThenSilence(vec![event("ADDED", node("b", 8)), bookmark(9, true)]),
        ],
    );
    assert_eq!(followed.next().await, "all  at 7");
    followed.relist.notify_one();
    assert_eq!(followed.next().await, "all b at 9");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_karpenter_has_no_pools_until_it_has() {
    let mut followed = follow(
        Feed::of(ObjectKind::Pools),
        vec![
            Answer::Json(404, status(404)),
            Answer::LinesThenSilence(vec![event("ADDED", node("p", 8)), bookmark(9, true)]),
        ],
    );
    assert_eq!(followed.next().await, "0 pools");
    assert_eq!(followed.next().await, "1 pools");
    assert!(followed.log.0.lock().unwrap().is_empty());
}

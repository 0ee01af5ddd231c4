mod rig;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU16, Ordering};

use http::{Method, Request, Response};
use knr_core::action::{EventReason, EventText};
use knr_core::config::Level;
use knr_core::engine::{Outcome, Question};
use knr_core::ids::{NodeRef, Version};
use knr_core::names;
use knr_core::patch::NodePatch;
use knr_core::view::NodeView;
use knr_core::world::Source;
use knr_k8s::act::Actor;
use knr_k8s::api::{Api, Namespaces};
use knr_web::Exposition;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

use super::super::testing::{deletion, order};
use super::*;
use crate::telemetry::tests::Captured;
use rig::{HOUR, NODES, Rig, Running, SECOND, Server, closed_node, leading, name, settle};

#[tokio::test(start_paused = true)]
async fn what_was_decided_before_a_change_of_the_configuration_is_not_sent_after_it() {
    let (mut server, api) = Server::start();
    let running = Running::with_nodes(api, HOUR).await;
    let sent = server.received(1).await.len();
    assert!((1..NODES).contains(&sent), "{sent}");
    running.reload("nodeManagement: {exclude: [team=a]}");
    settle().await;
    let sent = server.received(1).await.len();
    server.answers.add_permits(NODES);
    sleep(120 * SECOND).await;
    assert_eq!(server.received(1).await.len(), sent, "the freed slots were not used");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_for_a_node_that_went_while_its_order_waited() {
    let (mut server, api) = Server::start();
    let running = Running::with_nodes(api, HOUR).await;
    settle().await;
    let sent = server.received(1).await;
    let waits: Vec<usize> = (0..NODES).filter(|number| !sent.contains(&name(*number))).collect();
    assert!(waits.len() > 1, "{sent:?}");
    let gone = closed_node(waits[0]).id;
    running.learn(Fact::NodeGone(gone.clone(), Version(2))).await;
    settle().await;
    server.answers.add_permits(10 * NODES);
    let sent = server.received(NODES - 1).await;
    assert!(!sent.contains(&gone.name.to_string()), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_controller_holds_back_itself_is_neither_a_warning_nor_an_error() {
    let log = Captured::start(Level::Debug);
    let (server, api) = Server::start();
    let running = Running::with_nodes(api, Duration::ZERO).await;
    sleep(100 * SECOND).await;
    assert!(server.received.borrow().is_empty(), "the leadership has expired");
    let lines = log.lines();
    let is_summary = |line: &&Value| line["msg"] == "Writes were held back";
    let summaries: Vec<&Value> = lines.iter().filter(is_summary).collect();
    assert!((1..=3).contains(&summaries.len()), "{summaries:#?}");
    assert!(summaries[0]["late_orders"].as_u64().unwrap() >= NODES as u64, "{summaries:#?}");
    assert_nothing_failed(&lines, &running.metrics);
}

/// Watches warn in these tests: they get no answer.
fn assert_nothing_failed(lines: &[Value], metrics: &Metrics) {
    let is_failed =
        |line: &&Value| line["action"].is_string() && (line["level"] == "warn" || line["level"] == "error");
    let warnings: Vec<&Value> = lines.iter().filter(is_failed).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
    let text = metrics.text(&Health::new()).unwrap();
    assert!(text.contains("kube_node_ready_controller_reconcile_errors_total 0"), "{text}");
}

/// A suspended process sends nothing of what it was about to send if its lease has expired meanwhile.
#[tokio::test(start_paused = true)]
async fn what_is_not_sent_because_the_lease_has_expired_is_sent_once_the_controller_leads_again() {
    let log = Captured::start(Level::Debug);
    let (mut server, api) = Server::start();
    let mut rig = Rig::new(api, SECOND);
    let now = rig.driver.clock.now();
    rig.driver.engine.learn(Fact::Workers(Vec::new(), Version(1)), now);
    rig.driver.engine.learn(Fact::Nodes(vec![closed_node(1)], Version(1)), now);
    rig.driver.writers.queue.report(deletion("n2", Version(1)).events().remove(0), now);
    rig.driver.lead_or_stand_by(leading(SECOND));
    rig.driver.turn();
    assert_eq!(rig.driver.writers.queue.in_flight(), 2);
    advance(2 * SECOND).await;
    let running = rig.run();
    settle().await;
    assert!(server.received.borrow().is_empty());
    assert!(server.events().is_empty());
    running.leads(leading(HOUR));
    assert_eq!(server.received(1).await, [name(1)]);
    settle().await;
    assert_eq!(server.events(), ["NodeDeleted"]);
    assert_nothing_failed(&log.lines(), &running.metrics);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_answered_after_the_stop_signal_is_reported_while_the_lease_lasts() {
    for (leadership, events) in
        [(leading(HOUR), vec!["NodeDeleted"]), (Leadership::Standby { holder: None }, vec![])]
    {
        let (server, api) = Server::start();
        let mut running = Running::with_deletion(api).await;
        running.stop.cancel();
        settle().await;
        running.leads(leadership);
        settle().await;
        server.answers.add_permits(1);
        assert_eq!((&mut running.task).await.unwrap(), Drained::All);
        assert_eq!(server.events(), events);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_reported_although_the_controller_may_not_write_for_a_while() {
    let standby: fn(&Running) = |running| running.leads(Leadership::Standby { holder: None });
    let paused: fn(&Running) = |running| running.reload("reconciliation: {paused: true}");
    let dry_run: fn(&Running) = |running| running.reload("reconciliation: {dryRun: true}");
    for interrupt in [standby, paused, dry_run] {
        let (server, api) = Server::start();
        let running = Running::with_deletion(api).await;
        running.leads(leading(Duration::ZERO));
        server.answers.add_permits(1);
        settle().await;
        interrupt(&running);
        settle().await;
        assert!(server.events().is_empty());
        running.leads(leading(HOUR));
        settle().await;
        assert_eq!(server.events(), ["NodeDeleted"]);
    }
}

/// The codes of a busy server, and of one that may or may not have stored the event.
#[tokio::test(start_paused = true)]
async fn a_deletion_is_reported_although_the_api_server_does_not_take_its_event_at_first() {
    for code in [429, 503, 500] {
        let (server, api) = Server::start();
        let running = Running::with_deletion(api).await;
        server.answers_events_with(code);
        server.answers.add_permits(1);
        sleep(60 * SECOND).await;
        let tried = server.events().len();
        assert!((2..20).contains(&tried), "{code}: sent {tried} times");
        server.answers_events_with(201);
        sleep(60 * SECOND).await;
        assert_eq!(server.events().len(), tried + 1, "{code}");
        sleep(HOUR).await;
        assert_eq!(server.events().len(), tried + 1, "{code}: reported once");
        assert!(running.shows("events_dropped_total 0"), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_deletion_that_the_api_server_never_takes_is_given_up_and_counted() {
    let (server, api) = Server::start();
    let running = Running::with_deletion(api).await;
    running.leads(leading(10 * HOUR));
    server.answers_events_with(503);
    server.answers.add_permits(1);
    sleep(2 * HOUR).await;
    let tried = server.events().len();
    assert!(running.shows("events_dropped_total 1"), "sent {tried} times");
    sleep(HOUR).await;
    assert_eq!(server.events().len(), tried);
}

#[tokio::test(start_paused = true)]
async fn what_is_never_sent_is_counted_and_summarized_at_the_stop() {
    let log = Captured::start(Level::Info);
    let (server, api) = Server::start();
    let mut running = Running::with_deletion(api).await;
    server.answers_events_with(503);
    server.answers.add_permits(1);
    settle().await;
    running.stop.cancel();
    assert_eq!((&mut running.task).await.unwrap(), Drained::All);
    assert!(server.events().len() > 2, "tried again while the lease lasts");
    assert!(running.shows("events_dropped_total 1"));
    let lines = log.lines();
    let summary = lines.iter().find(|line| line["msg"] == "Writes were held back");
    assert_eq!(summary.map(|line| &line["dropped_events"]), Some(&json!(1)), "{lines:#?}");
}

fn opening() -> Action {
    let event = EventText { reason: EventReason::Verified, message: String::new(), warning: false };
    let gate = names::VERIFICATION_GATE.to_owned();
    Action::OpenGate { node: closed_node(1).id, gate, patch: NodePatch(Vec::new()), event }
}

/// A loop that has sent this order, and got its answer after the configuration changed.
fn answered_under(yaml: &str, action: Action) -> Driver {
    let Rig { mut driver, .. } = Rig::new(Server::start().1, HOUR);
    let now = driver.clock.now();
    driver.writers.queue.take(order(1, action), None, now);
    let sent = driver.writers.queue.next(now).unwrap();
    driver.config = Arc::new(Config::parse(yaml).unwrap());
    driver.settle(Ended::Answered(Answer { sent, outcome: Outcome::Done(Vec::new()), took: SECOND }));
    driver
}

#[tokio::test]
async fn an_answer_that_arrives_while_nothing_may_be_written_causes_only_reports_of_deletions() {
    for (yaml, action, events) in [
        ("", opening(), 1),
        ("reconciliation: {paused: true}", opening(), 0),
        ("reconciliation: {dryRun: true}", opening(), 0),
        ("reconciliation: {paused: true}", deletion("n1", Version(1)), 1),
        ("reconciliation: {dryRun: true}", deletion("n1", Version(1)), 1),
    ] {
        let shown = format!("{yaml} {action}");
        assert_eq!(answered_under(yaml, action).writers.queue.waiting(), events, "{shown}");
    }
}

#[tokio::test]
async fn only_what_was_sent_is_read_again_by_a_replica_that_leads_again() {
    let Rig { mut driver, .. } = Rig::new(Server::start().1, HOUR);
    let now = driver.clock.now();
    driver.engine.learn(Fact::Workers(Vec::new(), Version(1)), now);
    driver.engine.learn(Fact::Nodes((0..NODES).map(closed_node).collect(), Version(1)), now);
    driver.lead_or_stand_by(leading(HOUR));
    driver.turn();
    let sent = driver.writers.queue.in_flight();
    assert!((1..NODES).contains(&sent), "{sent}");
    driver.lead_or_stand_by(Leadership::Standby { holder: None });
    driver.lead_or_stand_by(leading(HOUR));
    let questions = driver.engine.decide(now).questions;
    let rereads = questions.iter().filter(|question| matches!(question, Question::Node(_))).count();
    assert_eq!(rereads, sent);
}

#[tokio::test]
async fn nodes_that_are_there_when_a_replica_begins_to_lead_are_no_news_in_the_log() {
    let log = Captured::start(Level::Info);
    let Rig { mut driver, .. } = Rig::new(Server::start().1, HOUR);
    let now = driver.clock.now();
    driver.engine.learn(Fact::Workers(Vec::new(), Version(1)), now);
    driver.engine.learn(Fact::Nodes(vec![closed_node(1)], Version(1)), now);
    driver.lead_or_stand_by(leading(HOUR));
    driver.turn();
    let added = |log: &Captured| -> Vec<Value> {
        log.lines().into_iter().filter(|line| line["msg"] == "Node added to queue").collect()
    };
    assert_eq!(added(&log), Vec::<Value>::new());
    let joined = NodeView { version: Version(2), ..closed_node(2) };
    driver.engine.learn(Fact::Node(joined, Source::Watch), now);
    driver.turn();
    assert_eq!(added(&log).len(), 1, "it joined later");
}

use knr_core::config::{Config, Level};
use knr_core::explain::{Access, Attempt, Wait, WorkerStage};
use knr_core::fault::WorkerFailure;
use knr_core::ids::Version;
use knr_web::{Exposition, Health};

use super::super::testing::{deletion, node, sent};
use super::*;
use crate::telemetry::tests::Captured;

fn recorder() -> (Recorder, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new(false));
    (Recorder::new(Arc::clone(&metrics)), metrics)
}

fn shows(metrics: &Metrics, line: &str) -> bool {
    metrics.text(&Health::new()).unwrap().lines().any(|shown| shown == format!("kube_node_ready_{line}"))
}

#[tokio::test]
async fn a_deletion_is_counted_once_it_is_done() {
    let (mut recorder, metrics) = recorder();
    let label = Config::default().node_management.verified_label;
    for (outcome, count) in [(Outcome::Conflict, 0), (Outcome::Unknown, 0), (Outcome::Done(Vec::new()), 1)] {
        let answer = Answer { sent: sent(deletion("n1", Version(1))), outcome, took: Duration::ZERO };
        recorder.answer(&answer, &label);
        assert!(shows(&metrics, &format!("nodes_deleted_total {count}")), "{answer:?}");
    }
}

#[tokio::test]
async fn a_deletion_whose_answer_was_lost_is_counted_once_it_is_confirmed() {
    let (mut recorder, metrics) = recorder();
    recorder.confirmed(&deletion("n1", Version(1)));
    assert!(shows(&metrics, "nodes_deleted_total 1"));
    assert!(
        shows(&metrics, r#"writes_total{action="delete_node",outcome="done"} 0"#),
        "nothing was answered"
    );
}

#[tokio::test]
async fn a_refusal_is_an_error_once_and_counted_each_time() {
    let (mut recorder, metrics) = recorder();
    let label = Config::default().node_management.verified_label;
    let log = Captured::start(Level::Debug);
    let mut level_of = |outcome| {
        let answer = Answer { sent: sent(deletion("n1", Version(1))), outcome, took: Duration::ZERO };
        recorder.answer(&answer, &label);
        log.messages().remove(0).0
    };
    let refused = |why: &str| Outcome::Refused(why.to_owned());
    assert_eq!(level_of(refused("a policy forbids it")), "error");
    assert_eq!(level_of(refused("a policy forbids it")), "debug");
    assert_eq!(level_of(Outcome::Conflict), "debug");
    assert_eq!(level_of(refused("a policy forbids it")), "debug");
    assert_eq!(level_of(refused("another policy forbids it")), "error");
    level_of(Outcome::Done(Vec::new()));
    assert_eq!(level_of(refused("another policy forbids it")), "error", "it was permitted in between");
    assert!(shows(&metrics, r#"writes_total{action="delete_node",outcome="refused"} 5"#));
}

#[tokio::test]
async fn a_suspected_cluster_shows_for_as_long_as_it_is_suspected() {
    let (mut recorder, metrics) = recorder();
    assert!(shows(&metrics, "cluster_suspected 0"));
    recorder.trouble(Some(Trouble::ReferenceFailed));
    assert!(shows(&metrics, "cluster_suspected 1"));
    recorder.trouble(None);
    assert!(shows(&metrics, "cluster_suspected 0"));
}

#[tokio::test]
async fn a_node_whose_worker_cannot_run_is_counted_from_when_it_is_known() {
    let (mut recorder, metrics) = recorder();
    let name = node("n1").name;
    let mut stands = |phase, stage| {
        let wait = Wait::Worker { attempt: Attempt { number: 1, of: 5 }, stage };
        let explanation = Explanation::new(phase, Access::Closed, wait);
        recorder.changes(&Plan { changes: vec![(name.clone(), Some(explanation))], ..Plan::default() });
    };
    stands(Phase::Pending, WorkerStage::Pending { waiting: None, failure: WorkerFailure::ImagePull });
    assert!(shows(&metrics, r#"nodes_blocked{reason="ImagePullFailed"} 1"#));
    stands(Phase::InProgress, WorkerStage::Running);
    assert!(shows(&metrics, r#"nodes_blocked{reason="ImagePullFailed"} 0"#));
}

#[tokio::test]
async fn a_replica_that_stands_by_does_not_say_that_the_cluster_is_sound_again() {
    let (mut recorder, metrics) = recorder();
    recorder.leading(Leader::Yes);
    recorder.trouble(Some(Trouble::ReferenceFailed));
    let log = Captured::start(Level::Debug);
    recorder.leading(Leader::No);
    assert!(shows(&metrics, "cluster_suspected 0"), "only the leader shows it");
    assert_eq!(log.messages(), [("info".to_owned(), "this replica stands by".to_owned())]);
    recorder.leading(Leader::Yes);
    recorder.trouble(None);
    assert_eq!(log.messages(), [("info".to_owned(), "this replica leads".to_owned())]);
}

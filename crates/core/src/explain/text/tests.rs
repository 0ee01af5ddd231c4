use super::*;
use crate::explain::Explanation;

fn failed() -> LastResult {
    LastResult {
        cause: "DnsTimeout".to_owned(),
        reason: "dns: timeout".to_owned(),
        failed: Some(Attempt { number: 3, of: 5 }),
        run: None,
        retry: None,
    }
}

#[test]
fn one_sentence_now_and_one_for_later() {
    let at = Timestamp::from_millisecond(8_400).unwrap();
    let explanation = Explanation::new(Phase::Failed, Access::Closed, failed()).tried_again_at(at);
    let sentence = "closed: attempt 3 of 5 failed: dns: timeout";
    assert_eq!(explanation.at(Timestamp::UNIX_EPOCH), format!("{sentence}; next try in 9 s"));
    assert_eq!(explanation.at(Timestamp::from_second(60).unwrap()), format!("{sentence}; next try in 0 s"));
    assert_eq!(explanation.to_string(), format!("{sentence}; next try at 1970-01-01T00:00:08Z"));
    let plain = Explanation::new(Phase::Verified, Access::Open, Why::Verified { attempt: None });
    assert_eq!((plain.at(at), plain.to_string()), ("open: verified".into(), "open: verified".into()));
}

#[test]
fn another_time_is_no_other_message() {
    let explanation = Explanation::new(Phase::Failed, Access::Closed, failed());
    let later = explanation.clone().tried_again_at(Timestamp::UNIX_EPOCH);
    assert!(explanation.is_said_by(&explanation.to_string()) && explanation.is_said_by(&later.to_string()));
    assert!(later.is_said_by(&explanation.to_string()));
    let open = Explanation { access: Access::Open, ..explanation.clone() };
    assert!(!open.is_said_by(&explanation.to_string()));
    assert!(!explanation.is_said_by(&format!("{explanation}; gate startup opens")));
    let refused =
        |why: &str| Explanation::new(Phase::Failed, Access::Closed, Wait::RefusedWorker(why.into()));
    assert!(!refused("quota").is_said_by(&refused("webhook").to_string()));
}

#[test]
fn probation_comes_first_then_gates_then_notes() {
    let mut explanation = Explanation::new(Phase::Failed, Access::Open, failed())
        .on_probation(Some(ProbationReason::LabelRemoved));
    let closed = |gate: &str, wait| ClosedGate { gate: gate.to_owned(), wait };
    explanation.gates =
        vec![closed("verification", GateWait::Checks), closed("startup", GateWait::MinimumHold)];
    explanation.notes = vec![Note::DryRun { order: "close it".to_owned() }];
    assert_eq!(
        explanation.to_string(),
        "open: the verified label was removed; attempt 3 of 5 failed: dns: timeout; \
         gate startup is held for its minimum time; dry run, would close it"
    );
}

#[test]
fn a_node_that_is_not_verified_at_all_is_closed_by_its_other_gates() {
    let mut explanation =
        Explanation::new(Phase::OutOfScope, Access::Closed, Why::NeverGated(NeverGated::Left));
    assert_eq!(explanation.to_string(), "closed: left alone: it never had the gate");
    let wait = |gate: &str| ClosedGate { gate: gate.to_owned(), wait: GateWait::Registration };
    explanation.gates = vec![wait("a"), wait("b")];
    assert_eq!(
        explanation.to_string(),
        "closed: gate a waits for Karpenter to register the node; gate b waits for Karpenter to register the node"
    );
}

#[test]
fn a_result_says_which_attempt_and_which_run_it_was() {
    let run = Some(FreeRun { number: 2, kind: RunKind::Cluster });
    let explanation = LastResult { run, ..failed() };
    assert_eq!(
        explanation.to_string(),
        "attempt 3 of 5 failed, then run 2 failed by no fault of the node: dns: timeout"
    );
    let explanation = LastResult { failed: None, ..explanation };
    assert_eq!(explanation.to_string(), "run 2 failed by no fault of the node: dns: timeout");
    let explanation =
        LastResult { failed: Some(Attempt { number: 6, of: 5 }), retry: Some("n1".into()), ..failed() };
    assert_eq!(
        explanation.to_string(),
        "attempt 6 failed: dns: timeout; to try again at once: kubectl annotate node n1 node-ready/retry=now"
    );
}

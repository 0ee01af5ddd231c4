use serde_json::{Value, json};

use super::super::sample;
use super::*;

#[expect(clippy::needless_pass_by_value, reason = "so that tests can say json! in place")]
fn pod(status: Value) -> Value {
    json!({
        "metadata": {
            "name": worker_name(&"u1".into()), "uid": "w1", "resourceVersion": "9",
            "annotations": {
                "node-ready/node": "n1", "node-ready/node-uid": "u1", "node-ready/boot-id": "b1",
                "node-ready/serial": "3", "node-ready/attempt": "2", "node-ready/purpose": "verify",
            },
        },
        "spec": { "nodeName": "n1" },
        "status": status,
    })
}

fn stage(status: Value) -> Stage {
    sample::<SlimWorker>(pod(status)).view().unwrap().stage
}

#[expect(clippy::needless_pass_by_value, reason = "so that tests can say json! in place")]
fn worker(state: Value) -> Value {
    json!([{ "name": "worker", "state": state }])
}

fn pending(reason: &str, message: &str) -> Stage {
    Stage::Pending(Some(Waiting { reason: reason.to_owned(), message: message.to_owned() }))
}

fn not_started(reason: &str, message: &str) -> Stage {
    Stage::Ended(Ending::CouldNotStart(Waiting { reason: reason.to_owned(), message: message.to_owned() }))
}

fn exited(code: i32, message: &str) -> Stage {
    Stage::Ended(Ending::Exited { code, message: message.to_owned() })
}

#[test]
fn the_stamp_is_read_back() {
    let view = sample::<SlimWorker>(pod(json!({}))).view().unwrap();
    assert_eq!(view.stamp.node.to_string(), "n1/u1");
    assert_eq!((view.stamp.serial, view.stamp.attempt, view.stamp.purpose), (3, 2, Purpose::Verify));
    assert_eq!((view.host.unwrap().as_str(), view.version.0, view.leaving), ("n1", 9, false));
    assert_eq!(view.stage, Stage::Pending(None));
}

#[test]
fn a_pod_without_a_whole_stamp_is_none_of_ours() {
    for missing in ["node", "node-uid", "boot-id", "serial", "attempt", "purpose"] {
        let mut pod = pod(json!({}));
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove(&format!("node-ready/{missing}"));
        assert!(sample::<SlimWorker>(pod).view().is_none(), "{missing}");
    }
    let mut renamed = pod(json!({}));
    renamed["metadata"]["name"] = json!(worker_name(&"u2".into()));
    assert!(sample::<SlimWorker>(renamed).view().is_none(), "another name than its node's UID demands");
    let mut pod = pod(json!({}));
    pod["metadata"]["annotations"]["node-ready/purpose"] = json!("other");
    assert!(sample::<SlimWorker>(pod).view().is_none());
}

#[test]
fn a_report_counts_although_the_phase_lags_behind() {
    for report in [r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#, r#"{"error":"told to stop"}"#] {
        let terminated = worker(json!({ "terminated": { "exitCode": 0, "message": report } }));
        assert_eq!(stage(json!({ "phase": "Running", "containerStatuses": terminated })), exited(0, report));
    }
}

#[test]
fn an_exit_code_alone_may_be_that_of_an_eviction_until_the_phase_says_otherwise() {
    for message in ["", "{}", "done"] {
        let terminated = worker(json!({ "terminated": { "exitCode": 0, "message": message } }));
        let mut status = json!({ "phase": "Running", "containerStatuses": terminated });
        assert_eq!(stage(status.clone()), Stage::Running);
        status["phase"] = json!("Succeeded");
        assert_eq!(stage(status), exited(0, message));
    }
}

#[test]
fn only_the_worker_container_decides() {
    let statuses = json!([
        { "name": "sidecar", "state": { "terminated": { "exitCode": 0 } } },
        { "name": "worker", "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } },
    ]);
    assert_eq!(stage(json!({ "phase": "Running", "containerStatuses": statuses })), Stage::Running);
}

#[test]
fn checks_of_the_user_are_part_of_the_run() {
    let running = json!([{ "name": "mine", "state": { "running": {} } }]);
    let waiting = worker(json!({ "waiting": { "reason": "PodInitializing" } }));
    let status =
        json!({ "phase": "Pending", "initContainerStatuses": running, "containerStatuses": waiting });
    assert_eq!(stage(status), Stage::Running);
    let failed = json!([
        { "name": "fine", "state": { "terminated": { "exitCode": 0 } } },
        { "name": "mine", "state": { "terminated": { "exitCode": 3, "message": "no GPU" } } },
    ]);
    let mut status =
        json!({ "phase": "Pending", "initContainerStatuses": failed, "containerStatuses": waiting });
    assert_eq!(stage(status.clone()), Stage::Running, "it is not known yet who ended it");
    status["phase"] = json!("Failed");
    assert_eq!(stage(status), exited(3, "init container mine: no GPU"));
}

#[test]
fn why_a_worker_waits_is_reported() {
    let waiting = worker(json!({ "waiting": { "reason": "ErrImagePull", "message": "no such image" } }));
    assert_eq!(
        stage(json!({ "phase": "Pending", "containerStatuses": waiting })),
        pending("ErrImagePull", "no such image")
    );
    let usual = worker(json!({ "waiting": { "reason": "ContainerCreating" } }));
    assert_eq!(stage(json!({ "phase": "Pending", "containerStatuses": usual })), Stage::Pending(None));
    let unscheduled =
        json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "x" }]);
    assert_eq!(
        stage(json!({ "phase": "Pending", "conditions": unscheduled })),
        pending("Unschedulable", "x")
    );
    let of_the_user = json!([
        { "name": "fine", "state": { "waiting": { "reason": "PodInitializing" } } },
        { "name": "mine", "state": { "waiting": { "reason": "InvalidImageName" } } },
    ]);
    let usual = worker(json!({ "waiting": { "reason": "PodInitializing" } }));
    assert_eq!(
        stage(
            json!({ "phase": "Pending", "initContainerStatuses": of_the_user, "containerStatuses": usual })
        ),
        pending("InvalidImageName", ""),
        "an init container"
    );
}

#[test]
fn a_program_that_could_not_be_started_is_distinguished_from_one_that_ended() {
    let ended = |terminated: Value| {
        let statuses = worker(json!({ "terminated": terminated }));
        stage(json!({ "phase": "Failed", "containerStatuses": statuses }))
    };
    for (reason, code) in [("StartError", 128), ("ContainerCannotRun", 127)] {
        let terminated = json!({ "exitCode": code, "reason": reason, "message": "no such file" });
        assert_eq!(ended(terminated), not_started(reason, "no such file"));
    }
    for (code, line) in [(1, "exec /worker: exec format error"), (255, "sh: ./x: Exec format error")] {
        let message = format!("starting\n{line}\n");
        let terminated = json!({ "exitCode": code, "reason": "Error", "message": message });
        assert_eq!(ended(terminated), not_started("ExecFormatError", line));
    }
    for (code, message) in [
        (127, "command not found"),
        (1, "exec format error\nno GPU"),
        (0, "exec format error"),
        (1, r#"{"error":"exec format error"}"#),
    ] {
        let terminated = json!({ "exitCode": code, "reason": "Error", "message": message });
        assert_eq!(ended(terminated), exited(code, message), "the program ran");
    }
}

#[test]
fn an_init_container_that_could_not_be_started_is_named() {
    let failed = json!([
        { "name": "mine", "state": { "terminated": { "exitCode": 128, "reason": "StartError", "message": "no" } } },
    ]);
    assert_eq!(
        stage(json!({ "phase": "Failed", "initContainerStatuses": failed })),
        not_started("StartError", "init container mine: no")
    );
}

#[test]
fn an_image_that_cannot_be_pulled_until_the_deadline_is_not_a_slow_worker() {
    let status = |reason: &str| {
        let waiting = worker(json!({ "waiting": { "reason": reason, "message": "x" } }));
        json!({ "phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": waiting })
    };
    assert_eq!(stage(status("ImagePullBackOff")), not_started("ImagePullBackOff", "x"));
    let never_started = Ending::Killed("the deadline of its pod passed".to_owned());
    assert_eq!(stage(status("ContainerCreating")), Stage::Ended(never_started));
}

#[test]
fn what_others_did_says_nothing_about_the_node() {
    let killed = worker(json!({ "terminated": { "exitCode": 137, "reason": "Error" } }));
    let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory", "containerStatuses": killed });
    assert_eq!(stage(evicted), Stage::Ended(Ending::Killed("Evicted: low on memory".to_owned())));
    let late = json!({ "phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": killed });
    assert_eq!(stage(late), Stage::Ended(Ending::Killed("the deadline of its pod passed".to_owned())));
    let lost = worker(json!({ "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown" } }));
    let status = json!({ "phase": "Failed", "containerStatuses": lost });
    assert!(matches!(stage(status), Stage::Ended(Ending::Killed(_))));
}

#[test]
fn an_end_of_which_nothing_is_known_is_never_a_pass() {
    for phase in ["Succeeded", "Failed"] {
        assert!(matches!(stage(json!({ "phase": phase })), Stage::Ended(Ending::Killed(_))), "{phase}");
    }
}

#[test]
fn long_words_are_cut() {
    let waiting = worker(json!({ "waiting": { "reason": "X", "message": "ü".repeat(4000) } }));
    let Stage::Pending(Some(why)) = stage(json!({ "containerStatuses": waiting })) else { panic!() };
    assert_eq!(why.message.chars().count(), MAX_TOLD_CHARS + 1);
}

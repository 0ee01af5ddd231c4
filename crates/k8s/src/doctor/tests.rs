use std::future::{pending, ready};
use std::sync::{Arc, Mutex};

use knr_core::names;
use serde_json::{Value, json};

use super::*;
use crate::observe::SlimWorker;
use crate::testing::{Answer, FakeServer, Received};

const REPORT: &str = r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#;
const DNS: &str = r#"{"checks":[{"name":"dns","outcome":{"fail":{"kind":"timeout","detail":"no answer"}}}]}"#;
const CREATE: &str = "POST /api/v1/namespaces/workers/pods?";
const DELETE: &str = "DELETE /api/v1/namespaces/workers/pods/node-ready-trial-";

/// The part of a cluster that a doctor sees.
#[derive(Clone)]
struct Cluster {
    /// Selects the access reviews that are denied.
    denied: fn(&Value) -> bool,
    pods: Vec<Value>,
    nodes: Vec<Value>,
    holder: Option<&'static str>,
    renews: bool,
    /// The status of a pod that is created; `None` if its creation is refused.
    worker: Option<Value>,
    /// The number of delete requests until the pod is gone.
    deletions: usize,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            denied: |_| false,
            pods: vec![pod("c-1", "True", &Value::Null), pod("c-2", "True", &Value::Null)],
            nodes: vec![node("n1", &json!({}), "True")],
            holder: Some("c-1_0a1b2c3d"),
            renews: true,
            worker: Some(ended(0, REPORT)),
            deletions: 1,
        }
    }
}

impl Cluster {
    fn serve(self) -> FakeServer {
        let (looks, pods) = (Mutex::new(0), Arc::new(Mutex::new(0)));
        FakeServer::ruled_by(move |asked| {
            let mut pods = pods.lock().unwrap();
            let list = |items: &[Value]| Answer::Json(200, json!({ "metadata": {}, "items": items }));
            match asked.line.as_str() {
                line if line.contains("accessreviews") => {
                    let allowed = !(self.denied)(&asked.body["spec"]);
                    Answer::Json(201, json!({ "status": { "allowed": allowed } }))
                }
                line if line.contains("/nodes?") => list(&self.nodes),
                line if line.contains("/namespaces/own/pods?") => list(&self.pods),
                line if line.contains("/leases/") => {
                    *looks.lock().unwrap() += usize::from(self.renews);
                    let renewed = format!("2026-01-01T00:00:{:02}.000000Z", *looks.lock().unwrap() % 60);
                    self.holder.map_or(status(404), |holder| {
                        let spec = json!({ "holderIdentity": holder, "renewTime": renewed });
                        Answer::Json(200, json!({ "metadata": {}, "spec": spec }))
                    })
                }
                line if line.starts_with(CREATE) => {
                    *pods = self.worker.as_ref().map_or(0, |_| self.deletions);
                    self.worker.as_ref().map_or(status(403), |_| Answer::Json(201, json!({})))
                }
                line if line.starts_with(DELETE) && *pods > 0 => {
                    *pods -= 1;
                    Answer::Json(200, json!({}))
                }
                line if line.starts_with(DELETE) => status(404),
                line if line.contains("/namespaces/workers/pods?fieldSelector") => {
                    list(self.worker.as_slice())
                }
                line => panic!("{line}"),
            }
        })
    }

    async fn find(self, step: Step) -> (Finding, Vec<Received>) {
        let server = self.serve();
        let finding = doctor(&server, installation()).take(step, pending()).await;
        (finding, server.received())
    }
}

fn status(code: u16) -> Answer {
    Answer::Json(code, json!({ "kind": "Status", "message": "no such thing", "reason": "x", "code": code }))
}

fn pod(name: &str, ready: &str, state: &Value) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "own" },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": ready }],
            "containerStatuses": [{ "name": "controller", "state": state }],
        },
    })
}

fn node(name: &str, labels: &Value, ready: &str) -> Value {
    let conditions = json!([{ "type": "Ready", "status": ready }]);
    json!({
        "metadata": { "name": name, "uid": "u", "labels": labels }, "status": { "conditions": conditions },
    })
}

fn ended(code: i32, message: &str) -> Value {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let state = json!({ "terminated": { "exitCode": code, "reason": "x", "message": message } });
    json!({ "status": { "phase": phase, "containerStatuses": [{ "name": "worker", "state": state }] } })
}

fn waiting() -> Value {
    let state = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
    json!({ "status": { "phase": "Pending", "containerStatuses": [{ "name": "worker", "state": state }] } })
}

fn installation() -> Installation {
    Installation {
        mode: Mode::Controller,
        namespace: "own".into(),
        account: "controller".into(),
        selector: "app=x".parse().unwrap(),
        config: Config::parse("worker: {namespace: workers}").unwrap(),
        node: None,
        own_pod: Some(OwnPod { name: "doctor".into(), uid: "du".into() }),
    }
}

fn doctor(server: &FakeServer, installation: Installation) -> Doctor {
    Doctor::new(server.api().client().clone(), installation, Instant::now() + Duration::from_mins(3))
}

/// Asserts that nothing is changed except the one pod, which is deleted after everything else.
fn assert_clean(received: &[Received]) {
    let writes = received.iter().filter(|received| !received.line.starts_with("GET "));
    let lines: Vec<&str> = writes.map(|received| received.line.as_str()).collect();
    assert!(lines[0].starts_with(CREATE), "{lines:?}");
    assert!(lines.len() > 1 && lines[1..].iter().all(|line| line.starts_with(DELETE)), "{lines:?}");
    let name =
        received.iter().find(|received| received.line.starts_with(CREATE)).unwrap().body["metadata"]["name"]
            .as_str()
            .unwrap();
    assert!(received.last().unwrap().line.ends_with(name));
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let denied = |spec: &Value| {
        spec["user"] == "system:serviceaccount:own:controller"
            && spec["resourceAttributes"]["resource"] == "nodes"
            && spec["resourceAttributes"]["subresource"] == "status"
    };
    let (found, received) = Cluster { denied, ..Cluster::default() }.find(Step::Permissions).await;
    assert_eq!(
        found.lines,
        ["system:serviceaccount:own:controller may not patch nodes/status in the whole cluster"]
    );
    assert!(!found.is_ok() && found.detail.starts_with("1 of "), "{found:?}");
    let worker = received.iter().find(|it| it.body["spec"]["resourceAttributes"]["resource"] == "services");
    let spec = &worker.unwrap().body["spec"];
    assert_eq!(spec["user"], "system:serviceaccount:workers:kube-node-ready-worker");
    assert!(spec["groups"].as_array().unwrap().contains(&json!("system:serviceaccounts:workers")));
    assert!(Cluster::default().find(Step::Permissions).await.0.is_ok());
}

#[tokio::test]
async fn what_the_doctor_lacks_is_named() {
    let denied =
        |spec: &Value| spec.get("user").is_none() && spec["resourceAttributes"]["resource"] == "leases";
    let server = Cluster { denied, ..Cluster::default() }.serve();
    let lacks = doctor(&server, installation()).lacks().await.unwrap();
    assert_eq!(
        lacks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["get leases.coordination.k8s.io in namespace own"]
    );
    assert!(server.lines().iter().all(|line| line.contains("selfsubjectaccessreviews")));
    let daemonset = Installation { mode: Mode::Daemonset, ..installation() };
    assert!(doctor(&server, daemonset).lacks().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_ready_is_named() {
    let state = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10s" } });
    let pods = vec![pod("c-1", "True", &Value::Null), pod("c-2", "False", &state)];
    let (found, _) = Cluster { pods, ..Cluster::default() }.find(Step::Pods).await;
    assert_eq!((found.is_ok(), found.detail.as_str()), (false, "1 of 2 pods are not ready"));
    assert_eq!(found.lines, ["c-2: controller: CrashLoopBackOff (back-off 10s)"]);
    let mut probed = pod("c-1", "False", &json!({ "running": {} }));
    probed["status"]["conditions"][0]["reason"] = json!("ContainersNotReady");
    let (found, _) = Cluster { pods: vec![probed], ..Cluster::default() }.find(Step::Pods).await;
    assert_eq!(found.lines, ["c-1: kubelet: ContainersNotReady"]);
    assert!(Cluster::default().find(Step::Pods).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_is_reported_even_if_little_time_is_left() {
    let pods = vec![pod("c-1", "False", &Value::Null)];
    let server = Cluster { pods, renews: false, ..Cluster::default() }.serve();
    let mut doctor = doctor(&server, installation());
    for (step, seen) in [(Step::Pods, "1 of 1 pods are not ready"), (Step::Leader, "does not renew it")] {
        doctor.deadline = Instant::now() + Duration::from_secs(5);
        let found = doctor.take(step, pending()).await;
        assert!(found.detail.ends_with(seen), "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_over_do_not_count() {
    let (mut evicted, mut leaving) = (pod("c-1", "False", &Value::Null), pod("c-2", "False", &Value::Null));
    evicted["status"]["phase"] = json!("Failed");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let over = vec![evicted, leaving];
    let with_another = [over.clone(), vec![pod("c-3", "True", &Value::Null)]].concat();
    assert!(Cluster { pods: with_another, ..Cluster::default() }.find(Step::Pods).await.0.is_ok());
    let (found, _) = Cluster { pods: over, ..Cluster::default() }.find(Step::Pods).await;
    assert_eq!(found.detail, "there is no pod app=x in namespace own");
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_its_lease() {
    let find = |cluster: Cluster| async { cluster.find(Step::Leader).await.0 };
    let led = find(Cluster::default()).await;
    assert_eq!((led.is_ok(), led.detail.as_str()), (true, "c-1 leads and renews its lease"));
    for (cluster, what) in [
        (Cluster { renews: false, ..Cluster::default() }, "is held by c-1, which does not renew it"),
        (Cluster { holder: Some(""), ..Cluster::default() }, "has no holder"),
        (Cluster { holder: None, ..Cluster::default() }, "does not exist"),
        (
            Cluster { holder: Some("other_00000000"), ..Cluster::default() },
            "is held by other_00000000, which is no pod of this installation",
        ),
    ] {
        let found = find(cluster).await;
        let expected = format!("lease own/kube-node-ready-controller {what}");
        assert_eq!((found.is_ok(), found.detail), (false, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_runs_reports_and_is_removed() {
    let (found, received) = Cluster::default().find(Step::Worker).await;
    assert!(found.is_ok() && found.detail.contains("n1"), "{found:?}");
    assert_eq!(found.report.unwrap().checks.len(), 1);
    assert_clean(&received);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_cannot_do_is_its_own_fault() {
    let (found, received) =
        Cluster { worker: Some(ended(1, DNS)), ..Cluster::default() }.find(Step::Worker).await;
    assert!(found.detail.ends_with("the node is not fit: dns: no answer"), "{found:?}");
    let next = found.next.unwrap();
    assert!(
        next.contains("it is the node, or what the configuration asks")
            && next.contains("test.node of the chart"),
        "{next}"
    );
    assert_eq!(found.report.unwrap().failures(), 1);
    assert_clean(&received);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_fault_of_the_node_is_not_put_down_to_it() {
    for (report, detail) in [
        (DNS.replace("timeout", "servfail"), "the cluster is at fault: dns: no answer"),
        (DNS.replace("timeout", "forbidden"), "the installation is at fault, not n1: dns: no answer"),
        (
            r#"{"error":"bad"}"#.to_owned(),
            "the installation is at fault, not n1: the worker could not run: bad",
        ),
    ] {
        let worker = Some(ended(2, &report));
        let (found, _) = Cluster { worker, ..Cluster::default() }.find(Step::Worker).await;
        assert!(found.detail.ends_with(detail), "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_starts_is_removed() {
    let began = Instant::now();
    let (found, received) =
        Cluster { worker: Some(waiting()), ..Cluster::default() }.find(Step::Worker).await;
    assert_eq!(found.detail, "it did not start on n1 in time: ErrImagePull: not found");
    assert_eq!(began.elapsed().as_secs() / 10, 12, "worker.pendingTimeoutSeconds");
    assert!(!found.is_ok());
    assert_clean(&received);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_takes_too_long_is_removed() {
    let running = json!({ "status": { "phase": "Running", "containerStatuses": [
        { "name": "worker", "state": { "running": {} } }] } });
    let (found, received) = Cluster { worker: Some(running), ..Cluster::default() }.find(Step::Worker).await;
    assert_eq!(found.detail, "it started on n1 and was not done in time");
    assert_eq!(
        found.next.unwrap(),
        "give it more time with --timeout (test.timeout of the chart); --node chooses another one (test.node of the chart)"
    );
    assert_clean(&received);
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_removed_when_the_trial_is_stopped() {
    let server = Cluster { worker: Some(waiting()), ..Cluster::default() }.serve();
    let stop = tokio::time::sleep(Duration::from_secs(5));
    let found = doctor(&server, installation()).take(Step::Worker, stop).await;
    assert_eq!(found.detail, "stopped before it was done on n1");
    assert_clean(&server.received());
    let server = Cluster::default().serve();
    let found = doctor(&server, installation()).take(Step::Worker, ready(())).await;
    assert!(!found.is_ok() && server.lines().is_empty(), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_not_let_in_is_reported() {
    let (found, received) = Cluster { worker: None, ..Cluster::default() }.find(Step::Worker).await;
    assert_eq!(found.detail, "it cannot be made: no such thing (403)");
    assert_clean(&received);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_go_is_named() {
    let (found, received) = Cluster { deletions: 1000, ..Cluster::default() }.find(Step::Worker).await;
    assert!(found.detail.contains("is left behind: it was deleted and does not go"), "{found:?}");
    assert!(found.next.unwrap().starts_with("kubectl -n workers delete pod node-ready-trial-"));
    assert_clean(&received);
    let (patient, _) = Cluster { deletions: 5, ..Cluster::default() }.find(Step::Worker).await;
    assert!(patient.is_ok(), "{patient:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sound_node_is_chosen() {
    let verified = json!({ "node-ready/verified": "true" });
    let nodes = vec![
        node("plain", &json!({}), "True"),
        node("down", &verified, "False"),
        node(
            "system",
            &json!({ "node-ready/verified": "true", "kubernetes.azure.com/mode": "system" }),
            "True",
        ),
        node("verified", &verified, "True"),
    ];
    let cluster = Cluster { nodes, ..Cluster::default() };
    let chosen = |received: &[Received]| {
        let made = received.iter().find(|it| it.line.starts_with(CREATE)).unwrap();
        made.body["spec"]["nodeName"].as_str().unwrap().to_owned()
    };
    assert_eq!(chosen(&cluster.clone().find(Step::Worker).await.1), "verified");
    let rest = Cluster { nodes: cluster.nodes[..3].to_vec(), ..cluster.clone() };
    assert_eq!(chosen(&rest.find(Step::Worker).await.1), "plain");
    let none = Cluster { nodes: cluster.nodes[1..3].to_vec(), ..cluster };
    let (found, received) = none.find(Step::Worker).await;
    assert!(found.detail.starts_with("there is no Ready Linux node") && received.len() == 1, "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn no_controller_takes_the_pod_for_its_own() {
    let (_, received) = Cluster::default().find(Step::Worker).await;
    let made = &received.iter().find(|it| it.line.starts_with(CREATE)).unwrap().body;
    assert!(serde_json::from_value::<SlimWorker>(made.clone()).unwrap().view().is_none());
    assert!(names::WORKER_LABELS.iter().any(|(key, value)| made["metadata"]["labels"][key] != *value));
    assert!(made["metadata"].get("annotations").is_none());
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(made["spec"]["activeDeadlineSeconds"], 210);
    assert_eq!(made["spec"]["serviceAccountName"], "kube-node-ready-worker");
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_needs_no_leader_and_is_gone_when_all_is_done() {
    let verified = node("n1", &json!({ "node-ready/verified": "true" }), "True");
    let cluster = Cluster { pods: Vec::new(), nodes: vec![verified], ..Cluster::default() };
    let server = cluster.serve();
    let of_daemonset = Installation { mode: Mode::Daemonset, account: "ds".into(), ..installation() };
    let doctor = doctor(&server, of_daemonset);
    assert_eq!(doctor.steps(), [Step::Permissions, Step::Pods, Step::Worker]);
    assert_eq!(doctor.take(Step::Permissions, pending()).await.lines, Vec::<String>::new());
    assert!(server.received().iter().all(|it| it.body["spec"]["user"] == "system:serviceaccount:own:ds"));
    let found = doctor.take(Step::Pods, pending()).await;
    assert_eq!((found.name, found.is_ok()), ("daemonset", true), "{found:?}");
    let made = doctor.pod("x", &knr_core::ids::NodeRef { name: "n1".into(), uid: "u".into() });
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "du");
    assert_eq!(
        (&made["metadata"]["namespace"], &made["spec"]["serviceAccountName"]),
        (&json!("own"), &json!("ds"))
    );
}

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::ApiAccess;
use crate::check::Surroundings;
use crate::testing::{self, Answer, FakeApi, soon};

/// The kernel does not connect to a broadcast address.
const NOWHERE: &str = "255.255.255.255";

fn endpoint(ip: &str, node: &str, port: u16) -> Endpoint {
    Endpoint { ip: ip.parse().unwrap(), node: Some(node.to_owned()), ports: vec![port] }
}

fn slices(endpoints: &Value, port: u16) -> Answer {
    let slice =
        json!({"metadata": {}, "addressType": "IPv4", "ports": [{"port": port}], "endpoints": endpoints});
    Answer::Json(
        200,
        json!({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": {}, "items": [slice]}),
    )
}

fn plan(services: &[&str]) -> CheckPlan {
    CheckPlan {
        services: services.iter().map(|&service| service.to_owned()).collect(),
        ..CheckPlan::default()
    }
}

/// Runs the check with this API server and this `kubernetes` Service.
async fn run(plan: &CheckPlan, api: ApiAccess, service: Option<SocketAddr>) -> Outcome {
    let kubernetes_service = service.map(|address| (address.ip().to_string(), address.port()));
    let surroundings = Surroundings { node: Some("here".to_owned()), api, kubernetes_service };
    let cx = Context { deadline: soon(), surroundings: Arc::new(surroundings) };
    testing::outcome(&Network::new(plan), &cx).await
}

fn trouble(outcome: Outcome) -> Trouble {
    match outcome {
        Outcome::Fail(trouble) => trouble,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_service_and_a_pod_elsewhere_are_reached() {
    let pod = testing::silent_tcp().await;
    let endpoints = json!([
        {"addresses": [NOWHERE], "nodeName": "here"},
        {"addresses": ["127.0.0.1"], "nodeName": "there"},
    ]);
    let api = FakeApi::start(move |_| slices(&endpoints, pod.port())).await;
    let outcome = run(&plan(&["a/b"]), api.access(), Some(pod)).await;
    let note = format!("Service kubernetes at {pod}; a pod of a/b at {pod}");
    assert_eq!(outcome, Outcome::Pass(note));
    assert_eq!(
        api.asked(),
        [
            "GET /apis/discovery.k8s.io/v1/namespaces/a/endpointslices?&labelSelector=kubernetes.io%2Fservice-name%3Db&limit=4 Bearer secret"
        ]
    );
}

#[tokio::test]
async fn one_pod_elsewhere_is_enough_and_a_refusal_shows_that_it_was_reached() {
    let refusing = testing::closed_tcp().await;
    let endpoints = json!([
        {"addresses": [NOWHERE], "nodeName": "there"},
        {"addresses": ["127.0.0.1"], "nodeName": "elsewhere"},
    ]);
    let api = FakeApi::start(move |_| slices(&endpoints, refusing.port())).await;
    assert!(matches!(run(&plan(&["a/b"]), api.access(), Some(api.address)).await, Outcome::Pass(_)));
}

#[tokio::test]
async fn unreachable_pods_are_distinguished_from_an_unreachable_service() {
    let endpoints =
        json!([{"addresses": [NOWHERE], "nodeName": "a"}, {"addresses": [NOWHERE], "nodeName": "b"}]);
    let api = FakeApi::start(move |_| slices(&endpoints, 1)).await;
    let pods = trouble(run(&plan(&["a/b"]), api.access(), Some(api.address)).await);
    assert_eq!(pods.kind, Kind::PodsUnreachable);
    let both =
        format!("pods of a/b: {NOWHERE}:1: connection not possible (errno 101), nor to 1 other addresses");
    assert_eq!(pods.detail, both);

    let closed = testing::closed_tcp().await;
    let service = trouble(run(&plan(&[]), api.access(), Some(closed)).await);
    let detail = format!("Service kubernetes: {closed}: connection refused (errno 111)");
    assert_eq!(service, Trouble::new(Kind::ServiceUnreachable, detail.clone()));

    let both_parts = trouble(run(&plan(&["a/b"]), api.access(), Some(closed)).await);
    assert_eq!(both_parts, Trouble::new(Kind::ServiceUnreachable, format!("{detail}; {both}")));
}

#[tokio::test]
async fn without_the_matrix_no_pod_is_tried() {
    let api = FakeApi::start(|_| Answer::Silence).await;
    let plan = CheckPlan { connectivity_matrix: false, ..plan(&["a/b"]) };
    assert!(matches!(run(&plan, api.access(), Some(api.address)).await, Outcome::Pass(_)));
    assert_eq!(api.asked(), [""; 0]);
}

#[tokio::test]
async fn what_keeps_pods_from_being_tried_is_reported() {
    let none = FakeApi::start(|_| slices(&json!([]), 1)).await;
    assert_eq!(
        trouble(run(&plan(&["a/b"]), none.access(), Some(none.address)).await).kind,
        Kind::NoEndpoints
    );
    let forbidden = FakeApi::start(|_| Answer::status(403, "no")).await;
    let here = Some(forbidden.address);
    assert_eq!(trouble(run(&plan(&["a/b"]), forbidden.access(), here).await).kind, Kind::Forbidden);
    for (code, kind) in [(401, Kind::Unauthorized), (503, Kind::Busy), (500, Kind::ServerError)] {
        let api = FakeApi::start(move |_| Answer::status(code, "no")).await;
        assert_eq!(trouble(run(&plan(&["a/b"]), api.access(), here).await).kind, kind, "{code}");
    }
    let other = FakeApi::start(|_| Answer::status(404, "no")).await;
    let api = trouble(run(&plan(&["a/b"]), other.access(), here).await);
    assert_eq!(api.kind, Kind::Api, "every API server serves this list");
    assert!(api.detail.starts_with("the API server: LIST EndpointSlices of a/b at "), "{api:?}");
    let missing = ApiAccess::Missing("no kubeconfig".to_owned());
    assert_eq!(run(&plan(&["a/b"]), missing, None).await, Outcome::Skipped("no kubeconfig".to_owned()));
    let access = ApiAccess::Broken("no token".to_owned());
    assert_eq!(trouble(run(&plan(&["a/b"]), access, here).await).kind, Kind::NoAccess);
}

#[tokio::test]
async fn outside_of_a_pod_the_api_server_says_where_its_service_is() {
    let service = testing::silent_tcp().await;
    let spec =
        json!({"spec": {"clusterIP": "127.0.0.1", "ports": [{"port": service.port()}]}, "metadata": {}});
    let api = FakeApi::start(move |_| Answer::Json(200, spec.clone())).await;
    let outcome = run(&plan(&[]), api.access(), None).await;
    assert_eq!(outcome, Outcome::Pass(format!("Service kubernetes at {service}")));
    assert_eq!(api.asked(), ["GET /api/v1/namespaces/default/services/kubernetes Bearer secret"]);
    let empty = FakeApi::start(|_| Answer::Json(200, json!({"metadata": {}}))).await;
    assert_eq!(trouble(run(&plan(&[]), empty.access(), None).await).kind, Kind::Api);
    let unknown = FakeApi::start(|_| Answer::status(404, "no")).await;
    assert_eq!(trouble(run(&plan(&[]), unknown.access(), None).await).kind, Kind::NotFound);
}

#[test]
fn pods_are_chosen_on_as_many_other_nodes_as_there_are() {
    let pods =
        |list: &[(&str, &str)]| list.iter().map(|(ip, node)| endpoint(ip, node, 1)).collect::<Vec<_>>();
    let chosen = |list: &[(&str, &str)], here: Option<&str>| -> Vec<String> {
        choose(pods(list), here).iter().map(|pod| pod.ip.to_string()).collect()
    };
    let all = [("1.0.0.1", "here"), ("1.0.0.2", "a"), ("1.0.0.3", "a"), ("1.0.0.4", "b")];
    assert_eq!(chosen(&all, Some("here")), ["1.0.0.2", "1.0.0.4", "1.0.0.3"]);
    assert_eq!(chosen(&all[..1], Some("here")), ["1.0.0.1"]);
    // If the node is not known, every pod may be elsewhere.
    assert_eq!(chosen(&all, None), ["1.0.0.1", "1.0.0.2", "1.0.0.4", "1.0.0.3"]);
    let many: Vec<(String, String)> =
        (0..9).map(|index| (format!("1.0.0.{index}"), format!("n{index}"))).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(ip, node)| (ip.as_str(), node.as_str())).collect();
    assert_eq!(chosen(&many, Some("here")).len(), MAX_PODS);
    let nowhere = Endpoint { node: None, ..endpoint("1.0.0.9", "", 1) };
    assert_eq!(choose(vec![nowhere, endpoint("1.0.0.1", "a", 1)], None).len(), 2);
    let portless = Endpoint { ports: Vec::new(), ..endpoint("1.0.0.1", "a", 1) };
    assert_eq!(choose(vec![portless], None), []);
}

use serde_json::{Value, json};

use super::*;
use crate::api::ApiAccess;
use crate::testing::{self, Answer, FakeApi, FakeDns, Reply, context_with, shortly, soon};

fn check(services: &[&str]) -> Services {
    let services = services.iter().map(|&service| service.to_owned()).collect();
    Services::new(&CheckPlan { services, ..CheckPlan::default() })
}

/// An API server where every Service has this spec and this number of ready pods.
async fn api(spec: Value, ready: usize) -> FakeApi {
    FakeApi::start(move |path| {
        if path.contains("endpointslices") {
            let endpoints = vec![json!({"addresses": ["10.0.0.1"]}); ready];
            let slice = json!({"metadata": {}, "addressType": "IPv4", "endpoints": endpoints});
            Answer::Json(200, json!({"metadata": {}, "items": [slice]}))
        } else {
            Answer::Json(200, json!({"metadata": {}, "spec": spec}))
        }
    })
    .await
}

fn tcp(ip: &str, port: u16) -> Value {
    json!({"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": port}]})
}

async fn failed(services: &[&str], api: &FakeApi) -> Trouble {
    match testing::outcome(&check(services), &context_with(soon(), api.access())).await {
        Outcome::Fail(trouble) => trouble,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_tcp_port_answers() {
    let server = testing::silent_tcp().await;
    let api = api(tcp("127.0.0.1", server.port()), 2).await;
    let outcome = check(&["a/b"]).run(&context_with(soon(), api.access())).await;
    assert_eq!(outcome, Outcome::Pass(format!("a/b with 2 ready, answers at {server}")));
    let mut asked = api.asked();
    asked.sort();
    assert!(asked[0].starts_with("GET /api/v1/namespaces/a/services/b "), "{asked:?}");
    assert!(asked[1].contains("endpointslices?&labelSelector=kubernetes.io%2Fservice-name%3Db"), "{asked:?}");

    let closed = testing::closed_tcp().await;
    let both = json!({"clusterIP": "127.0.0.1", "ports": [{"port": server.port()}, {"port": closed.port()}]});
    let trouble = failed(&["a/b"], &self::api(both, 1).await).await;
    assert_eq!(
        trouble,
        Trouble::new(Kind::Refused, format!("a/b: {closed}: connection refused (errno 111)"))
    );
}

#[tokio::test]
async fn an_address_without_a_route_is_reported() {
    let api = api(tcp("255.255.255.255", 1), 1).await;
    assert_eq!(failed(&["a/b"], &api).await.kind, Kind::Unreachable);
}

#[tokio::test]
async fn a_service_without_pods_fails_whatever_its_address_does() {
    let server = testing::silent_tcp().await;
    let trouble = failed(&["a/b"], &api(tcp("127.0.0.1", server.port()), 0).await).await;
    assert_eq!(trouble, Trouble::new(Kind::NoEndpoints, "a/b has no ready pod"));
    let trouble = failed(&["a/dns"], &api(tcp("127.0.0.1", 53), 0).await).await;
    assert_eq!(trouble, Trouble::new(Kind::NoDnsEndpoints, "a/dns has no ready pod"));
}

#[tokio::test]
async fn what_has_no_address_is_reported() {
    let headless = api(json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 1}]}), 1).await;
    let outcome = check(&["a/b"]).run(&context_with(soon(), headless.access())).await;
    assert_eq!(outcome, Outcome::Pass("a/b with 1 ready".to_owned()));
    for spec in [json!({"type": "ExternalName", "externalName": "x"}), json!({"clusterIP": ""})] {
        assert_eq!(failed(&["a/b"], &api(spec, 1).await).await.kind, Kind::NoClusterIp);
    }
}

#[tokio::test]
async fn a_service_that_cannot_be_read_is_reported() {
    let statuses = [
        (404, Kind::NotFound),
        (403, Kind::Forbidden),
        (401, Kind::Unauthorized),
        (429, Kind::Busy),
        (500, Kind::ServerError),
        (418, Kind::Api),
    ];
    for (code, kind) in statuses {
        let api = FakeApi::start(move |_| Answer::status(code, "no")).await;
        let trouble = failed(&["a/b"], &api).await;
        assert_eq!(trouble.kind, kind, "{trouble:?}");
        assert!(trouble.detail.contains("GET Service a/b at 127.0.0.1:"), "{trouble:?}");
    }
    let broken = context_with(soon(), ApiAccess::Broken("no token".to_owned()));
    let outcome = testing::outcome(&check(&["a/b"]), &broken).await;
    assert_eq!(outcome, Outcome::Fail(Trouble::new(Kind::NoAccess, "no token")));
    let closed = kube::Config::new(format!("https://{}", testing::closed_tcp().await).parse().unwrap());
    let cx = context_with(soon(), ApiAccess::Config(Box::new(closed)));
    let outcome = testing::outcome(&check(&["a/b"]), &cx).await;
    assert!(matches!(&outcome, Outcome::Fail(trouble) if trouble.kind == Kind::Api), "{outcome:?}");
}

#[tokio::test]
async fn without_an_api_or_a_service_there_is_nothing_to_check() {
    let missing = context_with(soon(), ApiAccess::Missing("no kubeconfig".to_owned()));
    assert_eq!(check(&["a/b"]).run(&missing).await, Outcome::Skipped("no kubeconfig".to_owned()));
    let none = check(&[]).run(&missing).await;
    assert_eq!(none, Outcome::Skipped("worker.services is empty".to_owned()));
}

#[tokio::test]
async fn one_bad_service_does_not_hide_another() {
    let api =
        FakeApi::start(|path| Answer::status(404, if path.contains("/a/") { "one" } else { "two" })).await;
    let trouble = failed(&["a/x", "b/x"], &api).await;
    assert!(trouble.detail.contains("Service a/x") && trouble.detail.contains("Service b/x"), "{trouble:?}");
}

#[test]
fn a_dns_service_is_asked_over_what_it_offers_and_its_other_ports_are_left_alone() {
    let spec: ServiceSpec = serde_json::from_value(json!({
        "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00::a"],
        "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}, {"port": 9153}],
    }))
    .unwrap();
    assert_eq!(
        addresses_of(&targets(&spec).unwrap()),
        ", answers at 10.96.0.10 over udp, 10.96.0.10 over tcp, fd00::a over udp, fd00::a over tcp"
    );
    let udp: ServiceSpec =
        serde_json::from_value(json!({"clusterIP": "10.0.0.1", "ports": [{"port": 1, "protocol": "UDP"}]}))
            .unwrap();
    assert!(targets(&udp).unwrap().is_empty());
}

#[tokio::test]
async fn any_answer_of_a_dns_service_will_do_but_there_must_be_one() {
    use hickory_resolver::proto::op::ResponseCode;
    let services = check(&[]);
    assert_eq!(services.question.to_ascii(), "kubernetes.default.svc.cluster.local.");
    for transport in [Transport::Udp, Transport::Tcp] {
        let server = FakeDns::start(Reply::Code(ResponseCode::NXDomain)).await;
        let target = Target::Dns(Server { address: server.address, transport });
        assert_eq!(services.probe(&target, soon()).await, Ok(()));
        let silent = FakeDns::start(Reply::Silence).await;
        let target = Target::Dns(Server { address: silent.address, transport });
        assert_eq!(services.probe(&target, shortly()).await.unwrap_err().kind, Kind::Timeout);
    }
}

#[test]
fn a_dns_service_is_asked_for_the_first_name_of_the_configuration() {
    let question = |domains: &[&str]| {
        let dns_test_domains = domains.iter().map(|&domain| domain.to_owned()).collect();
        Services::new(&CheckPlan { dns_test_domains, ..CheckPlan::default() }).question.to_ascii()
    };
    assert_eq!(question(&["10.0.0.1", "a.example", "b.example"]), "a.example.");
    assert_eq!(question(&["10.0.0.1"]), ANY_NAME);
}

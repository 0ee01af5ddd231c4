use kube::Config;
use serde_json::json;

use super::*;
use crate::api::ApiAccess;
use crate::testing::{self, Answer, FakeApi, context_with, shortly, soon};

fn good(path: &str) -> Answer {
    match path.split('?').next().unwrap_or_default() {
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
            review("system:serviceaccount:kube-system:worker")
        }
        "/version" => Answer::Json(
            200,
            json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
                   "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        ),
        "/openapi/v3" => Answer::Text(200, "x".repeat(20_000)),
        other => Answer::status(404, other),
    }
}

fn review(user: &str) -> Answer {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
                        "status": {"userInfo": {"username": user}}});
    Answer::Json(201, review)
}

async fn failed(access: ApiAccess, deadline: tokio::time::Instant) -> Trouble {
    match testing::outcome(&Kubernetes, &context_with(deadline, access)).await {
        Outcome::Fail(trouble) => trouble,
        other => panic!("{other:?}"),
    }
}

fn config(url: &str) -> Config {
    Config::new(url.parse().unwrap())
}

fn by(config: Config) -> ApiAccess {
    ApiAccess::Config(Box::new(config))
}

#[tokio::test]
async fn a_good_server_knows_us_and_tells_its_version() {
    for server in [FakeApi::start(good).await, FakeApi::plain(good).await] {
        let outcome = Kubernetes.run(&context_with(soon(), server.access())).await;
        let note = "v1.36.3 accepts the credentials as system:serviceaccount:kube-system:worker";
        assert_eq!(outcome, Outcome::Pass(note.to_owned()));
        assert_eq!(
            server.asked(),
            [
                "POST /apis/authentication.k8s.io/v1/selfsubjectreviews? Bearer secret",
                "GET /version Bearer secret",
                "GET /openapi/v3 Bearer secret"
            ]
        );
    }
}

#[tokio::test]
async fn every_step_fails_in_its_own_way() {
    let closed = testing::closed_tcp().await;
    let trouble = failed(by(config(&format!("https://{closed}"))), soon()).await;
    assert_eq!(trouble, Trouble::new(Kind::Refused, format!("{closed}: connection refused (errno 111)")));

    let silent = testing::silent_tcp().await;
    let trouble = failed(by(config(&format!("https://{silent}"))), shortly()).await;
    assert_eq!(trouble.kind, Kind::TlsTimeout);
    assert!(trouble.detail.contains("connected, but the TLS handshake did not end in"), "{trouble:?}");

    let closing = testing::closing_tcp().await;
    assert_eq!(failed(by(config(&format!("https://{closing}"))), soon()).await.kind, Kind::Closed);

    let plain = FakeApi::plain(good).await;
    assert_eq!(failed(by(config(&format!("https://{}", plain.address))), soon()).await.kind, Kind::Tls);

    let name = "https://no-such-name.invalid";
    assert_eq!(failed(by(config(name)), soon()).await.kind, Kind::Resolve);
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_name_is_not_trusted() {
    let (server, other) = (FakeApi::start(good).await, FakeApi::start(good).await);
    let mut config = server.config();
    config.root_cert = other.config().root_cert;
    assert_eq!(failed(by(config), soon()).await.kind, Kind::Untrusted);

    let misnamed = FakeApi::named("another.example", good).await;
    let trouble = failed(misnamed.access(), soon()).await;
    assert_eq!(trouble.kind, Kind::Untrusted);
    assert!(trouble.detail.contains("another.example"), "{trouble:?}");
    let mut config = misnamed.config();
    config.tls_server_name = Some("another.example".to_owned());
    assert!(matches!(Kubernetes.run(&context_with(soon(), by(config))).await, Outcome::Pass(_)));
}

#[tokio::test]
async fn whoever_is_not_known_has_not_passed() {
    let statuses = [
        (401, Kind::Unauthorized),
        (403, Kind::Forbidden),
        (429, Kind::Busy),
        (503, Kind::Busy),
        (504, Kind::Busy),
        (500, Kind::ServerError),
        (502, Kind::ServerError),
        (418, Kind::BadStatus),
    ];
    for (code, kind) in statuses {
        let server = FakeApi::start(move |_| Answer::status(code, "no")).await;
        let trouble = failed(server.access(), soon()).await;
        let detail = format!("POST SelfSubjectReview at 127.0.0.1:{}: {code} no", server.address.port());
        assert_eq!(trouble, Trouble::new(kind, detail));
    }
    for user in ["", ANONYMOUS] {
        let server = FakeApi::start(move |_| review(user)).await;
        assert_eq!(failed(server.access(), soon()).await.kind, Kind::Unauthorized, "{user:?}");
    }
}

#[tokio::test]
async fn an_older_server_knows_us_without_saying_as_whom() {
    let before_1_28 = |path: &str| match path.split('?').next().unwrap_or_default() {
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => Answer::status(404, "no"),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
                                "spec": {}, "status": {"allowed": false}});
            Answer::Json(201, review)
        }
        _ => good(path),
    };
    let server = FakeApi::start(before_1_28).await;
    let outcome = Kubernetes.run(&context_with(soon(), server.access())).await;
    assert_eq!(outcome, Outcome::Pass("v1.36.3 accepts the credentials".to_owned()));
    for (code, kind) in [(403, Kind::Forbidden), (404, Kind::BadStatus)] {
        let server = FakeApi::start(move |path| {
            let is_access = path.contains("selfsubjectaccessreviews");
            Answer::status(if is_access { code } else { 404 }, "no")
        })
        .await;
        let detail =
            format!("POST SelfSubjectAccessReview at 127.0.0.1:{}: {code} no", server.address.port());
        assert_eq!(failed(server.access(), soon()).await, Trouble::new(kind, detail));
    }
}

#[tokio::test]
async fn a_missing_or_invalid_answer_is_reported() {
    let silent = FakeApi::start(|_| Answer::Silence).await;
    let trouble = failed(silent.access(), shortly()).await;
    assert_eq!(trouble.kind, Kind::NoAnswer);
    assert!(trouble.detail.starts_with("POST SelfSubjectReview at 127.0.0.1:"), "{trouble:?}");

    let half = FakeApi::start(|path| if path == "/version" { Answer::Silence } else { good(path) }).await;
    let trouble = failed(half.access(), shortly()).await;
    assert!(trouble.detail.starts_with("GET /version at "), "{trouble:?}");

    for lost in [Answer::Silence, Answer::Stuck(1000)] {
        let small_only =
            FakeApi::start(move |path| if path == "/openapi/v3" { lost.clone() } else { good(path) }).await;
        assert_eq!(failed(small_only.access(), shortly()).await.kind, Kind::AnswerLost);
    }

    let strange = FakeApi::start(|_| Answer::Text(200, "hello".to_owned())).await;
    assert_eq!(failed(strange.access(), soon()).await.kind, Kind::BadAnswer);

    // A valid answer, except for its length.
    let endless = FakeApi::start(|path| match good(path) {
        Answer::Json(code, mut value) => {
            value["padding"] = "x".repeat(5 * 1024 * 1024).into();
            Answer::Json(code, value)
        }
        other => other,
    })
    .await;
    assert_eq!(failed(endless.access(), soon()).await.kind, Kind::BadAnswer);
}

#[tokio::test]
async fn without_access_it_is_skipped_or_fails_as_was_said() {
    let skipped = Kubernetes.run(&context_with(soon(), ApiAccess::Missing("no kubeconfig".to_owned()))).await;
    assert_eq!(skipped, Outcome::Skipped("no kubeconfig".to_owned()));
    let trouble = failed(ApiAccess::Broken("no token".to_owned()), soon()).await;
    assert_eq!(trouble, Trouble::new(Kind::NoAccess, "no token"));

    let mut config = config("https://127.0.0.1:1");
    config.proxy_url = Some("http://proxy.example".parse().unwrap());
    assert_eq!(failed(by(config), soon()).await.kind, Kind::NoAccess);

    let server = FakeApi::start(good).await;
    let mut config = server.config();
    config.auth_info.token = None;
    config.auth_info.token_file = Some("/no/such/token".to_owned());
    assert_eq!(failed(by(config), soon()).await.kind, Kind::NoAccess);
}

//! Large packets get through in both directions. Where they do not, small exchanges work and large ones hang.

use futures::FutureExt;
use futures::future::BoxFuture;
use knr_core::config::MtuSpec;

use crate::api::Api;
use crate::check::{About, Check, Context, Kind, Outcome, Trouble};
use crate::web::{self, Answer, Size, Trust};

/// A page of the API server that every user may read and that is larger than any usual packet.
const LARGE_PAGE: &str = "/openapi/v3";
const SMALL_PAGE: &str = "/version";

pub(crate) static ABOUT: About = About {
    name: "mtu",
    summary: "A large answer arrives, and then a large request is answered, whatever the status. By default the peer is \
              the API server; with `url` it is any web server that returns more than 9,000 bytes there. This finds a \
              network that silently drops large packets, which connections and small requests do not notice. With \
              `url`, certificates are not verified.",
    kinds: &[
        (
            Kind::RequestLost,
            "packets from the node are too large for the path: lower the MTU of the pod network",
        ),
        (
            Kind::AnswerLost,
            "packets to the node are too large for the path: lower the MTU of the pod network",
        ),
        (
            Kind::TlsTimeout,
            "packets to the node are too large for the path: lower the MTU of the pod network",
        ),
        (Kind::Resolve, "look at DNS, and whether the name is right"),
        (Kind::Timeout, "there is no answer at all: look at firewall rules and routes"),
        (Kind::Refused, "the host was reached, but nothing listens at this port"),
        (Kind::Unreachable, "there is no route to it: look at the routes of the node"),
        (Kind::HostUnreachable, "its host does not answer: look at the host"),
        (Kind::Closed, "the connection was closed early: look at the peer and at firewalls"),
        (Kind::Io, "look at the worker's log and at the limits of the node"),
        (Kind::Untrusted, "look at the clock of the node, and whether a proxy intercepts TLS"),
        (Kind::Tls, "does the peer speak TLS at this port?"),
        (Kind::BadAnswer, "does the peer speak HTTP at this port?"),
        (Kind::NoAccess, "look at the service account of the worker, or at the kubeconfig"),
    ],
};

/// See [`ABOUT`].
pub(crate) struct Mtu {
    name: String,
    url: Option<String>,
}

impl Mtu {
    pub(crate) fn new(name: &str, spec: &MtuSpec) -> Self {
        Self { name: name.to_owned(), url: spec.url.clone() }
    }
}

impl Check for Mtu {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        self.exchange(cx).map(Outcome::from).boxed()
    }
}

impl Mtu {
    async fn exchange(&self, cx: &Context) -> Result<String, Outcome> {
        let answer = match &self.url {
            Some(url) => {
                let large_answer = web::fetch(url, Size::Small, Trust::Any, cx.deadline).await;
                let answer = large_answer.map_err(answer_lost)?;
                web::fetch(url, Size::Large, Trust::Any, cx.deadline).await.map_err(request_lost)?;
                answer
            }
            None => with_api(&cx.surroundings.api.connect(cx.deadline).await?).await?,
        };
        let Answer { status, bytes } = answer;
        Ok(format!("an answer of {bytes} bytes (status {}) and a large request got through", status.as_u16()))
    }
}

async fn with_api(api: &Api) -> Result<Answer, Trouble> {
    let answer = large_answer(api).await?;
    api.fetch(SMALL_PAGE, Size::Large).await.map_err(request_lost)?;
    Ok(answer)
}

/// Fetches a page of the API server that does not fit into one packet.
pub(super) async fn large_answer(api: &Api) -> Result<Answer, Trouble> {
    api.fetch(LARGE_PAGE, Size::Small).await.map_err(answer_lost)
}

/// A small request got no answer: even the head of the answer was in a large packet.
fn answer_lost(trouble: Trouble) -> Trouble {
    if trouble.kind == Kind::NoAnswer { trouble.within(Kind::AnswerLost, "small request: ") } else { trouble }
}

/// Large answers get through, so the lost packet was part of the request.
fn request_lost(trouble: Trouble) -> Trouble {
    match trouble.kind {
        Kind::NoAnswer | Kind::AnswerLost => trouble.within(Kind::RequestLost, "large request: "),
        _ => trouble,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::api::ApiAccess;
    use crate::testing::{self, Answer as Said, FakeApi, context, context_with, shortly, soon};

    fn large(_: &str) -> Said {
        Said::Text(200, "x".repeat(20_000))
    }

    fn to(url: Option<String>) -> Mtu {
        Mtu::new("frames", &MtuSpec { url })
    }

    async fn kind(check: &Mtu, cx: &Context) -> Kind {
        match testing::outcome(check, cx).await {
            Outcome::Fail(trouble) => trouble.kind,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_good_network_lets_both_through() {
        let passed = "an answer of 20000 bytes (status 200) and a large request got through";
        let api = FakeApi::start(large).await;
        let outcome = to(None).run(&context_with(soon(), api.access())).await;
        assert_eq!(outcome, Outcome::Pass(passed.to_owned()));
        assert_eq!(api.asked(), ["GET /openapi/v3 Bearer secret", "GET /version Bearer secret large"]);
        for server in [FakeApi::plain(large).await, FakeApi::start(large).await] {
            let url = Some(server.config().cluster_url.to_string());
            assert_eq!(to(url).run(&context(soon())).await, Outcome::Pass(passed.to_owned()));
            assert_eq!(server.asked(), ["GET / nobody", "GET / nobody large"]);
        }
    }

    #[tokio::test]
    async fn a_lost_answer_is_distinguished_from_a_lost_request() {
        for said in [Said::Silence, Said::Stuck(10)] {
            let api = FakeApi::start(move |_| said.clone()).await;
            assert_eq!(kind(&to(None), &context_with(shortly(), api.access())).await, Kind::AnswerLost);
        }
        let half = FakeApi::start(|path| if path == SMALL_PAGE { Said::Silence } else { large(path) }).await;
        assert_eq!(kind(&to(None), &context_with(shortly(), half.access())).await, Kind::RequestLost);

        let requests = AtomicUsize::new(0);
        let once = FakeApi::plain(move |path| match requests.fetch_add(1, Ordering::SeqCst) {
            0 => large(path),
            _ => Said::Silence,
        })
        .await;
        let url = Some(format!("http://{}/large", once.address));
        assert_eq!(kind(&to(url), &context(shortly())).await, Kind::RequestLost);
        let silent = testing::silent_tcp().await;
        assert_eq!(kind(&to(Some(format!("https://{silent}"))), &context(shortly())).await, Kind::TlsTimeout);
    }

    #[tokio::test]
    async fn without_an_api_server_it_is_skipped() {
        let cx = context_with(soon(), ApiAccess::Missing("no kubeconfig".to_owned()));
        assert_eq!(to(None).run(&cx).await, Outcome::Skipped("no kubeconfig".to_owned()));
        let closed = testing::closed_tcp().await;
        assert_eq!(kind(&to(Some(format!("http://{closed}"))), &cx).await, Kind::Refused);
    }
}

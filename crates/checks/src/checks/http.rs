//! A web server answers.

use futures::FutureExt;
use futures::future::BoxFuture;
use knr_core::config::HttpSpec;

use crate::check::{About, Check, Context, Kind, Outcome, Trouble};
use crate::web::{self, Size, Trust};

pub(crate) static ABOUT: About = About {
    name: "http",
    summary: "A web server answers a GET with the expected status, or any from 200 to 399. At most 1 MiB of the answer \
              is read. A certificate must be signed by an authority that browsers trust (or by one of the worker's image, if \
              it brings its own) or by that of the cluster, unless `insecure` is on.",
    kinds: &[
        (Kind::Resolve, "look at DNS, and whether the name is right"),
        (Kind::Timeout, "there is no answer: look at firewall rules, security groups and routes"),
        (Kind::Refused, "the host was reached, but nothing listens at this port"),
        (Kind::Unreachable, "there is no route to it: look at the routes of the node"),
        (Kind::HostUnreachable, "its host does not answer: look at the host"),
        (Kind::Closed, "the connection was closed early: look at the server and at firewalls"),
        (Kind::Io, "look at the worker's log and at the limits of the node"),
        (Kind::TlsTimeout, "connected, but TLS hangs: large packets may be lost (MTU)"),
        (Kind::Untrusted, "look at the certificate, the clock of the node, and the authorities in the image"),
        (Kind::Tls, "does the server speak TLS at this port?"),
        (Kind::NoAnswer, "connected, but the server does not answer: look at the server, or at the MTU"),
        (Kind::AnswerLost, "the answer began and then stopped: large packets may be lost (MTU)"),
        (Kind::BadAnswer, "does the server speak HTTP at this port?"),
        (Kind::Busy, "the server is overloaded, or not up yet"),
        (Kind::ServerError, "look at the log of the server"),
        (Kind::BadStatus, "look at the log of the server, and whether the address is right"),
    ],
};

/// See [`ABOUT`].
pub(crate) struct Http {
    name: String,
    spec: HttpSpec,
}

impl Http {
    pub(crate) fn new(name: &str, spec: &HttpSpec) -> Self {
        Self { name: name.to_owned(), spec: spec.clone() }
    }
}

impl Check for Http {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        self.get(cx).map(Outcome::from).boxed()
    }
}

impl Http {
    async fn get(&self, cx: &Context) -> Result<String, Outcome> {
        let HttpSpec { url, status, insecure } = &self.spec;
        let trust = if *insecure { Trust::Any } else { Trust::Authorities(&cx.surroundings.api) };
        let answer = web::fetch(url, Size::Small, trust, cx.deadline).await?;
        let got = answer.status.as_u16();
        let (is_expected, expected) = match status {
            Some(wanted) => (got == *wanted, wanted.to_string()),
            None => ((200..400).contains(&got), "200 to 399".to_owned()),
        };
        if is_expected {
            Ok(format!("{url}: {got}"))
        } else {
            let detail = format!("{url}: status {got}, expected {expected}");
            Err(Trouble::new(web::kind_of_status(got), detail).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Answer, FakeApi, context, context_with, shortly, soon};

    fn to(url: String) -> Http {
        Http::new("web", &HttpSpec { url, status: None, insecure: false })
    }

    async fn kind(check: &Http, cx: &Context) -> Kind {
        match testing::outcome(check, cx).await {
            Outcome::Fail(trouble) => trouble.kind,
            other => panic!("{other:?}"),
        }
    }

    async fn text(code: u16, text: &'static str) -> FakeApi {
        FakeApi::plain(move |_| Answer::Text(code, text.to_owned())).await
    }

    #[tokio::test]
    async fn the_status_decides() {
        let (good, moved, bad) = (text(200, "ok").await, text(302, "").await, text(503, "").await);
        let url = |server: &FakeApi| format!("http://{}/health?x=y", server.address);
        let outcome = to(url(&good)).run(&context(soon())).await;
        assert_eq!(outcome, Outcome::Pass(format!("{}: 200", url(&good))));
        assert_eq!(good.asked(), ["GET /health?x=y nobody"]);
        assert!(matches!(to(url(&moved)).run(&context(soon())).await, Outcome::Pass(_)));
        assert_eq!(kind(&to(url(&bad)), &context(soon())).await, Kind::Busy);
        for (code, expected) in [(404, Kind::BadStatus), (429, Kind::Busy), (500, Kind::ServerError)] {
            let server = text(code, "").await;
            assert_eq!(kind(&to(url(&server)), &context(soon())).await, expected, "{code}");
        }
        let exactly = |status, server| {
            Http::new("web", &HttpSpec { url: url(server), status: Some(status), insecure: false })
        };
        assert!(matches!(exactly(503, &bad).run(&context(soon())).await, Outcome::Pass(_)));
        assert_eq!(kind(&exactly(204, &good), &context(soon())).await, Kind::BadStatus);
    }

    #[tokio::test]
    async fn a_certificate_of_the_cluster_is_trusted_and_another_is_not() {
        let server = FakeApi::start(|_| Answer::Text(200, String::new())).await;
        let url = format!("https://{}", server.address);
        let in_cluster = context_with(soon(), server.access());
        assert!(matches!(to(url.clone()).run(&in_cluster).await, Outcome::Pass(_)));
        assert_eq!(kind(&to(url.clone()), &context(soon())).await, Kind::Untrusted);
        let careless = Http::new("web", &HttpSpec { url, status: None, insecure: true });
        assert!(matches!(careless.run(&context(soon())).await, Outcome::Pass(_)));
    }

    #[tokio::test]
    async fn whatever_goes_wrong_is_reported() {
        let closed = testing::closed_tcp().await;
        assert_eq!(kind(&to(format!("http://{closed}")), &context(soon())).await, Kind::Refused);
        let closing = testing::closing_tcp().await;
        assert_eq!(kind(&to(format!("http://{closing}")), &context(soon())).await, Kind::Closed);
        let silent = testing::silent_tcp().await;
        assert_eq!(kind(&to(format!("http://{silent}")), &context(shortly())).await, Kind::NoAnswer);
        assert_eq!(kind(&to(format!("https://{silent}")), &context(shortly())).await, Kind::TlsTimeout);
        let stuck = FakeApi::plain(|_| Answer::Stuck(7)).await;
        let outcome = testing::outcome(&to(format!("http://{}", stuck.address)), &context(shortly())).await;
        let Outcome::Fail(trouble) = outcome else { panic!("{outcome:?}") };
        assert_eq!(trouble.kind, Kind::AnswerLost);
        assert!(trouble.detail.contains("stopped after 7 bytes"), "{trouble:?}");
        let plain = text(200, "").await;
        assert_eq!(kind(&to(format!("https://{}", plain.address)), &context(soon())).await, Kind::Tls);
        let tls = FakeApi::start(|_| Answer::Silence).await;
        assert_eq!(kind(&to(format!("http://{}", tls.address)), &context(soon())).await, Kind::BadAnswer);
        assert_eq!(
            kind(&to("http://no-such-name.invalid".to_owned()), &context(soon())).await,
            Kind::Resolve
        );
    }

    #[tokio::test]
    async fn an_endless_answer_is_read_in_part() {
        let server = FakeApi::plain(|_| Answer::Stuck(web::MAX_BODY)).await;
        let outcome = to(format!("http://{}", server.address)).run(&context(soon())).await;
        assert!(matches!(outcome, Outcome::Pass(_)), "{outcome:?}");
    }
}

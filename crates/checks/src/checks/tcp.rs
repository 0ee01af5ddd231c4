//! A TCP connection to an address of the user's choice.

use futures::FutureExt;
use futures::future::BoxFuture;
use knr_core::config::TcpSpec;

use crate::check::{About, Check, Context, Kind, Outcome, Trouble};
use crate::{net, web};

pub(crate) static ABOUT: About = About {
    name: "tcp",
    summary: "A TCP connection to a host and port. If a name has several addresses, one that answers is enough.",
    kinds: &[
        (Kind::Resolve, "look at DNS, and whether the name is right"),
        (Kind::Timeout, "there is no answer: look at firewall rules, security groups and routes"),
        (Kind::Refused, "the host was reached, but nothing listens at this port"),
        (Kind::Unreachable, "there is no route to it: look at the routes of the node"),
        (Kind::HostUnreachable, "its host does not answer: look at the host"),
        (Kind::Closed, "the connection is closed on the way: look at firewalls"),
        (Kind::Io, "look at the worker's log and at the limits of the node"),
    ],
};

/// See [`ABOUT`].
pub(crate) struct Tcp {
    name: String,
    address: String,
}

impl Tcp {
    pub(crate) fn new(name: &str, spec: &TcpSpec) -> Self {
        Self { name: name.to_owned(), address: spec.address.clone() }
    }
}

impl Check for Tcp {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        async move {
            let split =
                self.address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
            let Some((host, port)) = split else {
                return Trouble::new(Kind::Resolve, format!("{:?} is no host and port", self.address)).into();
            };
            match net::dial(host, port, cx.deadline).await {
                Ok(stream) => Outcome::Pass(web::peer(&stream, host, port)),
                Err(trouble) => trouble.into(),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, context, shortly, soon};

    fn to(address: &impl ToString) -> Tcp {
        Tcp::new("registry", &TcpSpec { address: address.to_string() })
    }

    async fn kind(address: &impl ToString) -> Kind {
        match testing::outcome(&to(address), &context(soon())).await {
            Outcome::Fail(trouble) => trouble.kind,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn whoever_listens_is_reached() {
        let address = testing::silent_tcp().await;
        assert_eq!(to(&address).run(&context(soon())).await, Outcome::Pass(address.to_string()));
        let by_name = to(&format!("localhost:{}", address.port())).run(&context(soon())).await;
        assert_eq!(by_name, Outcome::Pass(format!("localhost:{} ({address})", address.port())));
    }

    #[tokio::test]
    async fn whatever_goes_wrong_is_reported() {
        assert_eq!(kind(&testing::closed_tcp().await).await, Kind::Refused);
        assert_eq!(kind(&"255.255.255.255:1").await, Kind::Unreachable);
        assert_eq!(kind(&"no-such-name.invalid:1").await, Kind::Resolve);
        assert_eq!(kind(&"nothing").await, Kind::Resolve);
    }

    #[tokio::test]
    async fn a_listener_that_accepts_no_connection_times_out() {
        let address = testing::full_tcp().await;
        let outcome = testing::outcome(&to(&address), &context(shortly())).await;
        let Outcome::Fail(trouble) = outcome else { panic!("{outcome:?}") };
        assert_eq!(trouble.kind, Kind::Timeout);
        assert!(trouble.detail.starts_with(&format!("{address}: no connection after ")), "{trouble:?}");
    }
}

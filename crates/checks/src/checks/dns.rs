//! Names are resolved: each one, by every nameserver of the node, over UDP and TCP.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use futures::FutureExt;
use futures::future::{BoxFuture, join, join_all};
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::parse_resolv_conf;
use knr_core::config::CheckPlan;
use tokio::time::Instant;

use crate::check::{About, Check, Context, Kind, Outcome, Trouble};
use crate::lookup::{self, Server, Transport};

/// The file with the nameservers of the system.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Further failures are only counted, not listed.
const LISTED: usize = 3;

pub(crate) static ABOUT: About = About {
    name: "dns",
    summary: "Each name of `worker.dnsTestDomains` is resolved by every nameserver in `/etc/resolv.conf`, over UDP and \
              over TCP. An address of either family is enough. A name without a trailing dot that does not exist and has \
              fewer dots than `ndots` is also looked up in the search domains. An IP address in the list is not \
              resolved.",
    kinds: &[
        (Kind::Timeout, "look at kube-proxy and the pod network on this node, and whether the DNS pods run"),
        (Kind::UdpTimeout, "UDP to port 53 is lost: look at firewall rules and security groups"),
        (Kind::TcpTimeout, "TCP to port 53 is lost, which long answers need: look at firewall rules"),
        (Kind::Refused, "no DNS server listens there: look at the DNS pods and at kube-proxy"),
        (Kind::Unreachable, "there is no route to the nameserver: look at the routes of the pod network"),
        (Kind::HostUnreachable, "its host does not answer: look at the machine of the nameserver"),
        (Kind::Closed, "connections to the DNS server are closed on the way: look at firewalls"),
        (Kind::Io, "look at the worker's log and at the limits of the node"),
        (Kind::NoNameserver, "look at the kubelet's clusterDNS and at /etc/resolv.conf of the node"),
        (Kind::Nxdomain, "is the name right? If so, look at the configuration of the DNS server"),
        (Kind::NoRecords, "is the name that of a host or a Service?"),
        (Kind::Servfail, "look at the log of the DNS server and at the servers it asks in turn"),
        (Kind::QueryRefused, "look at the configuration of the DNS server: it does not serve this node"),
        (Kind::BadAnswer, "what answers there may not be a DNS server"),
    ],
};

/// See [`ABOUT`].
pub(crate) struct Dns {
    domains: Vec<String>,
    resolv_conf: PathBuf,
}

impl Dns {
    pub(crate) fn new(plan: &CheckPlan) -> Self {
        Self { domains: plan.dns_test_domains.clone(), resolv_conf: RESOLV_CONF.into() }
    }
}

impl Check for Dns {
    fn name(&self) -> &str {
        ABOUT.name
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        async move {
            match Resolver::read(&self.resolv_conf) {
                Ok(resolver) => resolver.look_up(&self.domains, cx.deadline).await,
                Err(trouble) => trouble.into(),
            }
        }
        .boxed()
    }
}

/// The resolver configuration of the system.
#[derive(Debug)]
struct Resolver {
    servers: Vec<SocketAddr>,
    search: Vec<Name>,
    ndots: usize,
}

impl Resolver {
    fn read(path: &std::path::Path) -> Result<Self, Trouble> {
        let trouble = |why: String| Trouble::new(Kind::NoNameserver, format!("{}: {why}", path.display()));
        let text = std::fs::read(path).map_err(|error| trouble(error.to_string()))?;
        let (config, options) = parse_resolv_conf(text).map_err(|error| trouble(error.to_string()))?;
        Ok(Self {
            servers: config.name_servers().iter().map(|server| SocketAddr::new(server.ip, 53)).collect(),
            search: config.search().to_vec(),
            ndots: options.ndots,
        })
    }

    async fn look_up(&self, domains: &[String], deadline: Instant) -> Outcome {
        let (literals, names): (Vec<&String>, Vec<&String>) =
            domains.iter().partition(|domain| domain.parse::<IpAddr>().is_ok());
        let nothing = literals.iter().map(|literal| format!("{literal} is an address, nothing to resolve"));
        if names.is_empty() {
            return Outcome::Skipped(nothing.collect::<Vec<_>>().join("; "));
        }
        let pairs =
            names.iter().flat_map(|name| self.servers.iter().map(move |server| (name.as_str(), *server)));
        let results = join_all(pairs.map(|(name, server)| self.at_server(name, server, deadline))).await;
        if let Some(trouble) = summary(results) {
            return trouble.into();
        }
        let servers: Vec<String> = self.servers.iter().map(|server| server.ip().to_string()).collect();
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        let found = format!("{} at {} over udp and tcp", names.join(", "), servers.join(", "));
        Outcome::Pass(std::iter::once(found).chain(nothing).collect::<Vec<_>>().join("; "))
    }

    /// Asks one server for one name, over both transports.
    async fn at_server(&self, name: &str, address: SocketAddr, deadline: Instant) -> Result<(), Trouble> {
        let over = |transport| self.find(name, Server { address, transport }, deadline);
        match join(over(Transport::Udp), over(Transport::Tcp)).await {
            (Ok(()), Ok(())) => Ok(()),
            (Err(udp), Err(_)) => {
                let and_tcp = if udp.detail.ends_with("over udp") { " and tcp" } else { ", and over tcp" };
                Err(Trouble::new(udp.kind, udp.detail + and_tcp))
            }
            (Err(udp), Ok(())) => Err(Trouble { kind: alone(udp.kind, Kind::UdpTimeout), ..udp }),
            (Ok(()), Err(tcp)) => Err(Trouble { kind: alone(tcp.kind, Kind::TcpTimeout), ..tcp }),
        }
    }

    /// Looks up the name as it is, and if it does not exist, in the search domains.
    async fn find(&self, name: &str, server: Server, deadline: Instant) -> Result<(), Trouble> {
        let parse = Name::from_ascii(name);
        let relative = parse.map_err(|error| Trouble::new(Kind::BadAnswer, format!("{name}: {error}")))?;
        let mut absolute = relative.clone();
        absolute.set_fqdn(true);
        let first = lookup::addresses(&absolute, server, deadline).await;
        let is_missing =
            matches!(&first, Err(trouble) if matches!(trouble.kind, Kind::Nxdomain | Kind::NoRecords));
        if !is_missing || relative.is_fqdn() || usize::from(relative.num_labels()) > self.ndots {
            return first;
        }
        for domain in &self.search {
            let Ok(candidate) = relative.clone().append_domain(domain) else { continue };
            if lookup::addresses(&candidate, server, deadline).await.is_ok() {
                return Ok(());
            }
        }
        first
    }
}

/// A timeout over only one transport has its own causes.
fn alone(kind: Kind, timeout: Kind) -> Kind {
    if kind == Kind::Timeout { timeout } else { kind }
}

fn summary(results: Vec<Result<(), Trouble>>) -> Option<Trouble> {
    let asked = results.len();
    let mut troubles: Vec<Trouble> = results.into_iter().filter_map(Result::err).collect();
    let failed = troubles.len();
    troubles.truncate(LISTED);
    let Trouble { kind, mut detail } = Trouble::all(troubles)?;
    if failed > LISTED {
        detail = format!("{detail}; {failed} of {asked} lookups failed");
    }
    Some(Trouble { kind, detail })
}

#[cfg(test)]
mod tests;

//! Services are found through the API and answer at their addresses.

use std::net::{IpAddr, SocketAddr};

use futures::future::{BoxFuture, join, join_all};
use futures::{FutureExt, TryFutureExt};
use hickory_resolver::proto::rr::{Name, RecordType};
use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use knr_core::config::CheckPlan;
use tokio::time::Instant;

use crate::api::Api;
use crate::check::{About, Check, Context, Kind, Outcome, Trouble};
use crate::cluster::{self, unread, unread_trouble};
use crate::lookup::{self, Server, Transport};
use crate::net;

/// The question for DNS Services if `worker.dnsTestDomains` has no name. Any answer will do.
const ANY_NAME: &str = "kubernetes.default.svc.cluster.local.";
const DNS_PORT: i32 = 53;

pub(crate) static ABOUT: About = About {
    name: "services",
    summary: "Each Service in `worker.services` exists and has at least one ready pod, and its ClusterIP answers through \
              kube-proxy: a DNS Service (one with port 53) to a query over UDP and over TCP, any other Service by a TCP \
              connection to each of its TCP ports. A headless Service has no ClusterIP to try.",
    kinds: &[
        (Kind::Timeout, "look at kube-proxy on this node: it makes the addresses of Services work"),
        (Kind::Refused, "kube-proxy knows no pod for it: look at kube-proxy and at the Service"),
        (Kind::Unreachable, "there is no route to it: look at the routes of the node and at kube-proxy"),
        (Kind::HostUnreachable, "no host answers at it: look at the machines of its pods"),
        (Kind::Closed, "connected, but closed at once: look at the pods of the Service"),
        (Kind::Io, "look at the worker's log and at the limits of the node"),
        (Kind::BadAnswer, "what answers there may not be a DNS server: look at the Service"),
        (Kind::NoEndpoints, "look at the pods of the Service: none is ready"),
        (Kind::NoDnsEndpoints, "look at the DNS pods: none is ready"),
        (Kind::NoClusterIp, "take the Service out of worker.services, or give it a ClusterIP"),
        (Kind::NotFound, "worker.services names a Service that does not exist"),
        (Kind::Forbidden, "the worker needs get on services and list on endpointslices in that namespace"),
        (Kind::Unauthorized, "look at the service account of the worker"),
        (Kind::Busy, "the API server is overloaded, or not up yet"),
        (Kind::ServerError, "look at the log of the API server"),
        (Kind::NoAccess, "look at the service account of the worker, or at the kubeconfig"),
        (Kind::Api, "the Service could not be read: look at the check kubernetes"),
    ],
};

/// See [`ABOUT`].
pub(crate) struct Services {
    services: Vec<String>,
    question: Name,
}

impl Services {
    pub(crate) fn new(plan: &CheckPlan) -> Self {
        let names = plan.dns_test_domains.iter().filter(|domain| domain.parse::<IpAddr>().is_err());
        let question = names
            .map(String::as_str)
            .chain([ANY_NAME])
            .find_map(|name| Name::from_ascii(name).ok())
            .map_or_else(Name::root, |mut name| {
                name.set_fqdn(true);
                name
            });
        Self { services: plan.services.clone(), question }
    }
}

impl Check for Services {
    fn name(&self) -> &str {
        ABOUT.name
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        self.all(cx).map(Outcome::from).boxed()
    }
}

impl Services {
    async fn all(&self, cx: &Context) -> Result<String, Outcome> {
        if self.services.is_empty() {
            return Err(Outcome::Skipped("worker.services is empty".to_owned()));
        }
        let api = cx.surroundings.api.connect(cx.deadline).await.map_err(unread)?;
        let each = self.services.iter().map(|service| self.one(&api, service, cx.deadline));
        let (notes, troubles): (Vec<_>, Vec<_>) = join_all(each).await.into_iter().partition(Result::is_ok);
        match Trouble::all(troubles.into_iter().filter_map(Result::err)) {
            Some(trouble) => Err(trouble.into()),
            None => Ok(notes.into_iter().flatten().collect::<Vec<_>>().join("; ")),
        }
    }

    async fn one(&self, api: &Api, name: &str, deadline: Instant) -> Result<String, Trouble> {
        let (service, endpoints) = join(cluster::service(api, name), cluster::endpoints(api, name)).await;
        let spec = service.map_err(unread_trouble)?.spec.unwrap_or_default();
        let ready = endpoints.map_err(unread_trouble)?.len();
        if ready == 0 {
            let kind = if is_dns(&spec) { Kind::NoDnsEndpoints } else { Kind::NoEndpoints };
            return Err(Trouble::new(kind, format!("{name} has no ready pod")));
        }
        let targets =
            targets(&spec).map_err(|why| Trouble::new(Kind::NoClusterIp, format!("{name} {why}")))?;
        let probes = targets.iter().map(|target| self.probe(target, deadline));
        match Trouble::all(join_all(probes).await.into_iter().filter_map(Result::err)) {
            Some(trouble) => {
                let kind = trouble.kind;
                Err(trouble.within(kind, &format!("{name}: ")))
            }
            None => Ok(format!("{name} with {ready} ready{}", addresses_of(&targets))),
        }
    }

    async fn probe(&self, target: &Target, deadline: Instant) -> Result<(), Trouble> {
        match *target {
            Target::Tcp(address) => net::connect(address, deadline).map_ok(drop).await,
            Target::Dns(server) => {
                lookup::ask(&self.question, RecordType::A, server, deadline).map_ok(drop).await
            }
        }
    }
}

/// A port of a Service that must answer.
#[derive(Debug, Clone, Copy)]
enum Target {
    Tcp(SocketAddr),
    Dns(Server),
}

fn is_dns(spec: &ServiceSpec) -> bool {
    spec.ports.iter().flatten().any(|port| port.port == DNS_PORT)
}

/// Returns the ports of a Service that must answer, or why none can.
fn targets(spec: &ServiceSpec) -> Result<Vec<Target>, &'static str> {
    let listed = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    let mut addresses: Vec<&str> = listed.map(String::as_str).filter(|ip| !ip.is_empty()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return Err("has no ClusterIP");
    }
    let ports: Vec<&ServicePort> = spec.ports.iter().flatten().collect();
    let is_dns = is_dns(spec);
    // The `None` of a headless Service is not an address, and leaves nothing to try.
    let addresses = addresses.into_iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
    let each = addresses.flat_map(|ip| ports.iter().filter_map(move |port| target(ip, port, is_dns)));
    Ok(each.collect())
}

fn target(ip: IpAddr, port: &ServicePort, is_dns: bool) -> Option<Target> {
    let address = SocketAddr::new(ip, u16::try_from(port.port).ok()?);
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    match (is_dns, protocol) {
        // Other ports of a DNS server, such as its metrics port, are often closed.
        (true, _) if port.port != DNS_PORT => None,
        (true, "UDP") => Some(Target::Dns(Server { address, transport: Transport::Udp })),
        (true, "TCP") => Some(Target::Dns(Server { address, transport: Transport::Tcp })),
        (false, "TCP") => Some(Target::Tcp(address)),
        _ => None,
    }
}

fn addresses_of(targets: &[Target]) -> String {
    let words: Vec<String> = targets
        .iter()
        .map(|target| match target {
            Target::Tcp(address) => address.to_string(),
            Target::Dns(server) => server.to_string(),
        })
        .collect();
    if words.is_empty() { String::new() } else { format!(", answers at {}", words.join(", ")) }
}

#[cfg(test)]
mod tests;

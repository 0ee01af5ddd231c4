//! The `kubernetes` Service can be reached at its address, and pods on other nodes at theirs.

use std::net::SocketAddr;

use futures::FutureExt;
use futures::future::{BoxFuture, join, join_all, select_ok};
use knr_core::config::CheckPlan;
use tokio::time::Instant;

use crate::check::{About, Check, Context, Kind, Outcome, Trouble};
use crate::cluster::{self, Endpoint, unread, unread_trouble};
use crate::net;

/// The Service of the API server itself.
const KUBERNETES: &str = "default/kubernetes";
/// The maximum number of pods of a Service that are tried.
const MAX_PODS: usize = 4;

pub(crate) static ABOUT: About = About {
    name: "network",
    summary: "A TCP connection to the address of the `kubernetes` Service, as it is given to every pod. Unless \
              `worker.connectivityMatrix` is off, also a TCP connection directly to a ready pod of each Service in \
              `worker.services`: one of up to four pods on other nodes must answer, so that a broken pod or node \
              elsewhere does not make this node fail. Pods on this node are used only if there are no others. A pod that \
              refuses the connection counts as reached.",
    kinds: &[
        (
            Kind::ServiceUnreachable,
            "look at kube-proxy on this node: it makes the addresses of Services work",
        ),
        (Kind::PodsUnreachable, "look at the CNI plugin of this node: pods of other nodes cannot be reached"),
        (Kind::NoEndpoints, "no pod to try: look at the Service, or choose another in worker.services"),
        (Kind::Forbidden, "the worker needs list on endpointslices, in the namespaces of worker.services"),
        (Kind::NotFound, "there is no Service default/kubernetes: look at the API server"),
        (Kind::Unauthorized, "look at the service account of the worker"),
        (Kind::Busy, "the API server is overloaded, or not up yet"),
        (Kind::ServerError, "look at the log of the API server"),
        (Kind::NoAccess, "look at the service account of the worker, or at the kubeconfig"),
        (Kind::Api, "the pods to try could not be read: look at the check kubernetes"),
    ],
};

/// See [`ABOUT`].
pub(crate) struct Network {
    /// Services whose pods are tried.
    services: Vec<String>,
}

impl Network {
    pub(crate) fn new(plan: &CheckPlan) -> Self {
        Self { services: if plan.connectivity_matrix { plan.services.clone() } else { Vec::new() } }
    }
}

impl Check for Network {
    fn name(&self) -> &str {
        ABOUT.name
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        async move {
            match join(to_kubernetes(cx), self.to_pods(cx)).await {
                (Ok(service), Ok(pods)) => {
                    Outcome::Pass(std::iter::once(service).chain(pods).collect::<Vec<_>>().join("; "))
                }
                (Err(Outcome::Fail(service)), Err(Outcome::Fail(pods))) => service.and(pods).into(),
                // A failure says more than a skipped part.
                (Err(failed @ Outcome::Fail(_)), _) => failed,
                (_, Err(other)) | (Err(other), Ok(_)) => other,
            }
        }
        .boxed()
    }
}

/// Connects to the `kubernetes` Service.
async fn to_kubernetes(cx: &Context) -> Result<String, Outcome> {
    let (host, port) = match &cx.surroundings.kubernetes_service {
        Some(known) => known.clone(),
        None => ask_for_service(cx).await.map_err(unread)?,
    };
    let connected = net::dial(&host, port, cx.deadline).await;
    connected.map_err(|trouble| trouble.within(Kind::ServiceUnreachable, "Service kubernetes: "))?;
    Ok(format!("Service kubernetes at {host}:{port}"))
}

/// Outside of a pod the address of the Service has to be requested.
async fn ask_for_service(cx: &Context) -> Result<(String, u16), Outcome> {
    let api = cx.surroundings.api.connect(cx.deadline).await?;
    let spec = cluster::service(&api, KUBERNETES).await?.spec.unwrap_or_default();
    let port = spec.ports.into_iter().flatten().find_map(|port| u16::try_from(port.port).ok());
    spec.cluster_ip
        .zip(port)
        .ok_or_else(|| Trouble::new(Kind::Api, format!("{KUBERNETES} has no address or no port")).into())
}

impl Network {
    /// Connects to pods of every Service.
    async fn to_pods(&self, cx: &Context) -> Result<Vec<String>, Outcome> {
        if self.services.is_empty() {
            return Ok(Vec::new());
        }
        let api = cx.surroundings.api.connect(cx.deadline).await.map_err(unread)?;
        let each = self.services.iter().map(|service| async {
            let endpoints = cluster::endpoints(&api, service).await.map_err(unread_trouble)?;
            let chosen = choose(endpoints, cx.surroundings.node.as_deref());
            reach(service, &chosen, cx.deadline).await
        });
        let (notes, troubles): (Vec<_>, Vec<_>) = join_all(each).await.into_iter().partition(Result::is_ok);
        match Trouble::all(troubles.into_iter().filter_map(Result::err)) {
            Some(trouble) => Err(trouble.into()),
            None => Ok(notes.into_iter().flatten().collect()),
        }
    }
}

/// Chooses pods on other nodes, on as many nodes as possible, or pods on this node if there are no others.
fn choose(endpoints: Vec<Endpoint>, here: Option<&str>) -> Vec<Endpoint> {
    let usable = endpoints.into_iter().filter(|endpoint| !endpoint.ports.is_empty());
    let (mut near, far): (Vec<Endpoint>, Vec<Endpoint>) =
        usable.partition(|endpoint| here.is_some() && endpoint.node.as_deref() == here);
    if far.is_empty() {
        near.truncate(MAX_PODS);
        return near;
    }
    let mut chosen: Vec<Endpoint> = Vec::new();
    let mut spare = Vec::new();
    for endpoint in far {
        let is_new = chosen.iter().all(|other| other.node != endpoint.node || other.node.is_none());
        if is_new { chosen.push(endpoint) } else { spare.push(endpoint) }
    }
    chosen.extend(spare);
    chosen.truncate(MAX_PODS);
    chosen
}

/// Connects to any of the pods.
async fn reach(service: &str, pods: &[Endpoint], deadline: Instant) -> Result<String, Trouble> {
    let addresses: Vec<SocketAddr> = pods.iter().flat_map(Endpoint::addresses).collect();
    if addresses.is_empty() {
        let detail = format!("{service} has no ready pod with a TCP port");
        return Err(Trouble::new(Kind::NoEndpoints, detail));
    }
    let each = addresses.iter().map(|&address| {
        Box::pin(async move {
            match net::connect(address, deadline).await {
                Ok(_) => Ok(address),
                Err(trouble) if trouble.kind == Kind::Refused => Ok(address),
                Err(trouble) => Err(trouble),
            }
        })
    });
    match select_ok(each).await {
        Ok((address, _)) => Ok(format!("a pod of {service} at {address}")),
        Err(last) => {
            let more = match addresses.len() {
                1 => String::new(),
                all => format!(", nor to {} other addresses", all - 1),
            };
            Err(Trouble::new(Kind::PodsUnreachable, format!("pods of {service}: {}{more}", last.detail)))
        }
    }
}

#[cfg(test)]
mod tests;

//! Reads of a Service and of the pods behind it.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use knr_core::fault::Blame;
use kube::api::{Api as Objects, ListParams};

use crate::api::{self, Api};
use crate::check::{Kind, Outcome, Trouble};

/// The label of an `EndpointSlice` with the name of its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// A few slices of a Service contain more pods than are ever tried.
const MAX_SLICES: u32 = 4;

/// A pod behind a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) ip: IpAddr,
    pub(crate) node: Option<String>,
    /// Its TCP ports.
    pub(crate) ports: Vec<u16>,
}

impl Endpoint {
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.ports.iter().map(|port| SocketAddr::new(self.ip, *port))
    }
}

/// Reads a Service by its `namespace/name`.
pub(crate) async fn service(api: &Api, name: &str) -> Result<Service, Trouble> {
    let (namespace, service) = name.split_once('/').unwrap_or(("default", name));
    let objects: Objects<Service> = Objects::namespaced(api.client(), namespace);
    api.ask(&format!("GET Service {name}"), objects.get(service)).await
}

/// Returns the ready pods of a Service.
pub(crate) async fn endpoints(api: &Api, name: &str) -> Result<Vec<Endpoint>, Trouble> {
    let (namespace, service) = name.split_once('/').unwrap_or(("default", name));
    let objects: Objects<EndpointSlice> = Objects::namespaced(api.client(), namespace);
    let wanted = ListParams::default().labels(&format!("{SERVICE_LABEL}={service}")).limit(MAX_SLICES);
    let slices = api.ask(&format!("LIST EndpointSlices of {name}"), objects.list(&wanted)).await;
    Ok(slices.map_err(api::always_served)?.items.iter().flat_map(ready).collect())
}

fn ready(slice: &EndpointSlice) -> impl Iterator<Item = Endpoint> {
    let ports: Vec<u16> = slice
        .ports
        .iter()
        .flatten()
        .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
        .filter_map(|port| port.port.and_then(|port| u16::try_from(port).ok()))
        .collect();
    slice.endpoints.iter().filter_map(move |endpoint| {
        let is_ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false);
        // Kubernetes itself uses only the first address.
        let ip = endpoint.addresses.first()?.parse().ok()?;
        is_ready.then(|| Endpoint { ip, node: endpoint.node_name.clone(), ports: ports.clone() })
    })
}

/// Returns the outcome of a check that cannot read what it needs. Another check tests whether the node reaches the API
/// server. A failure that cannot be the fault of the node is reported as it is.
pub(crate) fn unread(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Fail(trouble) => Outcome::Fail(unread_trouble(trouble)),
        other => other,
    }
}

pub(crate) fn unread_trouble(trouble: Trouble) -> Trouble {
    match trouble.kind.blame() {
        Blame::Node | Blame::Unclear => trouble.within(Kind::Api, "the API server: "),
        Blame::Cluster | Blame::Installation => trouble,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ready_counts() {
        let slice: EndpointSlice = serde_json::from_value(serde_json::json!({
            "metadata": {}, "addressType": "IPv4",
            "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}, {"port": 9153}, {}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "nodeName": "a", "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3"]},
                {"addresses": []},
            ],
        }))
        .unwrap();
        let found: Vec<Endpoint> = ready(&slice).collect();
        let ports = vec![53, 9153];
        assert_eq!(
            found,
            [
                Endpoint { ip: [10, 0, 0, 1].into(), node: Some("a".to_owned()), ports: ports.clone() },
                Endpoint { ip: [10, 0, 0, 3].into(), node: None, ports },
            ]
        );
        assert_eq!(found[0].addresses().last(), Some("10.0.0.1:9153".parse().unwrap()));
    }
}

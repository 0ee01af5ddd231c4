//! Addresses of a lab. A lab occupies one slot, and the slot number decides every address, so that labs can
//! run side by side without talking to each other or agreeing on anything.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use ipnet::Ipv4Net;

/// How many labs can run on one machine.
pub(crate) const SLOTS: u8 = 16;
/// How many nodes a lab can have: each takes an address and a /24 for its pods.
pub(crate) const MAX_NODES: u8 = 200;

/// Ports of the control plane; every lab has an address of its own, so the ports are the same for all.
/// They are not the usual ones, because something on the machine may hold those on all addresses.
pub(crate) mod port {
    pub(crate) const API: u16 = 26443;
    pub(crate) const ETCD: u16 = 22379;
    pub(crate) const ETCD_PEER: u16 = 22380;
    pub(crate) const CONTROLLER_MANAGER: u16 = 20257;
    pub(crate) const SCHEDULER: u16 = 20259;
    /// Held only while a lab is being made.
    pub(crate) const CLAIM: u16 = 20240;
    pub(crate) const KWOK: u16 = 20247;
    pub(crate) const ALL: [u16; 6] = [API, ETCD, ETCD_PEER, CONTROLLER_MANAGER, SCHEDULER, KWOK];
}

/// Every address of one lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    slot: u8,
    networked: bool,
}

impl Addresses {
    /// `networked` labs have nodes and live on 10.77.SLOT.0/24; the others on the loopback 127.77.SLOT.1.
    pub(crate) fn new(slot: u8, networked: bool) -> Self {
        Self { slot, networked }
    }

    /// What only the machine itself may reach listens here: etcd speaks to anyone.
    pub(crate) fn loopback(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 77, self.slot, 1)
    }

    /// The API server listens here, where nodes can reach it.
    pub(crate) fn api_server(self) -> Ipv4Addr {
        if self.networked { Ipv4Addr::new(10, 77, self.slot, 1) } else { self.loopback() }
    }

    /// Routes between the nodes' pods.
    pub(crate) fn router(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.slot, 2)
    }

    /// Address of the node with this number, counted from 1.
    pub(crate) fn node(self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.slot, 10 + index)
    }

    pub(crate) fn nodes(self) -> Ipv4Net {
        net(Ipv4Addr::new(10, 77, self.slot, 0), 24)
    }

    pub(crate) fn pods(self) -> Ipv4Net {
        net(Ipv4Addr::new(10, 240 + self.slot, 0, 0), 16)
    }

    /// The pods of the node with this number.
    pub(crate) fn pods_of(self, index: u8) -> Ipv4Net {
        net(Ipv4Addr::new(10, 240 + self.slot, index, 0), 24)
    }

    pub(crate) fn services(self) -> Ipv4Net {
        net(Ipv4Addr::new(10, 96 + self.slot, 0, 0), 16)
    }

    /// ClusterIP of the API server: the first address of the range, by Kubernetes' own rule.
    pub(crate) fn api_service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96 + self.slot, 0, 1)
    }

    /// ClusterIP of the cluster's DNS.
    pub(crate) fn dns_service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96 + self.slot, 0, 10)
    }

    pub(crate) fn api_url(self) -> String {
        format!("https://{}:{}", self.api_server(), port::API)
    }

    /// Whether a route of the machine leads to an address that this lab would use.
    pub(crate) fn overlap(self, route: Ipv4Net) -> bool {
        route.prefix_len() > 0
            && [self.nodes(), self.pods(), self.services()]
                .iter()
                .any(|own| own.contains(&route) || route.contains(own))
    }
}

fn net(address: Ipv4Addr, prefix: u8) -> Ipv4Net {
    // Both prefixes used above are valid, so the fallback is never taken.
    Ipv4Net::new(address, prefix).unwrap_or_default()
}

/// The destinations in the output of `ip -json route`, a single address counting as a /32.
pub(crate) fn routes(json: &str) -> Result<Vec<Ipv4Net>> {
    #[derive(serde::Deserialize)]
    struct Route {
        dst: String,
    }
    let routes: Vec<Route> = serde_json::from_str(json).context("cannot read the machine's routes")?;
    Ok(routes
        .iter()
        .filter_map(|route| {
            route.dst.parse().ok().or_else(|| route.dst.parse::<Ipv4Addr>().ok().map(Ipv4Net::from))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slots_share_nothing() {
        for other in 1..SLOTS {
            let (a, b) = (Addresses::new(0, true), Addresses::new(other, true));
            for range in [b.nodes(), b.pods(), b.services()] {
                assert!(!a.overlap(range), "slot {other}: {range}");
            }
        }
    }

    #[test]
    fn the_last_node_of_the_last_slot_has_valid_addresses() {
        let last = Addresses::new(SLOTS - 1, true);
        assert!(last.nodes().contains(&last.node(MAX_NODES)));
        assert!(last.pods().contains(&last.pods_of(MAX_NODES)));
        assert!(last.services().contains(&last.dns_service()));
    }

    #[test]
    fn a_route_of_the_machine_takes_a_slot_but_the_default_route_does_not() {
        let found = routes(r#"[{"dst":"default","dev":"eth0"},{"dst":"10.96.3.4"},{"dst":"10.240.0.0/12"}]"#)
            .unwrap();
        assert_eq!(found.len(), 2);
        assert!(Addresses::new(0, true).overlap(found[0]));
        assert!(!Addresses::new(1, true).overlap(found[0]));
        assert!(Addresses::new(15, true).overlap(found[1]));
    }
}

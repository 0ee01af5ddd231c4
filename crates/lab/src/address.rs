//! Addresses of a lab. A lab occupies one slot, and the slot number decides every address, so that labs can
//! run side by side without talking to each other or agreeing on anything.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// How many labs can run on one machine.
pub(crate) const SLOTS: u8 = 16;
/// How many nodes a lab can have: each takes an address and a /24 for its pods.
pub const MAX_NODES: u8 = 200;

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

/// How far a lab reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reach {
    /// A control plane on a loopback address, which any user can have.
    Loopback,
    /// A network of its own that nodes can join.
    Nodes,
}

/// Every address of one lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    slot: u8,
    reach: Reach,
}

impl Addresses {
    pub(crate) fn new(slot: u8, reach: Reach) -> Self {
        Self { slot, reach }
    }

    /// What only the machine itself has to reach listens here.
    pub(crate) fn loopback(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 77, self.slot, 1)
    }

    /// The API server listens here, where nodes can reach it.
    pub(crate) fn api_server(self) -> Ipv4Addr {
        match self.reach {
            Reach::Loopback => self.loopback(),
            Reach::Nodes => Ipv4Addr::new(10, 77, self.slot, 1),
        }
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

    /// Whether a route of the machine leads to a part of what this lab would use. A wider one does no harm: the
    /// lab's own routes are more specific and win.
    pub(crate) fn is_entered_by(self, route: Ipv4Net) -> bool {
        [self.nodes(), self.pods(), self.services()].iter().any(|own| own.contains(&route))
    }
}

fn net(address: Ipv4Addr, prefix: u8) -> Ipv4Net {
    // Both prefixes used above are valid, so the fallback is never taken.
    Ipv4Net::new(address, prefix).unwrap_or_default()
}

/// The destinations in the output of `ip -json route`, a single address counting as a /32.
pub(crate) fn routes(json: &str) -> Result<Vec<Ipv4Net>> {
    #[derive(Deserialize)]
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

    fn slot(number: u8) -> Addresses {
        Addresses::new(number, Reach::Nodes)
    }

    #[test]
    fn two_slots_share_nothing() {
        for other in 1..SLOTS {
            let b = slot(other);
            for range in [b.nodes(), b.pods(), b.services()] {
                assert!(!slot(0).is_entered_by(range), "slot {other}: {range}");
            }
        }
    }

    #[test]
    fn the_last_node_of_the_last_slot_has_valid_addresses() {
        let last = slot(SLOTS - 1);
        assert!(last.nodes().contains(&last.node(MAX_NODES)));
        assert!(last.pods().contains(&last.pods_of(MAX_NODES)));
        assert!(last.services().contains(&last.dns_service()));
    }

    #[test]
    fn a_route_into_a_slot_takes_it_but_a_wider_one_does_not() {
        let json = r#"[{"dst":"default","dev":"eth0"},{"dst":"10.96.3.4"},{"dst":"10.0.0.0/8"},{"dst":"10.241.0.0/16"}]"#;
        let found = routes(json).unwrap();
        assert_eq!(found.len(), 3);
        let taken = |number| found.iter().any(|route| slot(number).is_entered_by(*route));
        assert_eq!([taken(0), taken(1), taken(2)], [true, true, false]);
    }
}

//! Breaking one thing on one node.
//!
//! The rules sit in the forward hook of the node's own network namespace: they hit its pods and not its kubelet,
//! so the node stays Ready, which is the very situation a node gate is for. Every fault is silent: pods see
//! time-outs, not refusals.

use anyhow::Result;

use crate::address::port;
use crate::node::Node;
use crate::tools::Tool;
use crate::{machine, process};

const TABLE: &str = "lab-faults";

/// What can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// No DNS answer reaches a pod, from any server, over UDP or TCP.
    Dns,
    /// The API server is out of reach, by its ClusterIP and directly.
    Api,
    /// No ClusterIP works: the node has no kube-proxy.
    Services,
    /// Pods of other nodes are out of reach, DNS servers excepted.
    Pods,
    /// Packets over 1,400 bytes vanish between this node and all others.
    Mtu,
}

impl Node {
    /// Breaks something. Faults add up until [`Node::heal`].
    pub fn inject(&self, fault: Fault) -> Result<()> {
        let _lock = self.lab().lock()?;
        if fault == Fault::Services {
            return remove_kube_proxy(self);
        }
        let chain = clap::ValueEnum::to_possible_value(&fault).map(|value| value.get_name().to_owned());
        let rules = self.rules(fault).join("\n");
        let table = format!(
            "table ip {TABLE} {{\n chain {} {{\n type filter hook forward priority -200; policy accept;\n{rules}\n }}\n}}\n",
            chain.unwrap_or_default()
        );
        process::run_with_text(self.command()?.args(["nft", "-f", "-"]), &table)?;
        Ok(())
    }

    /// Fixes everything that was broken.
    pub fn heal(&self) -> Result<()> {
        let _lock = self.lab().lock()?;
        // Adding first makes the deletion succeed whether or not there was a table.
        let empty = format!("add table ip {TABLE}\ndelete table ip {TABLE}\n");
        process::run_with_text(self.command()?.args(["nft", "-f", "-"]), &empty)?;
        if !machine::runs(self, Tool::KubeProxy)? {
            machine::start_kube_proxy(self)?;
        }
        machine::wait_for_api_service(self)
    }

    fn rules(&self, fault: Fault) -> Vec<String> {
        let addresses = self.lab().addresses();
        let own = format!("ip saddr {}", self.pod_range());
        match fault {
            Fault::Dns => vec![format!("{own} meta l4proto {{ tcp, udp }} th dport 53 drop")],
            Fault::Api => {
                let (direct, service, port) = (addresses.api_server(), addresses.api_service(), port::API);
                vec![format!("{own} ip daddr {{ {direct}, {service} }} tcp dport {{ {port}, 443 }} drop")]
            }
            // Two rules: nftables 1.0.6 merges both ports into one comparison that means something else.
            Fault::Pods => vec![
                "meta l4proto { tcp, udp } th dport 53 accept".to_owned(),
                "meta l4proto { tcp, udp } th sport 53 accept".to_owned(),
                format!("oifname \"eth0\" {own} ip daddr {} drop", addresses.pods()),
            ],
            Fault::Mtu => {
                ["oifname", "iifname"].map(|side| format!("{side} \"eth0\" meta length > 1400 drop")).to_vec()
            }
            Fault::Services => Vec::new(),
        }
    }
}

/// Killed alone, kube-proxy would leave its rules behind and every known Service would go on working.
fn remove_kube_proxy(node: &Node) -> Result<()> {
    let role = machine::role(node, Tool::KubeProxy);
    process::kill(node.lab().owner(), |found| found == role)?;
    let tables = "add table ip kube-proxy\ndelete table ip kube-proxy\n\
                  add table ip6 kube-proxy\ndelete table ip6 kube-proxy\n";
    process::run_with_text(node.command()?.args(["nft", "-f", "-"]), tables)?;
    Ok(())
}

//! The lab's network. All of it lives in a network namespace of its own, the router, which ends with its last
//! process; the machine itself gets one virtual link and the routes on it, and forwards nothing.
//!
//! ```text
//!   machine                    router namespace                      node n1
//!   knrlab0 10.77.S.1 -------- host ]                                eth0 10.77.S.11
//!   API server                       ] br0 10.77.S.2  n1 ----------- pods 10.(240+S).1.0/24
//!                                    ]                n2 ----------- ...
//! ```
//!
//! The router has no way out: what no node answers is dropped in silence, as in a broken network, and never
//! leaves the machine by its default route.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::address::{Addresses, Reach, port, routes};
use crate::host;
use crate::process::{self, Daemon};

const ROUTER: &str = "router";
/// Name of the program that holds namespaces.
pub(crate) const HOLDER: &str = "probe";
const START_LIMIT: Duration = Duration::from_secs(20);

/// Takes a slot, or says what on the machine is in the way. The claim is good among all users of the machine
/// until it is dropped; by then etcd has taken its port, which says the same.
pub(crate) fn claim(slot: u8, reach: Reach) -> Result<std::result::Result<TcpListener, String>> {
    let addresses = Addresses::new(slot, reach);
    let bind = |port| TcpListener::bind((addresses.loopback(), port));
    let claim = match bind(port::CLAIM) {
        Ok(claim) => claim,
        Err(err) => return Ok(Err(format!("{}:{}: {err}", addresses.loopback(), port::CLAIM))),
    };
    for port in port::ALL {
        if let Err(err) = bind(port) {
            return Ok(Err(format!("{}:{port}: {err}", addresses.loopback())));
        }
    }
    if reach == Reach::Loopback {
        return Ok(Ok(claim));
    }
    if Path::new("/sys/class/net").join(link(slot)).exists() {
        return Ok(Err(format!("there is a link {}", link(slot))));
    }
    let known = routes(&process::run(host::command("ip").args(["-json", "route"]))?)?;
    match known.into_iter().find(|route| addresses.is_entered_by(*route)) {
        Some(route) => Ok(Err(format!("the machine has a route to {route}"))),
        None => Ok(Ok(claim)),
    }
}

/// Makes the router and connects the machine to it.
pub(crate) fn create(owner: &str, slot: u8, log: &Path, probe: &Path) -> Result<()> {
    let mut command = host::command("unshare");
    command.arg("--net").arg("--").arg(probe).arg("pause");
    let router = process::spawn(owner, ROUTER, log, command)?;
    let pid = holder(owner, ROUTER, &router)?;
    let (addresses, link) = (Addresses::new(slot, Reach::Nodes), link(slot));
    let (machine, gateway) = (addresses.api_server(), addresses.router());
    batch(
        host::command("ip"),
        &[
            format!("link add {link} type veth peer name host netns {pid}"),
            format!("link set {link} alias {}", alias(owner)),
            format!("addr add {machine}/24 dev {link}"),
            format!("link set {link} up"),
            format!("route add {} via {gateway} dev {link}", addresses.pods()),
            format!("route add {} via {gateway} dev {link}", addresses.services()),
        ],
    )?;
    batch(
        inside(pid, "ip"),
        &[
            "link set lo up".to_owned(),
            format!("link add br0 address {} type bridge", hardware_address(gateway)),
            format!("addr add {gateway}/24 dev br0"),
            "link set br0 up".to_owned(),
            "link set host master br0".to_owned(),
            "link set host up".to_owned(),
            "route add blackhole default".to_owned(),
        ],
    )?;
    process::run(inside(pid, "sh").args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]))?;
    Ok(())
}

/// Removes the machine's side; the router goes with its process. A link of somebody else's stays.
pub(crate) fn remove(owner: &str, slot: u8) -> Result<()> {
    #[derive(Deserialize)]
    struct Link {
        ifalias: Option<String>,
    }
    let link = link(slot);
    // It also goes with the router, whose end may be noticed at any moment: an error means to look again.
    process::wait_for(&format!("removal of link {link}"), START_LIMIT, &[], || {
        if !Path::new("/sys/class/net").join(&link).exists() {
            return Ok(Some(()));
        }
        let shown = process::run(host::command("ip").args(["-json", "link", "show", &link]))?;
        let links: Vec<Link> = serde_json::from_str(&shown).context("cannot read the machine's links")?;
        if links.iter().any(|link| link.ifalias.as_deref() == Some(&alias(owner))) {
            process::run(host::command("ip").args(["link", "del", &link]))?;
        }
        Ok(Some(()))
    })
}

/// Plugs a node in.
pub(crate) fn connect(owner: &str, addresses: Addresses, index: u8, node: i32) -> Result<()> {
    let (address, gateway) = (addresses.node(index), addresses.router());
    let commands = [
        format!(
            "link add n{index} type veth peer name eth0 address {} netns {node}",
            hardware_address(address)
        ),
        format!("link set n{index} master br0"),
        format!("link set n{index} up"),
        format!("route replace {} via {address} dev br0", addresses.pods_of(index)),
    ];
    batch(inside(router(owner)?, "ip"), &commands)?;
    batch(
        inside(node, "ip"),
        &[
            "link set lo up".to_owned(),
            format!("addr add {address}/24 dev eth0"),
            "link set eth0 up".to_owned(),
            format!("route add {} via {gateway}", addresses.pods()),
            format!("route add {} via {gateway}", addresses.services()),
        ],
    )
}

/// Pulls a node's plug. Its namespace may still be dying, and with it the link: then there is nothing to do.
pub(crate) fn disconnect(owner: &str, addresses: Addresses, index: u8) -> Result<()> {
    let router = router(owner)?;
    let link = format!("n{index}");
    process::wait_for(&format!("removal of link {link}"), START_LIMIT, &[], || {
        if process::run(inside(router, "ip").args(["link", "show", &link])).is_err() {
            return Ok(Some(()));
        }
        process::run(inside(router, "ip").args(["link", "del", &link]))?;
        Ok(Some(()))
    })?;
    let range = addresses.pods_of(index).to_string();
    // The route went with the node's address if the bridge noticed first.
    let _ = process::run(inside(router, "ip").args(["route", "del", &range]));
    Ok(())
}

/// Waits for the process that holds the namespaces of `role`: all of them exist once it runs its last program.
pub(crate) fn holder(owner: &str, role: &str, daemon: &Daemon) -> Result<i32> {
    let what = format!("the namespaces of {role}");
    process::wait_for(&what, START_LIMIT, &[daemon], || process::find_program(owner, role, HOLDER))
}

/// Whether the router is running. Without it no node is reachable, and it cannot be made again below them.
pub(crate) fn stands(owner: &str) -> Result<bool> {
    Ok(process::find_program(owner, ROUTER, HOLDER)?.is_some())
}

fn router(owner: &str) -> Result<i32> {
    process::find_program(owner, ROUTER, HOLDER)?
        .context("the lab's router is not running: `lab down`, then `lab up`")
}

/// A hardware address that stays. A bridge without one of its own takes the lowest of its ports and changes it as nodes
/// come and go, and a node would change its own at every reboot: neighbours would send into the void until they notice.
fn hardware_address(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

fn inside(pid: i32, program: &str) -> Command {
    let mut command = host::command("nsenter");
    command.args(["--target", &pid.to_string(), "--net", "--", program]);
    command
}

fn batch(mut ip: Command, commands: &[String]) -> Result<()> {
    process::run_with_text(ip.args(["-batch", "-"]), &(commands.join("\n") + "\n"))?;
    Ok(())
}

fn link(slot: u8) -> String {
    format!("knrlab{slot}")
}

fn alias(owner: &str) -> String {
    format!("kube-node-ready-lab:{owner}")
}

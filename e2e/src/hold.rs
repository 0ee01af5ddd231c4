//! Workers that run for as long as a test wants.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use serde_json::json;

use crate::cluster::Cluster;
use crate::config::Config;
use crate::node::Node;

/// Longer than any test holds a worker.
const LIMIT_SECONDS: u32 = 100;
const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A page on this machine that every worker fetches as one of its checks. It is served only once the test releases the
/// worker's node: until then the worker runs.
#[derive(Debug)]
pub struct Hold {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Pod networks of the nodes that are not held.
    free: Mutex<BTreeSet<Ipv4Addr>>,
    changed: Condvar,
}

impl Hold {
    /// Holds the workers of all nodes.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        // Pods reach this machine by the address of the API server.
        let listener = TcpListener::bind((cluster.api().address().ip(), 0))?;
        let (address, shared) = (listener.local_addr()?, Arc::new(Shared::default()));
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                thread::spawn(move || own.answer(stream));
            }
        });
        Ok(Self { address, shared })
    }

    /// A configuration with which workers can be held, and in which nothing else ends them early.
    #[must_use]
    pub fn config(&self) -> Config {
        let url = format!("http://{}/", self.address);
        Config::new()
            .set("worker.checks", json!([{ "name": "hold", "http": { "url": url } }]))
            .set("worker.checkTimeoutSeconds", LIMIT_SECONDS)
            .set("worker.timeoutSeconds", LIMIT_SECONDS)
            .set("worker.pendingTimeoutSeconds", LIMIT_SECONDS)
    }

    /// Releases the workers of a node.
    pub fn release(&self, node: &Node) -> Result<()> {
        self.shared.free().insert(pods_of(node)?);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Holds the workers of a node again.
    pub fn hold(&self, node: &Node) -> Result<()> {
        self.shared.free().remove(&pods_of(node)?);
        Ok(())
    }
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, BTreeSet<Ipv4Addr>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, mut stream: TcpStream) {
        let Ok(peer) = stream.peer_addr() else { return };
        let network = network_of(peer.ip());
        let mut free = self.free();
        while !network.is_some_and(|network| free.contains(&network)) {
            free = self.changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        drop(free);
        // The client may be gone by now.
        let _ = stream.read(&mut [0; 1024]).and_then(|_| stream.write_all(PAGE));
    }
}

/// The pod network of the node that this pod is on: 256 addresses, as the lab assigns them.
fn network_of(pod: IpAddr) -> Option<Ipv4Addr> {
    match pod {
        IpAddr::V4(pod) => Some(Ipv4Addr::from_bits(pod.to_bits() & !0xff)),
        IpAddr::V6(_) => None,
    }
}

fn pods_of(node: &Node) -> Result<Ipv4Addr> {
    let range = node.machine()?.pod_range();
    let (network, _) = range.split_once('/').with_context(|| range.clone())?;
    Ok(network.parse()?)
}

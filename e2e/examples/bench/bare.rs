//! The baseline: one watch, one JSON patch for each node, 50 in flight, and no other logic.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use futures::StreamExt;
use knr_core::names;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::api::{Api, JSON_PATCH};
use crate::fleet::WORKERS;
use crate::mirror::{Seen, SeenPod};

/// Printed once it watches.
pub(crate) const READY: &str = "watching";
const AT_ONCE: usize = 50;
const EVERYTHING: &str = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=";

/// Opens the node of every worker that has ended, until it is killed.
pub(crate) async fn run(kubeconfig: &Path) -> Result<()> {
    let api = Api::open(kubeconfig, "bare").await?;
    let (mut opened, places) = (BTreeSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    // The API server ends the watch of a client that does not keep up.
    loop {
        let mut events = api.watch::<SeenPod>(&format!("{WORKERS}{EVERYTHING}")).await?;
        println!("{READY}");
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    if pod.has_ended() && opened.insert(pod.key().to_owned()) {
                        tokio::spawn(open(api.clone(), pod.key().to_owned(), Arc::clone(&places)));
                    }
                }
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => bail!("{}", status.message),
            }
        }
    }
}

async fn open(api: Api, node: String, places: Arc<Semaphore>) {
    let Ok(_place) = places.acquire_owned().await else { return };
    if let Err(error) = api.patch(&format!("/api/v1/nodes/{node}"), JSON_PATCH, &patch()).await {
        eprintln!("{node}: {error:#}");
    }
}

fn patch() -> Value {
    let label = names::VERIFIED_LABEL.replace('/', "~1");
    json!([
        { "op": "test", "path": "/spec/taints/0/key", "value": names::UNVERIFIED_TAINT },
        { "op": "remove", "path": "/spec/taints/0" },
        { "op": "add", "path": format!("/metadata/labels/{label}"), "value": names::VERIFIED_VALUE },
    ])
}

//! The product on real clusters.
//!
//! ```no_run
//! use knr_e2e::{Cluster, Config, Controller};
//!
//! # fn main() -> anyhow::Result<()> {
//! let cluster = Cluster::start("example", 1)?;
//! let controller = Controller::start(&cluster, &Config::new(), "a")?;
//! let node = cluster.join("n2")?;
//! node.wait_until_open()?;
//! controller.terminate()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`cluster`](Cluster) | a cluster with the product's image, namespace and permissions; waits, and diagnostics |
//! | [`config`](Config) | the product's configuration, with defaults for tests |
//! | [`controller`](Controller) | one replica as a process that can be killed, frozen and cut off |
//! | [`deployment`](Deployment) | the same in pods |
//! | [`release`](Release) | the product as the Helm chart installs it |
//! | [`permissions`](Cluster::permissions_are_those_listed) | the permissions of a service account, asked one by one |
//! | [`node`](Node), [`fakes`](Cluster::fakes) | the state of a node in the cluster, real or simulated |
//! | [`gate_log`](GateLog) | the state of a node's gate over time |
//! | [`hold`](Hold) | workers that run for as long as a test wants |
//! | [`claims`](Cluster::claim) | Karpenter's claims, without Karpenter |
//! | [`dns`](Cluster::stop_dns) | the cluster's DNS, off and on |
//! | [`images`](Cluster::load_foreign_image), [`refusal`](Refusal) | workers that cannot run, not by a node's fault |
//! | [`etcd`](Cluster::compact) | changes that bypass the API server |
//! | [`writes`](Write) | the product's writes, from the audit log |
//! | [`forwarder`](Forwarder), [`api`](Api), [`http`](Answer), [`metrics`](Metrics), [`product`] | helpers |

mod api;
mod claims;
mod cluster;
mod config;
mod controller;
mod deployment;
mod dns;
mod etcd;
mod fakes;
mod forwarder;
mod gate_log;
mod hold;
mod http;
mod images;
mod metrics;
mod node;
mod permissions;
pub mod product;
mod refusal;
mod release;
mod story;
mod writes;

use std::path::{Path, PathBuf};

pub use api::Api;
pub use claims::Claim;
pub use cluster::{Cluster, NAMESPACE};
pub use config::Config;
pub use controller::{ACCOUNT, Controller};
pub use deployment::Deployment;
pub use fakes::LONG_GRACE;
pub use forwarder::{Forwarder, Outage};
pub use gate_log::GateLog;
pub use hold::Hold;
pub use http::{Answer, get};
pub use metrics::Metrics;
pub use node::{Condition, GATE, Node, NodeEvent, RETRY};
pub use refusal::Refusal;
pub use release::{RELEASE, Release, chart, pods_of, values};
pub use story::PATIENCE;
pub use writes::Write;

/// The path of a file in this checkout.
#[must_use]
pub fn in_checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The examples of the README must compile too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! A real Kubernetes cluster on one Linux machine, without Docker.
//!
//! ```no_run
//! use lab::{Fault, Home, Lab};
//!
//! # fn main() -> anyhow::Result<()> {
//! let lab = Lab::builder(&Home::from_env()?, "example").nodes(2).up()?;
//! let node = lab.add_node("n3").taint("node-ready/unverified=true:NoSchedule".parse()?).start()?;
//! node.inject(Fault::Dns)?;
//! println!("{}", lab.kubectl(["get", "nodes"])?);
//! node.heal()?;
//! lab.down()
//! # }
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | [`lab`](Lab) | a cluster from `up` to `down`: the entrance |
//! | [`node`](Node), [`fault`](Fault) | a node from `add` to `remove`, and how to break it |
//! | `machine`, `cgroup`, `network` | namespaces, control groups and links below a node |
//! | `control_plane` | etcd, API server, controller manager, scheduler |
//! | `tools`, `image`, `host` | where programs and images come from |
//! | `process` | how processes are started, found again and ended |
//! | `address`, `names`, `pki`, [`audit`](AuditEvent), `home`, `progress` | smaller things |

mod address;
mod audit;
mod cgroup;
mod control_plane;
mod fault;
mod home;
mod host;
mod image;
mod lab;
mod machine;
mod names;
mod network;
mod node;
mod pki;
mod process;
mod progress;
mod tools;

pub use address::MAX_NODES;
pub use audit::AuditEvent;
pub use control_plane::Component;
pub use fault::Fault;
pub use home::Home;
pub use image::{Image, PROBE as PROBE_IMAGE};
pub use lab::{ComponentStatus, Lab, LabBuilder, Program, TemporaryLab, prepare};
pub use names::{Label, Taint};
pub use node::{Node, NodeBuilder};
pub use pki::Pair;
pub use tools::{Tool, ensure as build};

/// The examples of the README must compile too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

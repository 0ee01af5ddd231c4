//! The rules of kube-node-ready: what is known of a cluster in, what to do about it out.
//!
//! Nothing in here has a clock, a network or a Kubernetes client. Time is an argument, facts come in as plain
//! [`view`]s, and every effect is an [`action::Action`] that somebody else carries out. So the same code runs in
//! the product and, a million times over, in the simulation.
//!
//! | to find | look in |
//! |---|---|
//! | the life of a node | [`decide`] |
//! | what is required of a node | [`policy`] |
//! | limits over all nodes | [`grants`] |
//! | orders under way, timers | [`engine`] |
//! | what is watched | [`feed`] |
//! | what we keep on a node | [`state`] |
//! | what a worker says and what that means | [`report`], [`verdict`] |
//! | whose fault a failure is | [`fault`] |
//! | how a node is changed without hurting anybody | [`patch`] |
//! | why a node is open or closed | [`explain`] |
//! | the configuration file | [`config`] |
//! | every label, taint and annotation | [`names`] |

pub mod action;
pub mod config;
pub mod decide;
pub mod engine;
pub mod explain;
pub mod fault;
pub mod feed;
pub mod grants;
pub mod ids;
pub mod names;
pub mod patch;
pub mod policy;
pub mod report;
mod schedule;
pub mod state;
pub mod texts;
pub mod verdict;
pub mod view;
pub mod world;

/// The version of the program and its image. A build can be given another one than the source has.
pub const VERSION: &str = match option_env!("KUBE_NODE_READY_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

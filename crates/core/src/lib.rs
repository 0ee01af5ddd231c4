//! The rules of kube-node-ready: facts about a cluster go in, decisions come out.
//!
//! This crate has no clock, no network and no Kubernetes client. Time is an argument, facts come in as plain [`view`]s,
//! and every effect is an [`action::Action`] that the caller carries out. So the same code runs in the product and,
//! millions of times, in the simulation.
//!
//! | to find | look in |
//! |---|---|
//! | the life of a node | [`decide`] |
//! | the requirements for a node | [`policy`] |
//! | limits across all nodes | [`grants`] |
//! | orders in flight, timers | [`engine`] |
//! | which write is sent next | [`queue`] |
//! | feeds: what is watched | [`feed`] |
//! | the state that is kept on a node | [`state`] |
//! | the report of a worker and the verdict | [`report`], [`verdict`] |
//! | whose fault a failure is | [`fault`] |
//! | changes to a node that are safe alongside other writers | [`patch`] |
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
pub mod queue;
pub mod report;
mod schedule;
mod setback;
pub mod state;
pub mod texts;
pub mod verdict;
pub mod view;
pub mod world;

/// The version of the program and its image. A build can override the version in the source.
pub const VERSION: &str = match option_env!("KUBE_NODE_READY_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

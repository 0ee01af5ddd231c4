//! The checks that run on a node, and their report.
//!
//! | to find | look in |
//! |---|---|
//! | a check, and what it says when it fails | `checks/` |
//! | what a check is, and every kind of failure | `check.rs` |
//! | how they are run: together, each with its time, again if they fail | `run.rs` |
//! | how a report is made to fit | `fit.rs` |
//! | the way to the API server | `api.rs` |
//! | connections, DNS questions, web requests | `net.rs`, `lookup.rs`, `web.rs` |

mod api;
mod check;
mod checks;
mod cluster;
mod fit;
mod lookup;
mod net;
mod run;
#[cfg(test)]
mod testing;
mod web;

pub use self::api::ApiAccess;
pub use self::check::{About, COMMON, Kind};
pub use self::checks::ABOUT;
pub use self::fit::fit;
pub use self::run::{names, run};

//! The checks that run on a node, and their report.
//!
//! | to find | look in |
//! |---|---|
//! | a check, and its failures | `checks/` |
//! | what a check is, and every kind of failure | `check.rs` |
//! | how checks run: concurrently, with timeouts and retries | `run.rs` |
//! | how a report is made to fit | `fit.rs` |
//! | the connection to the API server | `api.rs` |
//! | connections, DNS questions, HTTP requests | `net.rs`, `lookup.rs`, `web.rs` |

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

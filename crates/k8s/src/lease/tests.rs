//! Elections among two and three replicas with an in-process API server, on a clock that the tests control.

mod api;
mod chaos;
mod errors;
mod handover;
mod link;
mod record;
mod renewal;
mod rig;
mod rng;
mod watching;

use std::time::Duration;

use knr_core::config::LeaderElection;
use tokio::time::sleep;

use crate::calls::Verb;
use api::FakeApi;
use link::Link;
use rig::{Replica, leads_within};

const SECOND: Duration = Duration::from_secs(1);

/// 15, 10 and 2 seconds.
fn usual() -> LeaderElection {
    LeaderElection::default()
}

/// Returns a leader and a standby that knows of it.
async fn leader_and_standby() -> (FakeApi, Replica, Replica) {
    let api = FakeApi::default();
    let leader = Replica::start(&api, Link::new("one", 1), &usual());
    leads_within(&leader, SECOND).await;
    let standby = Replica::start(&api, Link::new("two", 2), &usual());
    sleep(SECOND).await;
    (api, leader, standby)
}

/// Returns the number of requests that a replica sends within a span of time.
async fn count(api: &FakeApi, replica: &Replica, span: Duration) -> [usize; 4] {
    let before = api.came().len();
    sleep(span).await;
    let came = api.came();
    [Verb::Get, Verb::Create, Verb::Update, Verb::Watch].map(|verb| {
        came[before..].iter().filter(|came| came.from == replica.identity && came.verb == verb).count()
    })
}

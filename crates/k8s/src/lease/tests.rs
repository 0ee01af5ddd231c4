//! Elections among two and three replicas at an API server in this process, in time that runs as the test wants it.

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

/// A leader and a standby that knows it.
async fn leader_and_standby() -> (FakeApi, Replica, Replica) {
    let api = FakeApi::default();
    let leader = Replica::start(&api, Link::new("one", 1), &usual());
    leads_within(&leader, SECOND).await;
    let standby = Replica::start(&api, Link::new("two", 2), &usual());
    sleep(SECOND).await;
    (api, leader, standby)
}

/// How many requests of a replica came in within a span of time.
async fn count(api: &FakeApi, replica: &Replica, span: Duration) -> [usize; 4] {
    let before = api.came().len();
    sleep(span).await;
    let came = api.came();
    [Verb::Get, Verb::Create, Verb::Update, Verb::Watch].map(|verb| {
        came[before..].iter().filter(|came| came.from == replica.identity && came.verb == verb).count()
    })
}

//! How the leader keeps the lease, and how long its right lasts if it cannot renew it.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::api::FakeApi;
use super::link::{Fault, Link, Weather};
use super::rig::{Replica, leads_within};
use super::{SECOND, count, leader_and_standby, usual};
use crate::calls::Verb;
use crate::lease::Leadership;

fn until(replica: &Replica) -> Instant {
    match *replica.leadership.borrow() {
        Leadership::Leading { until } => until,
        Leadership::Standby { .. } => panic!("{} does not lead", replica.identity),
    }
}

/// Asserts that the replica never stopped leading once it led.
fn assert_led_throughout(replica: &Replica) {
    let history = replica.history();
    let since = history.iter().position(|(_, belief)| matches!(belief, Leadership::Leading { .. })).unwrap();
    assert!(!history[since..].iter().any(|(_, belief)| matches!(belief, Leadership::Standby { .. })));
    assert!(replica.leads());
}

fn last_update(api: &FakeApi, replica: &Replica) -> Instant {
    let came = api.came();
    came.iter().rfind(|came| came.from == replica.identity && came.verb == Verb::Update).unwrap().at
}

#[tokio::test(start_paused = true)]
async fn the_right_ends_with_its_last_moment() {
    let until = Instant::now() + SECOND;
    let leading = Leadership::Leading { until };
    assert!(leading.may_write_at(until - Duration::from_nanos(1)));
    assert!(!leading.may_write_at(until));
    assert!(!Leadership::Standby { holder: None }.may_write_at(until));
}

#[tokio::test(start_paused = true)]
async fn an_idle_leader_sends_one_update_each_retry_period_and_nothing_else() {
    let api = FakeApi::default();
    let leader = Replica::start(&api, Link::new("one", 1), &usual());
    assert_eq!(count(&api, &leader, SECOND).await, [1, 1, 0, 0]);
    let _standby = Replica::start(&api, Link::new("two", 2), &usual());
    assert_eq!(count(&api, &leader, 600 * SECOND).await, [0, 0, 300, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_right_counts_from_when_the_renewal_was_sent() {
    let (api, leader, _standby) = leader_and_standby().await;
    leader.link.script(Verb::Update, Fault::None, SECOND, 3 * SECOND);
    sleep(6 * SECOND).await;
    // Sent, answered four seconds later, and not renewed again within the two seconds after that.
    assert_eq!(until(&leader), last_update(&api, &leader) + 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_says_so_when_the_right_ends() {
    for weather in [Weather::Silent, Weather::Refusing(500), Weather::Refusing(403)] {
        let (_api, leader, _standby) = leader_and_standby().await;
        leader.link.set_weather(weather);
        let until = until(&leader);
        let mut leadership = leader.leadership.clone();
        leadership.wait_for(|belief| matches!(belief, Leadership::Standby { .. })).await.unwrap();
        let late = Instant::now().saturating_duration_since(until);
        assert!(late <= Duration::from_millis(2), "reported {late:?} after the end, {weather:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_that_hangs_does_not_cost_the_lease() {
    let (_api, leader, standby) = leader_and_standby().await;
    leader.link.script(Verb::Update, Fault::Hang, Duration::ZERO, Duration::ZERO);
    sleep(30 * SECOND).await;
    assert_led_throughout(&leader);
    assert!(!standby.leads());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_something_else_does_not_cost_a_period() {
    let (api, leader, _standby) = leader_and_standby().await;
    api.annotate();
    let before = until(&leader);
    assert_eq!(count(&api, &leader, 2 * SECOND).await, [1, 0, 2, 0]);
    assert!(until(&leader) > before + SECOND);
}

#[tokio::test(start_paused = true)]
async fn an_update_whose_answer_was_lost_is_found_to_be_ours() {
    let (api, leader, _standby) = leader_and_standby().await;
    let acquired = api.spec()["acquireTime"].clone();
    leader.link.script(Verb::Update, Fault::LostAnswer, Duration::ZERO, Duration::ZERO);
    sleep(30 * SECOND).await;
    assert_led_throughout(&leader);
    assert_eq!(api.spec()["acquireTime"], acquired);
    assert_eq!(api.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_taken_although_the_answer_was_lost_is_ours() {
    let api = FakeApi::default();
    let link = Link::new("one", 1);
    link.script(Verb::Create, Fault::LostAnswer, Duration::ZERO, Duration::ZERO);
    let replica = Replica::start(&api, link, &usual());
    leads_within(&replica, 8 * SECOND).await;
    assert_eq!(api.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn who_was_frozen_has_no_right_when_it_wakes() {
    let (_api, leader, standby) = leader_and_standby().await;
    leader.ice.freeze();
    leads_within(&standby, 17 * SECOND).await;
    assert!(!leader.leads(), "the value it last saw must not let it write");
    sleep(5 * SECOND).await;
    leader.ice.thaw();
    sleep(5 * SECOND).await;
    let beliefs: Vec<_> = leader.history().into_iter().map(|(_, belief)| belief).collect();
    let holder = |name: &str| Leadership::Standby { holder: Some(name.to_owned()) };
    assert_eq!(beliefs[beliefs.len() - 2..], [holder("one"), holder("two")]);
    assert!(!leader.trouble.has_changed().unwrap(), "nothing was wrong with the lease");
    assert!(standby.leads());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_lay_there_while_we_were_frozen_gives_no_right() {
    let (_api, leader, standby) = leader_and_standby().await;
    standby.link.set_cut(true);
    leader.link.script(Verb::Update, Fault::None, SECOND / 10, SECOND / 10);
    sleep(SECOND + SECOND / 20).await;
    leader.ice.freeze();
    sleep(30 * SECOND).await;
    let known = leader.history().len();
    leader.ice.thaw();
    sleep(SECOND / 1000).await;
    // The late answer must not revive a right that has long expired.
    assert!(matches!(leader.history()[known..], [(_, Leadership::Standby { .. })]));
}

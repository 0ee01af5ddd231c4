//! How the lease passes from one replica to another.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::api::FakeApi;
use super::link::{Fault, Link};
use super::rig::{Replica, leads_within, overlap};
use super::{SECOND, leader_and_standby, usual};
use crate::calls::Verb;
use crate::lease::Leadership;

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_from_the_dead_when_the_term_is_over() {
    for wait in 0..20 {
        let (_api, mut leader, standby) = leader_and_standby().await;
        sleep(wait * SECOND / 10).await;
        leader.kill();
        leads_within(&standby, 15 * SECOND + SECOND / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_may_not_watch_takes_over_a_little_later() {
    for wait in 0..20 {
        let api = FakeApi::default();
        let mut leader = Replica::start(&api, Link::new("one", 1), &usual());
        leads_within(&leader, SECOND).await;
        let link = Link::new("two", 2);
        link.forbid(&[Verb::Watch]);
        let standby = Replica::start(&api, link, &usual());
        sleep(5 * SECOND + wait * SECOND / 10).await;
        leader.kill();
        leads_within(&standby, 15 * SECOND + 2 * 2 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    for wait in 0..20 {
        let (api, mut leader, standby) = leader_and_standby().await;
        sleep(wait * SECOND / 10).await;
        leader.release().await.unwrap();
        leads_within(&standby, SECOND / 10).await;
        assert_eq!(api.spec()["leaseTransitions"], 1);
        assert!(leader.is_done());
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_refused_a_moment_ago_still_takes_a_released_lease_at_once() {
    let api = FakeApi::default();
    api.put(&json!({"holderIdentity": "other", "leaseDurationSeconds": 10}));
    let standby = Replica::start(&api, Link::new("two", 2), &usual());
    standby.link.script(Verb::Update, Fault::Refuse(500), Duration::ZERO, Duration::ZERO);
    sleep(10 * SECOND + SECOND / 10).await;
    assert!(standby.trouble.borrow().is_some(), "the attempt should be refused");
    api.put(&json!({"holderIdentity": "", "leaseDurationSeconds": 1}));
    leads_within(&standby, SECOND / 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_is_noticed_by_polling_if_the_watch_is_deaf() {
    let (_api, mut leader, standby) = leader_and_standby().await;
    standby.link.set_cut(true);
    leader.release().await.unwrap();
    standby.link.set_cut(false);
    leads_within(&standby, 3 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn of_three_only_one_takes_a_released_lease() {
    let (api, mut leader, two) = leader_and_standby().await;
    let three = Replica::start(&api, Link::new("three", 3), &usual());
    sleep(5 * SECOND).await;
    leader.release().await.unwrap();
    sleep(30 * SECOND).await;
    assert!(two.leads() != three.leads());
    assert_eq!(api.spec()["leaseTransitions"], 1);
    assert_eq!(overlap(&[leader, two, three]), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_under_its_holder_is_not_free() {
    let (api, leader, standby) = leader_and_standby().await;
    api.delete();
    sleep(30 * SECOND).await;
    assert!(leader.leads());
    assert_eq!(api.spec()["holderIdentity"], "one");
    assert_eq!(overlap(&[leader, standby]), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_before_its_holder_comes_back_is_not_free() {
    let (api, leader, standby) = leader_and_standby().await;
    standby.link.set_cut(true);
    sleep(20 * SECOND).await;
    leader.link.set_cut(true);
    api.delete();
    standby.link.set_cut(false);
    leads_within(&standby, 20 * SECOND).await;
    assert_eq!(overlap(&[leader, standby]), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_after_another_took_it_from_us_is_not_free() {
    let (api, one, two) = leader_and_standby().await;
    one.link.set_cut(true);
    leads_within(&two, 17 * SECOND).await;
    // The first replica still believes that it holds the lease. The second one holds it but cannot renew it.
    api.delete();
    two.link.set_cut(true);
    one.link.set_cut(false);
    leads_within(&one, 25 * SECOND).await;
    assert_eq!(overlap(&[one, two]), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_after_its_holder_died_is_taken_when_the_term_is_over() {
    let (api, mut leader, standby) = leader_and_standby().await;
    leader.kill();
    sleep(3 * SECOND).await;
    api.delete();
    leads_within(&standby, 15 * SECOND + SECOND / 10).await;
    assert_eq!(api.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn who_stops_does_not_become_the_leader() {
    let (_api, mut leader, mut standby) = leader_and_standby().await;
    standby.stop = None;
    sleep(SECOND).await;
    leader.kill();
    sleep(60 * SECOND).await;
    assert!(!standby.leads());
    standby.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_stops_while_it_leads_renews_until_it_releases() {
    let (api, mut leader, standby) = leader_and_standby().await;
    leader.stop = None;
    sleep(60 * SECOND).await;
    assert!(leader.leads());
    leader.release().await.unwrap();
    assert!(!leader.leadership.borrow().may_write_at(Instant::now()));
    leads_within(&standby, SECOND / 10).await;
    assert_eq!(api.spec()["holderIdentity"], "two");
}

#[tokio::test(start_paused = true)]
async fn who_stops_and_loses_the_lease_says_so() {
    let (_api, mut leader, standby) = leader_and_standby().await;
    leader.stop = None;
    leader.link.set_cut(true);
    leads_within(&standby, 17 * SECOND).await;
    assert!(matches!(*leader.leadership.borrow(), Leadership::Standby { .. }));
}

#[tokio::test(start_paused = true)]
async fn who_finds_the_lease_in_other_hands_does_not_wait_for_the_end_of_the_right() {
    let (api, leader, _standby) = leader_and_standby().await;
    api.put(&json!({"holderIdentity": "other", "leaseDurationSeconds": 15}));
    sleep(2 * SECOND + SECOND / 10).await;
    let other = Leadership::Standby { holder: Some("other".to_owned()) };
    assert_eq!(*leader.leadership.borrow(), other);
}

#[tokio::test(start_paused = true)]
async fn the_right_ends_before_the_release_is_sent() {
    let (api, mut leader, _standby) = leader_and_standby().await;
    leader.link.script(Verb::Update, Fault::None, 2 * SECOND, Duration::ZERO);
    leader.begin_release();
    sleep(SECOND).await;
    assert_eq!(api.spec()["holderIdentity"], "one", "it should be in flight");
    assert!(!leader.leads());
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_middle_of_a_renewal_gets_through() {
    let (api, mut leader, standby) = leader_and_standby().await;
    leader.link.script(Verb::Update, Fault::LostAnswer, Duration::ZERO, Duration::ZERO);
    sleep(3 * SECOND / 2).await;
    leader.release().await.unwrap();
    leads_within(&standby, SECOND / 10).await;
    assert_eq!(api.spec()["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_is_tried_again_within_its_limit() {
    for fault in [Fault::Hang, Fault::LostAnswer, Fault::Refuse(500), Fault::Refuse(409)] {
        let (_api, mut leader, standby) = leader_and_standby().await;
        leader.link.script(Verb::Update, fault, Duration::ZERO, Duration::ZERO);
        leader.release().await.unwrap();
        leads_within(&standby, SECOND / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_gives_up_in_the_end_and_says_why() {
    let (_api, mut leader, _standby) = leader_and_standby().await;
    leader.link.set_cut(true);
    let begun = Instant::now();
    let error = leader.release().await.unwrap_err();
    assert!(begun.elapsed() <= 6 * SECOND, "{:?}", begun.elapsed());
    assert!(error.to_string().starts_with("cannot get lease knr in namespace default: no answer"), "{error}");
    assert!(leader.is_done());
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_in_the_moment_of_the_release_is_given_back() {
    let api = FakeApi::default();
    let link = Link::new("one", 1);
    link.script(Verb::Create, Fault::None, Duration::ZERO, SECOND);
    let mut replica = Replica::start(&api, link, &usual());
    sleep(SECOND / 2).await;
    assert_eq!(api.spec()["holderIdentity"], "one");
    replica.release().await.unwrap();
    assert_eq!(api.spec()["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_standby_releases_nothing() {
    let (api, leader, mut standby) = leader_and_standby().await;
    standby.release().await.unwrap();
    assert_eq!(api.spec()["holderIdentity"], "one");
    sleep(20 * SECOND).await;
    assert!(leader.leads());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_election_ends_and_releases_nothing() {
    let (api, mut leader, _standby) = leader_and_standby().await;
    leader.drop_election();
    sleep(SECOND / 100).await;
    assert!(leader.is_done());
    assert!(matches!(*leader.leadership.borrow(), Leadership::Standby { .. }));
    assert_eq!(api.spec()["holderIdentity"], "one");
}

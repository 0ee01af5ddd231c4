//! What is written into the record, and when the lease may be taken.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::api::FakeApi;
use super::link::Link;
use super::rig::{Replica, leads_within};
use super::{SECOND, leader_and_standby, usual};
use crate::lease::record::{Candidate, released};

fn me() -> Candidate {
    Candidate { identity: "me".to_owned(), settings: usual() }
}

fn held_by(holder: &str, transitions: i32, renewed: Timestamp) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
        renew_time: Some(MicroTime(renewed)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    };
    Lease { metadata: kube::api::ObjectMeta::default(), spec: Some(spec) }
}

fn now() -> Timestamp {
    "2026-11-16T12:00:00.123456Z".parse().unwrap()
}

#[test]
fn a_renewal_keeps_when_it_was_acquired_and_how_often_it_changed_hands() {
    let lease = held_by("me", 7, Timestamp::UNIX_EPOCH);
    let spec = me().claim(Some(&lease), now());
    assert_eq!(spec.acquire_time, lease.spec.unwrap().acquire_time);
    assert_eq!(spec.lease_transitions, Some(7));
    assert_eq!(spec.renew_time, Some(MicroTime(now())));
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!(spec.lease_duration_seconds, Some(15));
}

#[test]
fn taking_it_from_another_counts_as_a_change_of_hands() {
    for holder in ["other", ""] {
        let spec = me().claim(Some(&held_by(holder, 7, Timestamp::UNIX_EPOCH)), now());
        assert_eq!(spec.lease_transitions, Some(8));
        assert_eq!(spec.acquire_time, Some(MicroTime(now())));
    }
}

#[test]
fn a_new_lease_has_never_changed_hands() {
    let spec = me().claim(None, now());
    assert_eq!(spec.lease_transitions, Some(0));
    assert_eq!(spec.acquire_time, Some(MicroTime(now())));
}

#[test]
fn a_release_leaves_the_count_and_an_empty_holder() {
    let spec = released(&held_by("me", 7, Timestamp::UNIX_EPOCH), now());
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_duration_seconds, Some(1));
    assert_eq!(spec.lease_transitions, Some(7));
    assert_eq!(spec.renew_time, Some(MicroTime(now())));
    assert_eq!(spec.acquire_time, Some(MicroTime(now())));
}

#[test]
fn a_renewal_changes_the_record_even_if_the_wall_clock_stands_still() {
    let finer = now() + SignedDuration::from_nanos(400);
    for (lease, now) in [(held_by("me", 0, now()), now()), (held_by("me", 0, now()), finer)] {
        let spec = me().claim(Some(&lease), now);
        let written: Value = serde_json::to_value(&spec).unwrap();
        assert_ne!(written["renewTime"], serde_json::to_value(&lease.spec).unwrap()["renewTime"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_wall_clock_of_the_holder_says_nothing() {
    for renewed in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let api = FakeApi::default();
        api.put(&json!({"holderIdentity": "other", "leaseDurationSeconds": 20, "renewTime": renewed}));
        let replica = Replica::start(&api, Link::new("one", 1), &usual());
        sleep(19 * SECOND).await;
        assert!(!replica.leads(), "taken before it had been seen for 20 seconds");
        leads_within(&replica, 2 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_term_of_the_holder_counts_and_not_ours() {
    for (seconds, term) in [(json!(5), 5), (json!(40), 40), (Value::Null, 15)] {
        let api = FakeApi::default();
        api.put(&json!({"holderIdentity": "other", "leaseDurationSeconds": seconds}));
        let begun = Instant::now();
        let replica = Replica::start(&api, Link::new("one", 1), &usual());
        leads_within(&replica, 100 * SECOND).await;
        assert_eq!(begun.elapsed().as_secs(), term);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_no_renewal_does_not_lengthen_the_term() {
    let (api, mut leader, standby) = leader_and_standby().await;
    leader.kill();
    let killed = Instant::now();
    for _ in 0..14 {
        sleep(SECOND).await;
        api.annotate();
    }
    leads_within(&standby, 3 * SECOND).await;
    assert!(killed.elapsed() < 17 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn what_others_have_put_on_the_lease_stays() {
    let (api, _leader, _standby) = leader_and_standby().await;
    api.annotate();
    let annotations = api.lease().unwrap()["metadata"]["annotations"].clone();
    sleep(10 * SECOND).await;
    assert_eq!(api.lease().unwrap()["metadata"]["annotations"], annotations);
}

//! The errors that the caller gets when the lease cannot be taken.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::api::FakeApi;
use super::link::{Fault, Link, Weather};
use super::rig::{Replica, leads_within};
use super::{SECOND, leader_and_standby, usual};
use crate::calls::{Call, Verb};
use crate::lease::Cause;

fn trouble(replica: &Replica) -> String {
    replica.trouble.borrow().as_ref().map_or_else(String::new, ToString::to_string)
}

#[tokio::test(start_paused = true)]
async fn no_more_is_asked_of_the_api_server_than_is_on_the_list() {
    let (api, mut leader, standby) = leader_and_standby().await;
    leader.release().await.unwrap();
    leads_within(&standby, SECOND).await;
    let asked: BTreeSet<_> = api.came().into_iter().map(|came| came.verb).collect();
    let rules = Call::ALL.iter().map(|call| call.rule()).filter(|rule| rule.resource == "leases");
    assert_eq!(asked, rules.map(|rule| rule.verb).collect());
}

#[tokio::test(start_paused = true)]
async fn each_verb_that_is_not_permitted_is_named() {
    for verb in [Verb::Get, Verb::Create, Verb::Update] {
        let api = FakeApi::default();
        let link = Link::new("one", 1);
        if verb == Verb::Update {
            api.put(&serde_json::json!({"holderIdentity": ""}));
        }
        link.forbid(&[verb]);
        let replica = Replica::start(&api, link, &usual());
        sleep(10 * SECOND).await;
        let verb = verb.as_str();
        let expected = format!("cannot {verb} lease knr in namespace default: not permitted: ");
        assert!(trouble(&replica).starts_with(&expected), "{}", trouble(&replica));
        replica.link.forbid(&[]);
        leads_within(&replica, 3 * SECOND).await;
        assert_eq!(trouble(&replica), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_permitted_is_named_and_done_without() {
    let (api, leader, _standby) = leader_and_standby().await;
    let link = Link::new("three", 3);
    link.forbid(&[Verb::Watch]);
    let replica = Replica::start(&api, link, &usual());
    sleep(10 * SECOND).await;
    let error = replica.trouble.borrow().clone().unwrap();
    assert_eq!(error.verb, Verb::Watch);
    assert!(matches!(error.cause, Cause::Forbidden(_)));
    assert!(leader.leads());
}

#[tokio::test(start_paused = true)]
async fn the_same_trouble_is_reported_once() {
    let (api, _leader, _standby) = leader_and_standby().await;
    let link = Link::new("three", 3);
    link.forbid(&[Verb::Get, Verb::Watch]);
    let mut replica = Replica::start(&api, link, &usual());
    replica.trouble.changed().await.unwrap();
    assert_eq!(replica.trouble.borrow_and_update().as_ref().unwrap().verb, Verb::Get);
    sleep(60 * SECOND).await;
    assert!(!replica.trouble.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_is_named() {
    let api = FakeApi::default();
    api.set_namespace(false);
    let replica = Replica::start(&api, Link::new("one", 1), &usual());
    sleep(10 * SECOND).await;
    assert_eq!(trouble(&replica), "cannot create lease knr in namespace default: there is no such namespace");
    api.set_namespace(true);
    leads_within(&replica, 3 * SECOND).await;
    assert_eq!(trouble(&replica), "");
}

#[tokio::test(start_paused = true)]
async fn trouble_passes_when_the_api_server_is_back() {
    let (_api, leader, standby) = leader_and_standby().await;
    for replica in [&leader, &standby] {
        replica.link.set_weather(Weather::Silent);
    }
    standby.link.set_cut(true);
    sleep(8 * SECOND).await;
    for replica in [&leader, &standby] {
        assert!(trouble(replica).contains("no answer within"), "{}", trouble(replica));
        replica.link.set_weather(Weather::Fair);
    }
    standby.link.set_cut(false);
    sleep(8 * SECOND).await;
    for replica in [&leader, &standby] {
        assert_eq!(trouble(replica), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_that_failed_is_forgotten_once_another_has_the_lease() {
    let api = FakeApi::default();
    api.put(&serde_json::json!({"holderIdentity": ""}));
    let link = Link::new("one", 1);
    link.script(Verb::Update, Fault::Refuse(500), Duration::ZERO, Duration::ZERO);
    let mut replica = Replica::start(&api, link, &usual());
    replica.trouble.changed().await.unwrap();
    assert!(trouble(&replica).contains("cannot update"), "{}", trouble(&replica));
    api.put(&serde_json::json!({"holderIdentity": "other"}));
    sleep(SECOND).await;
    assert_eq!(trouble(&replica), "");
}

//! How a standby watches the lease, and how many requests that takes.

use tokio::time::sleep;

use super::link::Weather;
use super::rig::leads_within;
use super::{SECOND, count, leader_and_standby};
use crate::calls::Verb;

#[tokio::test(start_paused = true)]
async fn a_deaf_watch_is_opened_again() {
    let (api, mut leader, standby) = leader_and_standby().await;
    api.make_watches_deaf();
    sleep(20 * SECOND).await;
    leader.release().await.unwrap();
    leads_within(&standby, SECOND / 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_closed_is_opened_again() {
    let (api, mut leader, standby) = leader_and_standby().await;
    sleep(60 * SECOND).await;
    api.close_watches();
    sleep(SECOND / 10).await;
    leader.release().await.unwrap();
    leads_within(&standby, SECOND / 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_closed_now_and_then_is_opened_again_each_time() {
    let (api, mut leader, standby) = leader_and_standby().await;
    for _ in 0..10 {
        sleep(60 * SECOND).await;
        api.close_watches();
    }
    sleep(SECOND / 10).await;
    leader.release().await.unwrap();
    leads_within(&standby, SECOND / 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_is_tried_ever_less_often() {
    let (api, _leader, standby) = leader_and_standby().await;
    standby.link.forbid(&[Verb::Watch]);
    api.close_watches();
    let [_, _, _, watches] = count(&api, &standby, 620 * SECOND).await;
    assert!(
        (20..30).contains(&watches),
        "{watches} in ten minutes, of which the last eight one each 32 seconds"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_works_again_is_trusted_again() {
    let (api, mut leader, standby) = leader_and_standby().await;
    standby.link.forbid(&[Verb::Watch]);
    api.close_watches();
    sleep(300 * SECOND).await;
    standby.link.forbid(&[]);
    sleep(40 * SECOND).await;
    api.close_watches();
    sleep(3 * SECOND).await;
    api.close_watches();
    sleep(3 * SECOND).await;
    leader.release().await.unwrap();
    leads_within(&standby, SECOND / 10).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_standby_listens_and_seldom_asks() {
    let (api, _leader, standby) = leader_and_standby().await;
    let [gets, creates, updates, watches] = count(&api, &standby, 600 * SECOND).await;
    assert_eq!([creates, updates, watches], [0, 0, 0]);
    assert!(gets < 30, "{gets} reads in ten minutes although the watch reports everything");
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_refused_everything_does_not_hammer() {
    let (api, mut leader, standby) = leader_and_standby().await;
    leader.kill();
    standby.link.set_weather(Weather::Refusing(500));
    let asked: usize = count(&api, &standby, 600 * SECOND).await.into_iter().sum();
    assert!((300..650).contains(&asked), "{asked} requests in ten minutes");
}

//! Elections with random faults of every kind, drawn from seeds, and the guarantees that must hold anyway.

use std::future::Future;
use std::time::Duration;

use knr_core::config::LeaderElection;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use super::api::FakeApi;
use super::link::{Link, Weather};
use super::rig::{Replica, leads_within, overlap};
use super::rng::Rng;
use super::{SECOND, usual};

const SEEDS: u64 = 200;

fn run(test: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test);
}

fn times(lease: u32, renew: u32, retry: u32) -> LeaderElection {
    LeaderElection {
        lease_duration_seconds: lease,
        renew_deadline_seconds: renew,
        retry_period_seconds: retry,
        ..usual()
    }
}

/// A cluster with faults.
struct Chaos {
    rng: Rng,
    api: FakeApi,
    settings: LeaderElection,
    replicas: Vec<Replica>,
    /// What was done, to investigate a seed that fails.
    log: Vec<String>,
    begun: Instant,
    deleted: Instant,
    /// The thousandths by which a clock may be fast or slow.
    skew: i64,
}

impl Chaos {
    fn new(seed: u64, settings: LeaderElection, skew: i64) -> Self {
        let begun = Instant::now();
        let (api, rng) = (FakeApi::default(), Rng::new(seed));
        let mut chaos =
            Self { rng, api, settings, replicas: Vec::new(), log: Vec::new(), begun, deleted: begun, skew };
        for _ in 0..2 + seed % 2 {
            chaos.join();
        }
        chaos
    }

    fn join(&mut self) {
        let link = Link::new(&format!("replica-{}", self.replicas.len()), self.rng.next());
        let drawn = i64::try_from(self.rng.within(0..1001)).unwrap();
        link.set_rate(1000 - self.skew + drawn * 2 * self.skew / 1000);
        self.replicas.push(Replica::start(&self.api, link, &self.settings));
    }

    fn note(&mut self, what: &str) {
        self.log.push(format!("{:8.3} {what}", self.begun.elapsed().as_secs_f64()));
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.replicas.len()).filter(|index| self.replicas[*index].is_alive()).collect()
    }

    /// Picks a replica, the leader more often than others.
    fn victim(&mut self) -> usize {
        let alive = self.alive();
        let leader = alive.iter().find(|index| self.replicas[**index].leads()).copied();
        match leader {
            Some(leader) if self.rng.percent(50) => leader,
            _ => alive[self.rng.index(alive.len())],
        }
    }

    /// Starts a new replica, but not without a lease: it could not know of a leader that may still exist.
    async fn replace(&mut self) {
        while self.api.lease().is_none() {
            sleep(SECOND).await;
        }
        self.join();
    }

    /// Causes a fault, for a while or for good.
    async fn disturb(&mut self) {
        let victim = self.victim();
        let lease = u64::from(self.settings.lease_duration_seconds) * 1000;
        let span = self.rng.millis(lease / 15..lease * 2);
        let kind = self.rng.within(0..11);
        self.note(&format!("{kind} hits replica-{victim} for {span:?}"));
        let replica = &mut self.replicas[victim];
        match kind {
            0 => {
                replica.kill();
                self.replace().await;
            }
            1 => {
                replica.begin_release();
                self.replace().await;
            }
            2 | 3 => {
                let ice = replica.ice.clone();
                ice.freeze();
                later(span, move || ice.thaw());
            }
            4 => {
                let link = replica.link.clone();
                link.set_cut(true);
                later(span, move || link.set_cut(false));
            }
            5 | 6 => weather(&replica.link, Weather::Stormy, span),
            7 => {
                let kinds = [Weather::Stormy, Weather::Slow, Weather::Refusing(503), Weather::Silent];
                let kind = kinds[self.rng.index(kinds.len())];
                for replica in &self.replicas {
                    weather(&replica.link, kind, span);
                }
            }
            8 => self.api.close_watches(),
            9 => self.api.annotate(),
            _ if self.deleted.elapsed() > self.settings.lease_duration() * 10 => {
                self.deleted = Instant::now();
                self.api.delete();
            }
            _ => {}
        }
    }

    async fn run(&mut self, seed: u64) {
        let lease = u64::from(self.settings.lease_duration_seconds) * 1000;
        for _ in 0..16 {
            let calm = self.rng.millis(0..lease * 3 / 2);
            sleep(calm).await;
            self.disturb().await;
        }
        // A current fault lasts at most two more terms. Late requests can restart the term once.
        sleep(self.settings.lease_duration() * 6).await;
        let leaders = self.replicas.iter().filter(|replica| replica.leads()).count();
        let log = self.log.join("\n");
        if let Some(overlap) = overlap(&self.replicas) {
            panic!("seed {seed}: {overlap}\n{log}");
        }
        assert_eq!(leaders, 1, "seed {seed}: not one leader without faults\n{log}");
    }
}

fn weather(link: &Link, weather: Weather, span: Duration) {
    let link = link.clone();
    link.set_weather(weather);
    later(span, move || link.set_weather(Weather::Fair));
}

fn later(span: Duration, what: impl FnOnce() + Send + 'static) {
    tokio::spawn(async move {
        sleep(span).await;
        what();
    });
}

#[test]
fn never_do_two_lead_whatever_happens() {
    let settings = [times(15, 10, 2), times(3, 2, 1), times(60, 40, 5), times(15, 14, 13)];
    for (seed, settings) in (0..SEEDS).zip(settings.iter().cycle()) {
        run(async { Chaos::new(seed, settings.clone(), 0).run(seed).await });
    }
}

#[test]
fn never_do_two_lead_although_their_clocks_run_apart() {
    // Two percent fast against two percent slow is less than the five percent between 2000 and 2100.
    for seed in 0..SEEDS / 3 {
        run(async { Chaos::new(seed, times(2100, 2000, 200), 20).run(seed).await });
    }
}

/// Proves that the rig detects two leaders: here the clocks differ by more than the settings allow.
#[test]
#[should_panic(expected = "both led for")]
fn clocks_too_far_apart_are_noticed() {
    run(async {
        let api = FakeApi::default();
        let settings = times(2100, 2000, 200);
        let (slow, fast) = (Link::new("slow", 1), Link::new("fast", 2));
        slow.set_rate(900);
        fast.set_rate(1100);
        let leader = Replica::start(&api, slow, &settings);
        leads_within(&leader, SECOND).await;
        let standby = Replica::start(&api, fast, &settings);
        sleep(500 * SECOND).await;
        leader.link.set_cut(true);
        sleep(5000 * SECOND).await;
        if let Some(overlap) = overlap(&[leader, standby]) {
            panic!("{overlap}");
        }
    });
}

#[test]
fn the_dead_are_replaced_in_time() {
    for seed in 0..SEEDS {
        run(async {
            let mut chaos = Chaos::new(seed, times(15, 10, 2), 0);
            let calm = chaos.rng.millis(1000..30_000);
            sleep(calm).await;
            let leader = chaos.replicas.iter_mut().find(|replica| replica.leads()).unwrap();
            match seed % 3 {
                0 => leader.kill(),
                1 => leader.ice.freeze(),
                _ => leader.link.set_cut(true),
            }
            let old = leader.identity.clone();
            sleep(15 * SECOND + SECOND / 10).await;
            let new = chaos.replicas.iter().find(|replica| replica.leads());
            assert!(new.is_some_and(|new| new.identity != old), "seed {seed}: nobody took over");
            if let Some(overlap) = overlap(&chaos.replicas) {
                panic!("seed {seed}: {overlap}");
            }
        });
    }
}

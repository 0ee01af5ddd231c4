use std::convert::Infallible;

use http::{Request, Response};
use knr_core::config::Config;
use knr_core::policy::Policies;
use knr_k8s::api::Namespaces;
use knr_web::Exposition;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{advance, sleep};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const GATE: &str = "gates: [{name: a}]";
const TWO_GATES: &str = "gates: [{name: a}, {name: b, podSelector: x=y, taint: {key: b, effect: NoSchedule}, \
                         completedAnnotation: c}]";

fn feeds(yaml: &str) -> BTreeSet<Feed> {
    Feed::all(&Policies::from(&Config::parse(yaml).unwrap()))
}

/// Watches of a server that accepts every request and never answers.
struct Rig {
    watches: Watches,
    requests: watch::Receiver<Vec<String>>,
    health: Health,
}

impl Rig {
    fn start(yaml: &str) -> Self {
        let (sender, requests) = watch::channel(Vec::new());
        let sender = Arc::new(sender);
        let service = tower::service_fn(move |request: Request<Body>| {
            let sender = Arc::clone(&sender);
            async move {
                sender.send_modify(|all| all.push(request.uri().to_string()));
                std::future::pending::<Result<Response<Body>, Infallible>>().await
            }
        });
        let namespaces = Namespaces { own: "own".into(), workers: "own".into(), lease: "own".into() };
        let api = Api::new(kube::Client::new(service, "own"), namespaces);
        let (facts, received) = mpsc::channel(8);
        // Without a receiver watches end.
        std::mem::forget(received);
        let (health, metrics) = (Health::new(), Arc::new(Metrics::new(false)));
        let watches = Watches::start(api, &feeds(yaml), facts, health.clone(), metrics);
        Self { watches, requests, health }
    }

    /// The selectors of all requests for init pods so far.
    async fn selectors(&mut self) -> Vec<String> {
        sleep(SECOND).await;
        let selector = |uri: &String| {
            let (_, rest) = uri.split_once("/namespaces/kube-system/pods?")?;
            rest.split_once("labelSelector=")?.1.split_once('&').map(|(selector, _)| selector.to_owned())
        };
        let asked = self.requests.borrow_and_update();
        let mut selectors: Vec<String> = asked.iter().filter_map(selector).collect();
        selectors.sort_unstable();
        selectors
    }

    async fn configure(&mut self, yaml: &str) {
        let feeds = feeds(yaml);
        self.watches.keep_only(&feeds).await;
        self.watches.begin(&feeds);
    }

    fn ages(&self) -> usize {
        let text = Metrics::new(false).text(&self.health).unwrap();
        text.lines().filter(|line| line.contains("resource=\"init-pods\"") && line.contains("age")).count()
    }
}

#[tokio::test(start_paused = true)]
async fn only_watches_that_are_new_begin_when_the_configuration_changes() {
    const DEFAULT: &str = "startup.k8s.io%2Fcomponent%3Dinit";
    let mut rig = Rig::start(GATE);
    assert_eq!(rig.selectors().await, [DEFAULT]);
    rig.configure("gates: [{name: a, minimumHoldSeconds: 5}]").await;
    assert_eq!(rig.selectors().await, [DEFAULT], "it waits for the same pods");
    rig.configure(TWO_GATES).await;
    assert_eq!(rig.selectors().await, [DEFAULT, "x%3Dy"]);
    rig.configure(GATE).await;
    rig.configure(TWO_GATES).await;
    assert_eq!(rig.selectors().await, [DEFAULT, "x%3Dy", "x%3Dy"], "the second one was ended");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_watched_is_not_expected_to_live() {
    let mut rig = Rig::start(TWO_GATES);
    assert_eq!(rig.ages(), 1, "one for both");
    rig.configure(GATE).await;
    assert_eq!(rig.ages(), 1);
    rig.configure("").await;
    assert_eq!(rig.ages(), 0);
    rig.configure(GATE).await;
    assert_eq!(rig.ages(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_does_not_hide_behind_another_of_its_kind() {
    let health = Health::new();
    let round = Round::new(health.watch("init-pods", DEAD));
    let feeds: Vec<Feed> =
        feeds(TWO_GATES).into_iter().filter(|feed| feed.kind() == ObjectKind::InitPods).collect();
    for feed in &feeds {
        round.join(feed.clone());
    }
    let age = || {
        let text = Metrics::new(false).text(&health).unwrap();
        let line =
            text.lines().find(|line| line.contains("init-pods") && line.contains("age")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    advance(60 * SECOND).await;
    round.hear(&feeds[0]);
    round.hear(&feeds[0]);
    assert!(age() >= 60.0, "the other one has not been heard");
    round.hear(&feeds[1]);
    assert!(age() < 1.0);
    advance(60 * SECOND).await;
    round.hear(&feeds[1]);
    assert!(age() >= 60.0);
    assert!(!round.leave(&feeds[0]), "one is left");
    round.hear(&feeds[1]);
    assert!(age() < 1.0, "the other one is not expected any more");
}

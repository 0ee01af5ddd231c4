use std::convert::Infallible;

use http::{Method, Request, Response};
use knr_core::config::Level;
use knr_core::ids::{NodeRef, Version};
use knr_core::names;
use knr_core::view::NodeView;
use knr_k8s::act::Actor;
use knr_k8s::api::{Api, Namespaces};
use knr_web::Exposition;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::telemetry::tests::Captured;

/// More nodes than requests may be under way.
const NODES: usize = 60;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

/// An API server that answers nothing but requests for pods, with 503, and only when it is allowed to.
struct Server {
    received: watch::Receiver<Vec<String>>,
    answers: Arc<Semaphore>,
}

impl Server {
    fn start() -> (Self, Api) {
        let (sender, received) = watch::channel(Vec::new());
        let (sender, answers) = (Arc::new(sender), Arc::new(Semaphore::new(0)));
        let permits = Arc::clone(&answers);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (sender, permits) = (Arc::clone(&sender), Arc::clone(&permits));
            async move {
                if request.method() != Method::POST {
                    std::future::pending::<()>().await;
                }
                let pod = request.into_body().collect_bytes().await.unwrap_or_default();
                sender.send_modify(|all| all.push(node_of(&pod)));
                permits.acquire().await.unwrap().forget();
                let busy = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503 });
                let answer = Response::builder().status(503).body(Body::from(busy.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        let namespaces = Namespaces { own: "own".into(), workers: "own".into(), lease: "own".into() };
        (Self { received, answers }, Api::new(kube::Client::new(service, "own"), namespaces))
    }

    /// The nodes for which workers were asked for, once there are so many.
    async fn received(&mut self, count: usize) -> Vec<String> {
        self.received.wait_for(|all| all.len() >= count).await.unwrap().clone()
    }
}

fn node_of(pod: &[u8]) -> String {
    let pod: Value = serde_json::from_slice(pod).unwrap();
    pod["metadata"]["annotations"][names::WORKER_NODE_ANNOTATION].as_str().unwrap().to_owned()
}

fn name(number: usize) -> String {
    format!("n{number:02}")
}

fn closed_node(number: usize) -> NodeView {
    let name = name(number);
    NodeView {
        id: NodeRef { name: name.as_str().into(), uid: name.as_str().into() },
        version: Version(1),
        boot: "b".into(),
        created: jiff::Timestamp::UNIX_EPOCH,
        taints: vec![json!({ "key": names::UNVERIFIED_TAINT, "effect": "NoSchedule" })],
        labels: [("team", "a")].into_iter().collect(),
        annotations: [("", ""); 0].into_iter().collect(),
        condition: None,
        ready: true,
        leaving: false,
        claim: None,
    }
}

/// A loop that leads.
struct Running {
    facts: mpsc::Sender<Fact>,
    config: watch::Sender<Arc<Config>>,
    metrics: Arc<Metrics>,
    _leadership: watch::Sender<Leadership>,
    task: JoinHandle<Drained>,
}

impl Running {
    /// The right to write ends after this long.
    fn start(api: Api, leads_for: Duration) -> Self {
        let (config, metrics, health) =
            (Arc::new(Config::default()), Arc::new(Metrics::new(false)), Health::new());
        let (facts, received) = mpsc::channel(8);
        let watches =
            Watches::start(api.clone(), &config, facts.clone(), health.clone(), Arc::clone(&metrics));
        let clock = Clock::start();
        let (writers, answers) = Writers::new(Actor::new(api.clone(), "test".into()), clock);
        let leadership = Leadership::Leading { until: Instant::now() + leads_for };
        let (leads, mut leadership) = watch::channel(leadership);
        leadership.mark_changed();
        let (edits, changed) = watch::channel(Arc::clone(&config));
        let driver = Driver {
            engine: Engine::new(&config),
            clock,
            config,
            writers,
            readers: Readers::new(api, facts.clone()),
            watches,
            recorder: Recorder::new(Arc::clone(&metrics)),
            metrics: Arc::clone(&metrics),
            pulse: health.vital("loop", SECOND),
            health,
            leadership: Leadership::Standby { holder: None },
            wake: None,
        };
        let stop = CancellationToken::new();
        let inputs = Inputs { facts: received, answers, leadership, config: changed, stop };
        let task = tokio::spawn(driver.run(inputs));
        Self { facts, config: edits, metrics, _leadership: leads, task }
    }

    async fn learn(&self, fact: Fact) {
        self.facts.send(fact).await.unwrap();
    }

    /// Nodes that want a worker each, of which the last ones have to wait.
    async fn with_nodes(api: Api, leads_for: Duration) -> Self {
        let running = Self::start(api, leads_for);
        running.learn(Fact::Workers(Vec::new(), Version(1))).await;
        running.learn(Fact::Nodes((0..NODES).map(closed_node).collect(), Version(1))).await;
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until the loop has done all there is to do.
async fn settle() {
    sleep(SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_before_a_change_of_the_configuration_is_not_sent_after_it() {
    let (mut server, api) = Server::start();
    let running = Running::with_nodes(api, HOUR).await;
    let sent = server.received(1).await.len();
    assert!((1..NODES).contains(&sent), "{sent}");
    let excluded = Config::parse("nodeManagement: {exclude: [team=a]}").unwrap();
    running.config.send_replace(Arc::new(excluded));
    settle().await;
    let sent = server.received(1).await.len();
    server.answers.add_permits(NODES);
    sleep(120 * SECOND).await;
    assert_eq!(server.received(1).await.len(), sent, "the places that became free were not used");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_for_a_node_that_went_while_its_order_waited() {
    let (mut server, api) = Server::start();
    let running = Running::with_nodes(api, HOUR).await;
    settle().await;
    let sent = server.received(1).await;
    let waits: Vec<usize> = (0..NODES).filter(|number| !sent.contains(&name(*number))).collect();
    assert!(waits.len() > 1, "{sent:?}");
    let gone = closed_node(waits[0]).id;
    running.learn(Fact::NodeGone(gone.clone(), Version(2))).await;
    settle().await;
    server.answers.add_permits(10 * NODES);
    let sent = server.received(NODES - 1).await;
    assert!(!sent.contains(&gone.name.to_string()), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_controller_holds_back_itself_is_neither_a_warning_nor_an_error() {
    let log = Captured::start(Level::Debug);
    let (server, api) = Server::start();
    let running = Running::with_nodes(api, Duration::ZERO).await;
    sleep(100 * SECOND).await;
    assert!(server.received.borrow().is_empty(), "there is no right to write");
    let lines = log.lines();
    let is_summary = |line: &&Value| line["msg"] == "Writes were held back";
    let summaries: Vec<&Value> = lines.iter().filter(is_summary).collect();
    assert!((1..=3).contains(&summaries.len()), "{summaries:#?}");
    assert!(summaries[0]["late_orders"].as_u64().unwrap() >= NODES as u64, "{summaries:#?}");
    // Watches warn in this test: they get no answer.
    let warnings: Vec<&Value> =
        lines.iter().filter(|line| line["level"] != "info" && line["action"].is_string()).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
    let text = running.metrics.text(&Health::new()).unwrap();
    assert!(text.contains("kube_node_ready_controller_reconcile_errors_total 0"), "{text}");
}

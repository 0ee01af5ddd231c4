//! A loop under test, and the API server that it writes to.

use super::*;

/// More nodes than there can be requests in flight.
pub(super) const NODES: usize = 60;
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_hours(1);

/// An API server that answers only writes: requests for workers with 503, deletions with success, both only as permits
/// become available, and events at once, with success unless a test says otherwise.
pub(super) struct Server {
    pub(super) received: watch::Receiver<Vec<String>>,
    pub(super) events: watch::Receiver<Vec<String>>,
    pub(super) answers: Arc<Semaphore>,
    pub(super) event_code: Arc<AtomicU16>,
}

impl Server {
    pub(super) fn start() -> (Self, Api) {
        let ((workers, received), (reports, events)) =
            (watch::channel(Vec::new()), watch::channel(Vec::new()));
        let (senders, answers) = (Arc::new((workers, reports)), Arc::new(Semaphore::new(0)));
        let permits = Arc::clone(&answers);
        let event_code = Arc::new(AtomicU16::new(201));
        let code_of_events = Arc::clone(&event_code);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (senders, permits) = (Arc::clone(&senders), Arc::clone(&permits));
            let code_of_events = Arc::clone(&code_of_events);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                let code = match (head.method, head.uri.path()) {
                    (Method::POST, path) if path.ends_with("/events") => {
                        senders.1.send_modify(|all| all.push(reason_of(&body)));
                        return Ok(answer(code_of_events.load(Ordering::Relaxed)));
                    }
                    (Method::POST, _) => {
                        senders.0.send_modify(|all| all.push(node_of(&body)));
                        503
                    }
                    (Method::DELETE, _) => 200,
                    _ => return std::future::pending().await,
                };
                permits.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(answer(code))
            }
        });
        let namespaces = Namespaces { own: "own".into(), workers: "own".into(), lease: "own".into() };
        (
            Self { received, events, answers, event_code },
            Api::new(kube::Client::new(service, "own"), namespaces),
        )
    }

    /// The nodes for which workers were requested, once there are at least `count`.
    pub(super) async fn received(&mut self, count: usize) -> Vec<String> {
        self.received.wait_for(|all| all.len() >= count).await.unwrap().clone()
    }

    /// The reasons of the events so far.
    pub(super) fn events(&self) -> Vec<String> {
        self.events.borrow().clone()
    }

    pub(super) fn answers_events_with(&self, code: u16) {
        self.event_code.store(code, Ordering::Relaxed);
    }
}

pub(super) fn answer(code: u16) -> Response<Body> {
    let status = if code < 300 { "Success" } else { "Failure" };
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": status, "code": code });
    Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
}

pub(super) fn reason_of(event: &[u8]) -> String {
    let event: Value = serde_json::from_slice(event).unwrap();
    event["reason"].as_str().unwrap().to_owned()
}

pub(super) fn node_of(pod: &[u8]) -> String {
    let pod: Value = serde_json::from_slice(pod).unwrap();
    pod["metadata"]["annotations"][names::WORKER_NODE_ANNOTATION].as_str().unwrap().to_owned()
}

pub(super) fn name(number: usize) -> String {
    format!("n{number:02}")
}

pub(super) fn closed_node(number: usize) -> NodeView {
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

/// A loop that is about to run.
pub(super) struct Rig {
    pub(super) driver: Driver,
    pub(super) inputs: Inputs,
    pub(super) facts: mpsc::Sender<Fact>,
    pub(super) config: watch::Sender<Arc<Config>>,
    pub(super) leadership: watch::Sender<Leadership>,
}

impl Rig {
    /// Leadership ends after `leads_for`.
    pub(super) fn new(api: Api, leads_for: Duration) -> Self {
        let (config, metrics, health) =
            (Arc::new(Config::default()), Arc::new(Metrics::new(false)), Health::new());
        let (facts, received) = mpsc::channel(8);
        let engine = Engine::new(&config);
        let watches =
            Watches::start(api.clone(), engine.feeds(), facts.clone(), health.clone(), Arc::clone(&metrics));
        let clock = Clock::start();
        let (writers, ended) = Writers::new(Actor::new(api.clone(), "test".into()), clock);
        let (leads, mut leadership) = watch::channel(leading(leads_for));
        leadership.mark_changed();
        let (edits, changed) = watch::channel(Arc::clone(&config));
        let driver = Driver {
            engine,
            clock,
            config,
            writers,
            readers: Readers::new(api, facts.clone()),
            watches,
            recorder: Recorder::new(Arc::clone(&metrics)),
            metrics,
            pulse: health.vital("loop", SECOND),
            health,
            leadership: Leadership::Standby { holder: None },
            wake: None,
        };
        let stop = CancellationToken::new();
        let inputs = Inputs { facts: received, ended, leadership, config: changed, stop };
        Self { driver, inputs, facts, config: edits, leadership: leads }
    }

    pub(super) fn run(self) -> Running {
        let Self { driver, inputs, facts, config, leadership } = self;
        let (metrics, stop) = (Arc::clone(&driver.metrics), inputs.stop.clone());
        Running { facts, config, leadership, metrics, stop, task: tokio::spawn(driver.run(inputs)) }
    }
}

pub(super) fn leading(leads_for: Duration) -> Leadership {
    Leadership::Leading { until: Instant::now() + leads_for }
}

/// A loop that leads.
pub(super) struct Running {
    pub(super) facts: mpsc::Sender<Fact>,
    pub(super) config: watch::Sender<Arc<Config>>,
    pub(super) leadership: watch::Sender<Leadership>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<Drained>,
}

impl Running {
    pub(super) async fn learn(&self, fact: Fact) {
        self.facts.send(fact).await.unwrap();
    }

    /// Adds nodes that each need a worker, the last of which have to wait.
    pub(super) async fn with_nodes(api: Api, leads_for: Duration) -> Self {
        let running = Rig::new(api, leads_for).run();
        running.learn(Fact::Workers(Vec::new(), Version(1))).await;
        running.learn(Fact::Nodes((0..NODES).map(closed_node).collect(), Version(1))).await;
        running
    }

    /// Sends the deletion of a node, which the server does not answer yet.
    pub(super) async fn with_deletion(api: Api) -> Self {
        let mut rig = Rig::new(api, HOUR);
        let now = rig.driver.clock.now();
        rig.driver.writers.queue.take(order(1, deletion("n1", Version(1))), None, now);
        let running = rig.run();
        settle().await;
        running
    }

    pub(super) fn reload(&self, yaml: &str) {
        self.config.send_replace(Arc::new(Config::parse(yaml).unwrap()));
    }

    pub(super) fn leads(&self, leadership: Leadership) {
        self.leadership.send_replace(leadership);
    }

    pub(super) fn shows(&self, line: &str) -> bool {
        let text = self.metrics.text(&Health::new()).unwrap();
        text.lines().any(|shown| shown == format!("kube_node_ready_{line}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until the loop has done all there is to do.
pub(super) async fn settle() {
    sleep(SECOND).await;
}

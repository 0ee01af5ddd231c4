//! Nodes and pods are read in Kubernetes' binary form by a decoder of this project. Here a real API server is asked for the same
//! objects as JSON and in the binary form, in every way in which the product asks: both must show the same.

mod odd;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response};
use knr_core::config::Config;
use knr_core::feed::{Feed, Kind};
use knr_core::ids::NodeRef;
use knr_core::policy::Policies;
use knr_core::world::{Fact, Reread};
use knr_e2e::{Api as Admin, in_checkout};
use knr_k8s::api::{Api, Namespaces};
use knr_k8s::connect;
use knr_k8s::watch::{Pulse, Watch};
use kube::Client;
use kube::client::Body;
use lab::{Home, Lab, Tool};
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

/// More than two pages of a list.
const MANY: usize = 450;
const LIMIT: Duration = Duration::from_mins(1);
const BINARY: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";
/// The last change that a test makes: what follows is no longer compared.
const LAST: &str = "last";

#[test]
fn an_object_reads_the_same_in_both_forms() -> Result<()> {
    let lab = Lab::builder(&Home::from_env()?, "e2e-protobuf")
        // Between two reads nobody may write.
        .flag(Tool::KubeControllerManager, "--controllers=serviceaccount-controller")
        .temporary()?;
    let admin = Admin::open(&lab.kubeconfig())?;
    let nodes = odd::make(&lab, &admin, MANY)?;
    ensure!(rustls::crypto::ring::default_provider().install_default().is_ok(), "TLS has a provider");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for lists in [Lists::Streamed, Lists::Paged] {
            let json = Reader::open(&lab.kubeconfig(), Form::Json, lists).await?;
            let binary = Reader::open(&lab.kubeconfig(), Form::Binary, lists).await?;
            single_objects_are_equal(&json, &binary, &nodes).await?;
            lists_and_changes_are_equal(&json, &binary, &admin).await?;
            assert_eq!(json.forms(), [JSON]);
            assert!(binary.forms().iter().any(|form| form == BINARY), "{:?}", binary.forms());
        }
        if std::env::var_os("RECORD").is_some() {
            record(&lab.kubeconfig()).await?;
        }
        Ok(())
    })
}

async fn single_objects_are_equal(json: &Reader, binary: &Reader, nodes: &[NodeRef]) -> Result<()> {
    for node in nodes {
        let deadline = Instant::now() + LIMIT;
        let name = node.name.as_str();
        let seen = json.api.own_node(name, deadline).await?;
        assert!(seen.is_some(), "{name} is gone");
        assert_eq!(seen, binary.api.own_node(name, deadline).await?);
        // Lists bear the version of the whole cluster, and leases are renewed all the time.
        let parts = |fact| match fact {
            Fact::Reread(reread) => {
                let Reread { view, worker, .. } = *reread;
                Ok((view, worker))
            }
            other => Err(anyhow::anyhow!("{other:?}")),
        };
        let seen = parts(json.api.reread(node, deadline).await?)?;
        assert_eq!(seen, parts(binary.api.reread(node, deadline).await?)?);
        assert_eq!(json.api.occupancy(node, deadline).await?, binary.api.occupancy(node, deadline).await?);
    }
    let missing = |reader: &Reader| {
        let api = reader.api.clone();
        async move { api.own_node("missing", Instant::now() + LIMIT).await }
    };
    assert_eq!((missing(json).await?, missing(binary).await?), (None, None));
    Ok(())
}

async fn lists_and_changes_are_equal(json: &Reader, binary: &Reader, admin: &Admin) -> Result<()> {
    let config = Config::parse("gates: [{name: cni, namespaces: [default]}]")
        .map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    // Pools are JSON in any case.
    let feeds = Feed::all(&Policies::from(&config)).into_iter().filter(|feed| feed.kind() != Kind::Pools);
    for feed in feeds {
        let (mut by_json, mut by_binary) = (json.follow(feed.clone()), binary.follow(feed));
        let (first, second) = (next(&mut by_json).await?, next(&mut by_binary).await?);
        assert_eq!(all(first)?, all(second)?);
        odd::change(admin, LAST)?;
        let (first, second) = (until_last(&mut by_json).await?, until_last(&mut by_binary).await?);
        assert!(first.len() > 2, "{first:#?}");
        assert_eq!(first, second);
    }
    Ok(())
}

/// The objects of a list, in the order of their names, as text. Where they differ, a person can see in what.
fn all(fact: Fact) -> Result<Vec<String>> {
    fn texts<T: Debug>(objects: &[T]) -> Vec<String> {
        let mut texts: Vec<String> = objects.iter().map(|object| format!("{object:#?}")).collect();
        texts.sort();
        texts
    }
    let texts = match fact {
        Fact::Nodes(nodes, _) => texts(&nodes),
        Fact::Workers(workers, _) => texts(&workers),
        Fact::InitPods(pods, ..) => texts(&pods),
        other => anyhow::bail!("no list: {other:?}"),
    };
    ensure!(texts.len() >= odd::FEW, "{texts:#?}");
    Ok(texts)
}

async fn next(facts: &mut mpsc::Receiver<Fact>) -> Result<Fact> {
    timeout(LIMIT, facts.recv()).await.context("nothing is seen")?.context("the watch has ended")
}

/// All changes up to the removal of the last object.
async fn until_last(facts: &mut mpsc::Receiver<Fact>) -> Result<Vec<Fact>> {
    let mut seen = Vec::new();
    loop {
        let fact = next(facts).await?;
        let is_last = match &fact {
            Fact::NodeGone(node, _) => node.name.as_str() == LAST,
            Fact::WorkerGone(_, node, ..) | Fact::InitPodGone(_, node, ..) => node.as_str() == LAST,
            _ => false,
        };
        seen.push(fact);
        if is_last {
            return Ok(seen);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Json,
    Binary,
}

/// How the server gives lists: older ones do not stream them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lists {
    Streamed,
    Paged,
}

/// The product's own way to read, in one of the forms.
struct Reader {
    api: Api,
    forms: Arc<Mutex<BTreeSet<String>>>,
}

impl Reader {
    async fn open(kubeconfig: &Path, form: Form, lists: Lists) -> Result<Self> {
        let client = connect::client(Some(kubeconfig), "protobuf").await?;
        let forms = Arc::<Mutex<BTreeSet<String>>>::default();
        let seen = Arc::clone(&forms);
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (client, seen) = (client.clone(), Arc::clone(&seen));
            async move {
                let streams = request.uri().query().is_some_and(|query| query.contains("sendInitialEvents"));
                if lists == Lists::Paged && streams {
                    let refusal = json!({ "kind": "Status", "apiVersion": "v1", "code": 400 }).to_string();
                    let refusal = Response::builder().status(400).body(Body::from(refusal.into_bytes()));
                    return refusal.map_err(kube::Error::HttpError);
                }
                if form == Form::Json {
                    request.headers_mut().insert(ACCEPT, http::HeaderValue::from_static(JSON));
                }
                let response = client.send(request).await?;
                let form = response.headers().get(CONTENT_TYPE).and_then(|form| form.to_str().ok());
                let form = form.unwrap_or_default().split(';').next().unwrap_or_default();
                seen.lock().unwrap_or_else(PoisonError::into_inner).insert(form.to_owned());
                Ok(response)
            }
        });
        let namespaces =
            Namespaces { own: "default".into(), workers: "default".into(), lease: "default".into() };
        Ok(Self { api: Api::new(Client::new(service, "default"), namespaces), forms })
    }

    /// The forms in which the server has answered.
    fn forms(&self) -> Vec<String> {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// What a watch of the product sees. It ends with the receiver.
    fn follow(&self, feed: Feed) -> mpsc::Receiver<Fact> {
        let (facts, received) = mpsc::channel(1024);
        let relist = Arc::new(Notify::new());
        let watch = Watch { api: self.api.clone(), feed, facts, pulse: Deaf, relist };
        tokio::spawn(watch.follow());
        received
    }
}

struct Deaf;

impl Pulse for Deaf {
    fn heard(&self) {}

    fn restarted(&self, _: &str) {}
}

/// Keeps answers for the tests that break them in every way.
async fn record(kubeconfig: &Path) -> Result<()> {
    let client = connect::client(Some(kubeconfig), "protobuf").await?;
    let begun = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=2";
    let workers = "labelSelector=app.kubernetes.io/component=worker";
    for (file, path) in [
        ("node", "/api/v1/nodes/full".to_owned()),
        ("nodes", "/api/v1/nodes?limit=6".to_owned()),
        ("pods", format!("/api/v1/namespaces/default/pods?limit=40&{workers}")),
        ("refusal", "/api/v1/nodes/missing".to_owned()),
        ("watch", format!("/api/v1/namespaces/default/pods?{begun}&{workers}")),
    ] {
        let accept = if file == "watch" { format!("{BINARY};stream=watch") } else { BINARY.to_owned() };
        let request = Request::get(path).header(ACCEPT, accept).body(Body::empty())?;
        let answer = client.send(request).await?.into_body().collect_bytes().await?;
        fs_err::write(in_checkout(&format!("crates/k8s/src/protobuf/recorded/{file}.bin")), answer)?;
    }
    Ok(())
}

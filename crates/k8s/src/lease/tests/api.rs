//! An in-process API server that knows one lease and handles it as the real one does.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::StreamExt;
use futures::channel::mpsc;
use futures::stream::BoxStream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::link::{Fault, Link};
use crate::calls::Verb;

type Reply = Response<StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

/// A received request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Came {
    pub(super) at: Instant,
    pub(super) from: String,
    pub(super) verb: Verb,
}

struct Watcher {
    link: Link,
    lines: mpsc::UnboundedSender<String>,
}

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    no_namespace: bool,
    watchers: Vec<Watcher>,
    came: Vec<Came>,
}

/// The API server.
#[derive(Clone, Default)]
pub(super) struct FakeApi(Arc<Mutex<State>>);

impl FakeApi {
    /// Returns a client at the other end of a link.
    pub(super) fn client(&self, link: &Link) -> kube::Client {
        let (api, link) = (self.clone(), link.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            // A request that was sent is carried out even if nobody waits for the answer any more.
            let (answer, answered) = oneshot::channel();
            tokio::spawn(api.clone().serve(link.clone(), request, answer));
            async move {
                match answered.await {
                    Ok(reply) => Ok::<Reply, Infallible>(reply),
                    Err(_lost) => pending().await,
                }
            }
        });
        kube::Client::new(service, "default")
    }

    pub(super) fn lease(&self) -> Option<Value> {
        self.state().lease.clone()
    }

    pub(super) fn spec(&self) -> Value {
        self.lease().map_or(Value::Null, |lease| lease["spec"].clone())
    }

    /// Creates the lease, or replaces its record.
    pub(super) fn put(&self, spec: &Value) {
        let mut state = self.state();
        let lease = json!({"metadata": {"name": "knr"}, "spec": spec});
        if let Some(mut old) = state.lease.clone() {
            old["spec"] = spec.clone();
            state.store(old, "MODIFIED");
        } else {
            state.make(lease);
        }
    }

    /// Changes the lease without changing its record.
    pub(super) fn annotate(&self) {
        let mut state = self.state();
        if let Some(mut lease) = state.lease.clone() {
            lease["metadata"]["annotations"] = json!({"note": state.version.to_string()});
            state.store(lease, "MODIFIED");
        }
    }

    pub(super) fn delete(&self) {
        let mut state = self.state();
        if let Some(lease) = state.lease.take() {
            state.version += 1;
            state.send("DELETED", &lease);
        }
    }

    pub(super) fn close_watches(&self) {
        self.state().watchers.clear();
    }

    /// Keeps the watches open, but sends nothing any more.
    pub(super) fn make_watches_deaf(&self) {
        for watcher in &mut self.state().watchers {
            watcher.link = Link::new("nobody", 0);
            watcher.link.set_cut(true);
        }
    }

    pub(super) fn set_namespace(&self, exists: bool) {
        self.state().no_namespace = !exists;
    }

    pub(super) fn came(&self) -> Vec<Came> {
        self.state().came.clone()
    }

    async fn serve(self, link: Link, request: Request<Body>, answer: oneshot::Sender<Reply>) {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let watch = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let verb = match parts.method {
            Method::GET if watch => Verb::Watch,
            Method::GET => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            other => panic!("unexpected request: {other}"),
        };
        check_target(verb, &parts.uri);
        self.state().came.push(Came { at: Instant::now(), from: link.owner(), verb });
        let (fault, there, back) = link.fault(verb);
        sleep(there).await;
        if let Fault::Late(late) = fault {
            sleep(late).await;
        }
        if link.is_cut() || fault == Fault::Hang {
            return;
        }
        let reply = match fault {
            Fault::Refuse(code) => refusal(code, "refused by the test"),
            Fault::None | Fault::LostAnswer | Fault::Late(_) if link.forbids(verb) => {
                refusal(403, &format!("leases \"knr\" is forbidden: cannot {}", verb.as_str()))
            }
            Fault::None | Fault::LostAnswer | Fault::Late(_) => self.carry_out(verb, &body, &link),
            Fault::Hang => return,
        };
        sleep(back).await;
        if !link.is_cut() && fault != Fault::LostAnswer {
            let _ = answer.send(reply);
        }
    }

    fn carry_out(&self, verb: Verb, body: &[u8], link: &Link) -> Reply {
        let mut state = self.state();
        let sent = || link.to_server(serde_json::from_slice(body).unwrap());
        let outcome = match verb {
            Verb::Watch => return state.watch(link),
            Verb::Get => state.lease.clone().ok_or((404, "leases \"knr\" not found")),
            Verb::Create => state.create(sent()),
            Verb::Update => state.update(sent()),
            Verb::List | Verb::Patch | Verb::Delete => panic!("unexpected verb: {verb:?}"),
        };
        match outcome {
            Ok(lease) => reply(200, &link.to_client(lease)),
            Err((code, message)) => refusal(code, message),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn create(&mut self, lease: Value) -> Result<Value, (u16, &'static str)> {
        if self.no_namespace {
            return Err((404, "namespaces \"default\" not found"));
        }
        if self.lease.is_some() {
            return Err((409, "leases \"knr\" already exists"));
        }
        assert_eq!(lease["metadata"]["resourceVersion"], Value::Null, "a new object has no version");
        Ok(self.make(lease))
    }

    /// Like `Store.Update` of the real one: an update may create a lease, but never replaces one unconditionally.
    fn update(&mut self, lease: Value) -> Result<Value, (u16, &'static str)> {
        let wanted = &lease["metadata"];
        let Some(old) = &self.lease else {
            return if wanted["uid"].is_null() { Ok(self.make(lease)) } else { Err((409, "no such UID")) };
        };
        if wanted["resourceVersion"].is_null() {
            return Err((422, "metadata.resourceVersion: must be specified for an update"));
        }
        let known = &old["metadata"];
        let same_uid = wanted["uid"].is_null() || wanted["uid"] == known["uid"];
        if !same_uid || wanted["resourceVersion"] != known["resourceVersion"] {
            return Err((409, "the object has been modified"));
        }
        if *old == lease {
            return Ok(lease);
        }
        Ok(self.store(lease, "MODIFIED"))
    }

    fn make(&mut self, mut lease: Value) -> Value {
        lease["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        self.store(lease, "ADDED")
    }

    fn store(&mut self, mut lease: Value, event: &str) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        self.send(event, &lease);
        lease
    }

    fn send(&mut self, event: &str, lease: &Value) {
        self.watchers.retain(|watcher| !watcher.lines.is_closed());
        for watcher in &self.watchers {
            watcher.send(event, lease);
        }
    }

    fn watch(&mut self, link: &Link) -> Reply {
        let (lines, received) = mpsc::unbounded();
        let watcher = Watcher { link: link.clone(), lines };
        if let Some(lease) = &self.lease {
            watcher.send("ADDED", lease);
        }
        self.watchers.push(watcher);
        let frames = received.map(|line: String| Ok(Frame::data(Bytes::from(line))));
        Response::new(StreamBody::new(frames.boxed()))
    }
}

impl Watcher {
    fn send(&self, event: &str, lease: &Value) {
        if !self.link.is_cut() {
            let line = json!({"type": event, "object": self.link.to_client(lease.clone())});
            let _ = self.lines.unbounded_send(format!("{line}\n"));
        }
    }
}

/// Asserts that a request is about the right lease only.
fn check_target(verb: Verb, uri: &http::Uri) {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    match verb {
        Verb::Get | Verb::Update => assert_eq!(uri.path(), format!("{leases}/knr")),
        Verb::Create | Verb::Watch => assert_eq!(uri.path(), leases),
        Verb::List | Verb::Patch | Verb::Delete => panic!("unexpected verb: {verb:?}"),
    }
    if verb == Verb::Watch {
        assert!(uri.query().unwrap().contains("fieldSelector=metadata.name%3Dknr"), "{uri}");
    }
}

fn refusal(code: u16, message: &str) -> Reply {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let status =
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message});
    reply(code, &status)
}

fn reply(code: u16, body: &Value) -> Reply {
    let frame = Frame::data(Bytes::from(body.to_string()));
    let frames = futures::stream::once(async move { Ok(frame) }).boxed();
    let mut reply = Response::new(StreamBody::new(frames));
    *reply.status_mut() = StatusCode::from_u16(code).unwrap();
    reply
}

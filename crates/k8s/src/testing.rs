//! A fake API server with scripted answers, for faults that a real one does not produce on demand.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::Value;

use crate::api::{Api, Namespaces};

/// The answer to a request.
pub(crate) enum Answer {
    /// This object.
    Json(u16, Value),
    /// These lines, one after the other; then the connection ends.
    Lines(Vec<Value>),
    /// These lines, and then silence.
    LinesThenSilence(Vec<Value>),
    /// These bytes, in these chunks; then the connection ends.
    Pieces(u16, Vec<Vec<u8>>),
    /// Nothing, ever.
    Silence,
}

/// A request as it was received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) kind: Option<String>,
    pub(crate) body: Value,
}

/// Chooses the answer to a request.
type Rule = dyn Fn(&Received) -> Answer + Send + Sync;

#[derive(Clone, Default)]
pub(crate) struct FakeServer {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    rule: Option<Arc<Rule>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl FakeServer {
    pub(crate) fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        let server = Self::default();
        server.answers.lock().unwrap().extend(answers);
        server
    }

    /// Answers by rule, for requests that arrive in any order.
    pub(crate) fn ruled_by(rule: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        Self { rule: Some(Arc::new(rule)), ..Self::default() }
    }

    pub(crate) fn api(&self) -> Api {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        let namespaces = Namespaces { own: "own".into(), workers: "workers".into(), lease: "own".into() };
        Api::new(kube::Client::new(service, "default"), namespaces)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.received().into_iter().map(|received| received.line).collect()
    }

    async fn answer(
        &self,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let received = Received {
            line: format!("{} {}", parts.method, parts.uri),
            kind: parts.headers.get("content-type").map(|kind| kind.to_str().unwrap().to_owned()),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        let next = match &self.rule {
            Some(rule) => rule(&received),
            None => self.answers.lock().unwrap().pop_front().unwrap_or(Answer::Silence),
        };
        self.received.lock().unwrap().push(received);
        Ok(match next {
            Answer::Json(code, value) => {
                let body = Full::new(Bytes::from(value.to_string())).boxed_unsync();
                Response::builder().status(code).body(body).unwrap()
            }
            Answer::Lines(lines) => Response::new(StreamBody::new(pieces(lines_of(lines))).boxed_unsync()),
            Answer::LinesThenSilence(lines) => {
                let silent = pieces(lines_of(lines)).chain(stream::pending());
                Response::new(StreamBody::new(silent).boxed_unsync())
            }
            Answer::Pieces(code, all) => {
                let body = StreamBody::new(pieces(all)).boxed_unsync();
                Response::builder().status(code).body(body).unwrap()
            }
            Answer::Silence => std::future::pending().await,
        })
    }
}

fn lines_of(lines: Vec<Value>) -> Vec<Vec<u8>> {
    lines.into_iter().map(|line| format!("{line}\n").into_bytes()).collect()
}

fn pieces(all: Vec<Vec<u8>>) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    stream::iter(all).map(|piece| Ok(Frame::data(Bytes::from(piece))))
}

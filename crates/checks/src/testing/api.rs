//! An HTTP server that acts as an API server, or any other.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures::future::pending;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Config;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::{Authority, listen};
use crate::api::ApiAccess;

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Json(u16, Value),
    Text(u16, String),
    /// The head of an answer and this many bytes of its body, and then nothing more.
    Stuck(usize),
    Silence,
}

impl Answer {
    pub(crate) fn status(code: u16, message: &str) -> Self {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": message});
        Self::Json(code, status)
    }
}

/// The server, and the requests that it received.
pub(crate) struct FakeApi {
    pub(crate) address: SocketAddr,
    authority: Option<Authority>,
    asked: Arc<Mutex<Vec<String>>>,
}

type Decide = Arc<dyn Fn(&str) -> Answer + Send + Sync>;

impl FakeApi {
    /// Serves over TLS, with a certificate for its address.
    pub(crate) async fn start(decide: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::named("127.0.0.1", decide).await
    }

    /// Serves over TLS, with a certificate for a name.
    pub(crate) async fn named(name: &str, decide: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let authority = Authority::new();
        let acceptor = authority.acceptor(name);
        Self::serve(Some((authority, acceptor)), Arc::new(decide)).await
    }

    /// Serves without TLS.
    pub(crate) async fn plain(decide: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(None, Arc::new(decide)).await
    }

    async fn serve(tls: Option<(Authority, TlsAcceptor)>, decide: Decide) -> Self {
        let (listener, address) = listen().await;
        let (authority, acceptor) = tls.unzip();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, decide, log) = (acceptor.clone(), decide.clone(), log.clone());
                tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                converse(stream, decide, log).await;
                            }
                        }
                        None => converse(stream, decide, log).await,
                    }
                });
            }
        });
        Self { address, authority, asked }
    }

    /// Returns method, path and user of each request so far, and whether it was larger than any packet.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Returns the configuration of a pod with a token.
    pub(crate) fn config(&self) -> Config {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let mut config = Config::new(format!("{scheme}://{}", self.address).parse().unwrap());
        config.root_cert = self.authority.as_ref().map(|authority| vec![authority.certificate.clone()]);
        config.auth_info.token = Some("secret".to_owned().into());
        config
    }

    pub(crate) fn access(&self) -> ApiAccess {
        ApiAccess::Config(Box::new(self.config()))
    }
}

async fn converse(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    decide: Decide,
    log: Arc<Mutex<Vec<String>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (decide, log) = (decide.clone(), log.clone());
        async move {
            let path = request.uri().to_string();
            let user =
                request.headers().get("authorization").map_or("nobody", |value| value.to_str().unwrap());
            let bytes: usize = request.headers().values().map(HeaderValue::len).sum();
            let size = if bytes > 9_000 { " large" } else { "" };
            log.lock().unwrap().push(format!("{} {path} {user}{size}", request.method()));
            Ok::<_, Infallible>(match decide(&path) {
                Answer::Json(code, value) => whole(code, value.to_string()),
                Answer::Text(code, text) => whole(code, text),
                Answer::Stuck(bytes) => stuck(bytes),
                Answer::Silence => pending().await,
            })
        }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    let _ = server.max_buf_size(64 * 1024).serve_connection(TokioIo::new(stream), service).await;
}

fn whole(code: u16, text: String) -> Response<BoxBody<Bytes, Infallible>> {
    let body = if text.is_empty() { Empty::new().boxed() } else { Full::from(text).boxed() };
    Response::builder().status(code).body(body).unwrap()
}

fn stuck(bytes: usize) -> Response<BoxBody<Bytes, Infallible>> {
    let first = futures::stream::iter([Ok(Frame::data(Bytes::from(vec![b'x'; bytes])))]);
    let body = StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending()));
    Response::new(BodyExt::boxed(body))
}

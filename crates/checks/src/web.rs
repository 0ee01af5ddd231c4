//! HTTP over one connection, which is opened for it step by step.

use std::sync::Arc;

use http::header::{HOST, HeaderName, HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, timeout_at};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use crate::api::ApiAccess;
use crate::check::{Kind, Trouble, span};
use crate::net::{self, Stream};

/// The maximum part of an answer that is read.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// Four of these exceed the largest packet of any usual network, and are still few enough for any server.
const PADDING: [&str; 4] = ["x-padding-1", "x-padding-2", "x-padding-3", "x-padding-4"];
const PADDING_BYTES: usize = 4000;

/// Returns the user agent.
pub(crate) fn agent() -> HeaderValue {
    let name = format!("kube-node-ready-worker/{}", knr_core::VERSION);
    HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static("kube-node-ready-worker"))
}

/// The size of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

impl Size {
    /// Adds headers that give a request this size.
    pub(crate) fn pad(self, headers: &mut HeaderMap) {
        let padding = match self {
            Self::Small => return,
            Self::Large => HeaderValue::from_str(&"x".repeat(PADDING_BYTES)),
        };
        for name in PADDING {
            headers.extend(padding.iter().map(|value| (HeaderName::from_static(name), value.clone())));
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) bytes: usize,
}

/// Fetches a URL once, over a new connection.
pub(crate) async fn fetch(
    url: &str,
    size: Size,
    tls: Trust<'_>,
    deadline: Instant,
) -> Result<Answer, Trouble> {
    let uri: Uri = url.parse().map_err(|error| Trouble::new(Kind::Io, format!("{url}: {error}")))?;
    let host = uri.host().unwrap_or_default();
    let is_secure = uri.scheme() == Some(&Scheme::HTTPS);
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let stream = net::dial(host, port, deadline).await?;
    let peer = peer(&stream, host, port);
    let stream: Box<dyn Stream> = if is_secure {
        Box::new(net::secure(stream, &peer, host, tls.config(&uri)?, deadline).await?)
    } else {
        Box::new(stream)
    };
    let mut sender = open(stream, &peer, deadline).await?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = uri;
    request.headers_mut().insert(USER_AGENT, agent());
    size.pad(request.headers_mut());
    origin_form(&mut request);
    let start = Instant::now();
    match timeout_at(deadline, sender.send_request(request)).await {
        Ok(Ok(response)) => read(response, url, deadline).await,
        Ok(Err(error)) => Err(hyper_trouble(&error, url)),
        Err(_) => Err(no_answer(url, start)),
    }
}

/// Returns host and port, and the address if it is not the host.
pub(crate) fn peer(stream: &tokio::net::TcpStream, host: &str, port: u16) -> String {
    match stream.peer_addr() {
        Ok(address) if address.ip().to_string() != net::unbracketed(host) => {
            format!("{host}:{port} ({address})")
        }
        Ok(_) | Err(_) => format!("{host}:{port}"),
    }
}

/// Which certificates are trusted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trust<'a> {
    /// Those of the image, or Mozilla's if it has none, and those of the cluster if it is known.
    Authorities(&'a ApiAccess),
    /// Any.
    Any,
}

impl Trust<'_> {
    fn config(self, uri: &Uri) -> Result<Arc<ClientConfig>, Trouble> {
        let trouble = |error: &dyn std::fmt::Display| Trouble::new(Kind::Tls, format!("{uri}: {error}"));
        let authorities = match self {
            Self::Authorities(api) => api.authorities(),
            Self::Any => {
                install_provider();
                let mut config = kube::Config::new(uri.clone());
                config.root_cert = Some(Vec::new());
                config.accept_invalid_certs = true;
                return config.rustls_client_config().map(Arc::new).map_err(|error| trouble(&error));
            }
        };
        let mut roots = public(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(authorities.iter().map(|der| der.as_slice().into()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map(|builder| Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
            .map_err(|error| trouble(&error))
    }
}

/// Returns the authorities that the image trusts. The default image contains nothing but the program, which brings
/// Mozilla's.
fn public(of_image: Vec<CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // A certificate that cannot be parsed is ignored: whatever it signed is not trusted.
    roots.add_parsable_certificates(of_image);
    if roots.is_empty() {
        roots.add_parsable_certificates(TLS_SERVER_ROOT_CERTS.iter().cloned());
    }
    roots
}

/// Installs a default crypto provider, which the Kubernetes client requires.
pub(crate) fn install_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails only if another thread was faster, and then there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Opens an HTTP/1.1 client on a connection.
pub(crate) async fn open<B>(
    stream: Box<dyn Stream>,
    peer: &str,
    deadline: Instant,
) -> Result<SendRequest<B>, Trouble>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let start = Instant::now();
    match timeout_at(deadline, http1::handshake(TokioIo::new(stream))).await {
        Ok(Ok((sender, connection))) => {
            // The requests on the connection report its errors.
            tokio::spawn(async move { drop(connection.await) });
            Ok(sender)
        }
        Ok(Err(error)) => Err(hyper_trouble(&error, peer)),
        Err(_) => Err(no_answer(peer, start)),
    }
}

/// Sets the request to origin form: only the path in the request line, and the host in a header.
pub(crate) fn origin_form<B>(request: &mut Request<B>) {
    if let Some(host) = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
}

/// Reads an answer to its end, or up to [`MAX_BODY`].
pub(crate) async fn read<B>(response: Response<B>, url: &str, deadline: Instant) -> Result<Answer, Trouble>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    let (start, status) = (Instant::now(), response.status());
    let mut body = response.into_body();
    let mut bytes = 0;
    while bytes < MAX_BODY {
        match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => bytes += frame.data_ref().map_or(0, hyper::body::Buf::remaining),
            Ok(Some(Err(error))) => {
                return Err(Trouble::new(
                    Kind::Closed,
                    format!("{url}: broke off after {bytes} bytes: {error}"),
                ));
            }
            Ok(None) => break,
            Err(_) => {
                let waited = span(start.elapsed());
                let detail = format!("{url}: the answer stopped after {bytes} bytes, waited {waited}");
                return Err(Trouble::new(Kind::AnswerLost, detail));
            }
        }
    }
    Ok(Answer { status, bytes })
}

pub(crate) fn no_answer(what: &str, start: Instant) -> Trouble {
    Trouble::new(Kind::NoAnswer, format!("{what}: connected, but no answer after {}", span(start.elapsed())))
}

/// Returns the kind of failure for an unexpected status.
pub(crate) const fn kind_of_status(status: u16) -> Kind {
    match status {
        429 | 503 | 504 => Kind::Busy,
        500..=599 => Kind::ServerError,
        _ => Kind::BadStatus,
    }
}

pub(crate) fn hyper_trouble(error: &hyper::Error, what: &str) -> Trouble {
    if error.is_parse() {
        return Trouble::new(Kind::BadAnswer, format!("{what}: not HTTP: {error}"));
    }
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return net::io_trouble(io, &format!("{what}: connection"));
        }
        source = inner.source();
    }
    Trouble::new(Kind::Closed, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_the_path_alone() {
        let form = |uri: &str| {
            let mut request = Request::new(());
            *request.uri_mut() = uri.parse().unwrap();
            origin_form(&mut request);
            (request.uri().to_string(), request.headers()[HOST].to_str().unwrap().to_owned())
        };
        assert_eq!(form("https://a.example:8443/b?c"), ("/b?c".to_owned(), "a.example:8443".to_owned()));
        assert_eq!(form("http://[::1]"), ("/".to_owned(), "[::1]".to_owned()));
    }

    #[test]
    fn an_image_without_authorities_trusts_those_of_browsers_and_another_one_its_own_alone() {
        assert_eq!(public(Vec::new()).len(), TLS_SERVER_ROOT_CERTS.len());
        assert_eq!(public(vec![TLS_SERVER_ROOT_CERTS[0].clone()]).len(), 1);
    }

    #[test]
    fn a_large_request_is_larger_than_any_packet() {
        let bytes = |size: Size| {
            let mut headers = HeaderMap::new();
            size.pad(&mut headers);
            headers.values().map(HeaderValue::len).sum::<usize>()
        };
        assert_eq!(bytes(Size::Small), 0);
        assert!(bytes(Size::Large) > 9001);
    }
}

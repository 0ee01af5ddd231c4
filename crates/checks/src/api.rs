//! The connection to the API server, step by step: a check that hangs must be able to report where.

use std::path::Path;
use std::sync::Arc;
use std::task::{self, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::uri::Scheme;
use http::{Request, Response};
use http_body_util::Limited;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use kube::Client;
use kube::client::{Body, ConfigExt};
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Service, ServiceBuilder};

use crate::check::{Kind, Outcome, Trouble};
use crate::net::{self, Stream};
use crate::web::{self, Answer, Size};

/// The size of a list of slices of a very large Service; see `cluster.rs` for how many are requested.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// The variable with the host of the API server, which every pod has.
pub(crate) const HOST_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";
/// The variable with its port.
pub(crate) const PORT_VARIABLE: &str = "KUBERNETES_SERVICE_PORT";

/// The address of the API server, and the credentials for it.
#[derive(Debug)]
pub enum ApiAccess {
    /// A usable configuration.
    Config(Box<Config>),
    /// There is none, for this reason. Checks that need one are skipped.
    Missing(String),
    /// There should be one, but it cannot be used. Checks that need one fail.
    Broken(String),
}

impl ApiAccess {
    /// For a worker: a given kubeconfig, the service account of the pod, or what kubectl would use. One is required.
    pub async fn for_worker(kubeconfig: Option<&Path>) -> Self {
        match Self::for_person(kubeconfig).await {
            Self::Missing(why) => Self::Broken(why),
            found => found,
        }
    }

    /// For a manual run: a given kubeconfig, the service account of a pod, or what kubectl would use.
    pub async fn for_person(kubeconfig: Option<&Path>) -> Self {
        let read = match kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None if std::env::var_os(HOST_VARIABLE).is_some() => return Self::for_pod(),
            None => Kubeconfig::read(),
        };
        let options = KubeConfigOptions::default();
        match read {
            Ok(found) => Config::from_custom_kubeconfig(found, &options).await.map_or_else(
                |error| Self::Broken(format!("the kubeconfig cannot be used: {error}")),
                Self::by,
            ),
            Err(KubeconfigError::ReadConfig(error, path))
                if kubeconfig.is_none() && error.kind() == std::io::ErrorKind::NotFound =>
            {
                Self::Missing(format!("there is no kubeconfig at {}", path.display()))
            }
            Err(KubeconfigError::FindPath) => Self::Missing("there is no kubeconfig".to_owned()),
            Err(error) => Self::Broken(format!("the kubeconfig cannot be used: {error}")),
        }
    }

    fn for_pod() -> Self {
        Config::incluster().map_or_else(
            |error| Self::Broken(format!("the service account of the pod cannot be used: {error}")),
            Self::by,
        )
    }

    fn by(config: Config) -> Self {
        Self::Config(Box::new(config))
    }

    /// Returns the certificates of the cluster's own authorities.
    pub(crate) fn authorities(&self) -> &[Vec<u8>] {
        match self {
            Self::Config(config) => config.root_cert.as_deref().unwrap_or_default(),
            Self::Missing(_) | Self::Broken(_) => &[],
        }
    }

    /// Connects over TCP, TLS and HTTP, each with its own kind of failure.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<Api, Outcome> {
        match self {
            Self::Config(config) => Ok(connect(config, deadline).await?),
            Self::Missing(why) => Err(Outcome::Skipped(why.clone())),
            Self::Broken(why) => Err(Trouble::new(Kind::NoAccess, why.clone()).into()),
        }
    }
}

/// One connection to the API server, with a deadline.
pub(crate) struct Api {
    client: Client,
    peer: String,
    deadline: Instant,
}

async fn connect(config: &Config, deadline: Instant) -> Result<Api, Trouble> {
    let no_access = |error: &dyn std::fmt::Display| Trouble::new(Kind::NoAccess, error.to_string());
    if let Some(proxy) = &config.proxy_url {
        return Err(no_access(&format!("the kubeconfig asks for the proxy {proxy}, which is not supported")));
    }
    let url = &config.cluster_url;
    let host = url.host().unwrap_or_default();
    let is_plain = url.scheme() == Some(&Scheme::HTTP);
    let port = url.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
    let stream = net::dial(host, port, deadline).await?;
    let peer = web::peer(&stream, host, port);
    let stream: Box<dyn Stream> = if is_plain {
        Box::new(stream)
    } else {
        web::install_provider();
        let tls = Arc::new(config.rustls_client_config().map_err(|error| no_access(&error))?);
        let name = config.tls_server_name.as_deref().unwrap_or(host);
        Box::new(net::secure(stream, &peer, name, tls, deadline).await?)
    };
    let sender = web::open(stream, &peer, deadline).await?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(|error| no_access(&error))?)
        .layer(config.extra_headers_layer().map_err(|error| no_access(&error))?)
        .map_err(BoxError::from)
        .service(OneConnection(Arc::new(Mutex::new(sender))));
    Ok(Api { client: Client::new(service, config.default_namespace.clone()), peer, deadline })
}

impl Api {
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Waits for an answer. `what` describes the request.
    pub(crate) async fn ask<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Trouble> {
        let start = Instant::now();
        match timeout_at(self.deadline, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.trouble(&error, what)),
            Err(_) => Err(web::no_answer(&format!("{what} at {}", self.peer), start)),
        }
    }

    /// Fetches a page, whatever its status.
    pub(crate) async fn fetch(&self, path: &'static str, size: Size) -> Result<Answer, Trouble> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static(path);
        size.pad(request.headers_mut());
        let response = self.ask(&format!("GET {path}"), self.client.send(request)).await?;
        web::read(response, &format!("GET {path} at {}", self.peer), self.deadline).await
    }

    fn trouble(&self, error: &kube::Error, what: &str) -> Trouble {
        let at = format!("{what} at {}", self.peer);
        match error {
            kube::Error::Api(status) => {
                let kind = match status.code {
                    401 => Kind::Unauthorized,
                    403 => Kind::Forbidden,
                    404 => Kind::NotFound,
                    other => web::kind_of_status(other),
                };
                Trouble::new(kind, format!("{at}: {} {}", status.code, status.message))
            }
            kube::Error::HyperError(error) => web::hyper_trouble(error, &at),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                Trouble::new(Kind::BadAnswer, format!("{at}: {error}"))
            }
            kube::Error::Auth(error) => Trouble::new(Kind::NoAccess, format!("{at}: {error}")),
            other => from_layers(other, &at),
        }
    }
}

/// Every API server serves the requested resource, so a peer that answers 404 is not an API server.
pub(crate) fn always_served(trouble: Trouble) -> Trouble {
    match trouble.kind {
        Kind::NotFound => Trouble { kind: Kind::BadStatus, ..trouble },
        _ => trouble,
    }
}

/// The layers around a connection wrap its errors, to any depth.
fn from_layers(error: &kube::Error, at: &str) -> Trouble {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(error) = inner.downcast_ref::<hyper::Error>() {
            return web::hyper_trouble(error, at);
        }
        if let Some(error) = inner.downcast_ref::<kube::client::AuthError>() {
            return Trouble::new(Kind::NoAccess, format!("{at}: {error}"));
        }
        source = inner.source();
    }
    Trouble::new(Kind::BadAnswer, format!("{at}: {error}"))
}

/// Sends everything over one connection, one request after the other.
#[derive(Clone)]
struct OneConnection(Arc<Mutex<SendRequest<Body>>>);

impl Service<Request<Body>> for OneConnection {
    type Response = Response<Limited<Incoming>>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().insert(USER_AGENT, web::agent());
        web::origin_form(&mut request);
        let connection = self.0.clone();
        async move {
            let mut sender = connection.lock().await;
            sender.ready().await?;
            let answer = sender.send_request(request);
            drop(sender);
            Ok(answer.await?.map(|body| Limited::new(body, MAX_ANSWER)))
        }
        .boxed()
    }
}

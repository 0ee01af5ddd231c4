//! The connection to the API server.

mod wire;

use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tower::{BoxError, ServiceBuilder, ServiceExt};

use wire::Wire;

const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no connection to be had.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {path} cannot be used: {error}")]
    Kubeconfig {
        /// Which one.
        path: String,
        /// Why.
        error: kube::config::KubeconfigError,
    },
    /// There is neither a service account nor a kubeconfig.
    #[error(
        "there is no way to the API server: this is no pod with a service account, and there is no kubeconfig; give one with \
         --kubeconfig, or set KUBECONFIG ({0})"
    )]
    Nowhere(String),
    /// The settings do not make a client.
    #[error("no client can be made of these settings: {0}")]
    Client(#[from] kube::Error),
}

/// A client. `agent` is how it calls itself to the API server, whose audit log then tells replicas apart.
///
/// It never sends a request a second time by itself: what a request did is for the rules to find out.
pub async fn client(kubeconfig: Option<&Path>, agent: &str) -> Result<kube::Client, ConnectError> {
    let mut config = settings(kubeconfig).await?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    if let Ok(agent) = HeaderValue::from_str(agent) {
        config.headers.push((USER_AGENT, agent));
    }
    Ok(assembled(config)?)
}

/// What the library would make of these settings, but for the way in which connections are read.
fn assembled(config: Config) -> kube::Result<kube::Client> {
    if config.proxy_url.is_some() {
        // It says that it knows no proxies.
        return kube::Client::try_from(config);
    }
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    let https = config.rustls_https_connector_with_connector(http.map_response(Wire::from))?;
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(kube::Client::new(service, config.default_namespace))
}

/// An explicit kubeconfig, else the service account of the pod, else what kubectl would use.
async fn settings(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions::default();
    if let Some(path) = kubeconfig {
        let fail = |error| ConnectError::Kubeconfig { path: path.display().to_string(), error };
        let kubeconfig = Kubeconfig::read_from(path).map_err(fail)?;
        return Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(fail);
    }
    match Config::incluster() {
        Ok(config) => Ok(config),
        Err(_) => {
            Config::from_kubeconfig(&options).await.map_err(|error| ConnectError::Nowhere(error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one request after the other on one connection, with bodies of these sizes, until it has seen a request for
    /// each.
    async fn answer(listener: TcpListener, sizes: Vec<usize>) {
        let (mut stream, _) = listener.accept().await.unwrap();
        for size in sizes {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n");
            stream.write_all(&[head.into_bytes(), body(size)].concat()).await.unwrap();
        }
    }

    fn body(size: usize) -> Vec<u8> {
        (b'a'..=b'z').cycle().take(size).collect()
    }

    #[tokio::test]
    async fn answers_of_any_size_come_whole_by_one_connection() {
        let sizes = [0, 1, 4096, 32 << 10, (32 << 10) + 1, 1 << 20, 7];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(answer(listener, sizes.to_vec()));
        let client = assembled(Config::new(url.parse().unwrap())).unwrap();
        for size in sizes {
            let text = client.request_text(Request::new(Vec::new())).await.unwrap();
            assert!(text.as_bytes() == body(size), "{size} bytes");
        }
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_proxy_is_not_passed_by() {
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        config.proxy_url = Some("http://127.0.0.1:2".parse().unwrap());
        assert!(matches!(assembled(config), Err(kube::Error::ProxyProtocolDisabled { .. })));
    }
}

//! The connection to the API server.

use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

const CONNECT: Duration = Duration::from_secs(10);

/// Why no client can be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {path} cannot be used: {error}")]
    Kubeconfig {
        /// Its path.
        path: String,
        /// The cause.
        error: kube::config::KubeconfigError,
    },
    /// There is neither a service account nor a kubeconfig.
    #[error(
        "there is no way to the API server: this is no pod with a service account, and there is no kubeconfig; give one with \
         --kubeconfig, or set KUBECONFIG ({0})"
    )]
    Nowhere(String),
    /// No client can be created from the settings.
    #[error("no client can be made of these settings: {0}")]
    Client(#[from] kube::Error),
}

/// Creates a client. `agent` is its user agent, by which the audit log of the API server tells replicas apart.
///
/// It never retries a request by itself: the rules find out what a request has done.
pub async fn client(kubeconfig: Option<&Path>, agent: &str) -> Result<kube::Client, ConnectError> {
    let mut config = settings(kubeconfig).await?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    if let Ok(agent) = HeaderValue::from_str(agent) {
        config.headers.push((USER_AGENT, agent));
    }
    Ok(kube::Client::try_from(config)?)
}

/// Uses an explicit kubeconfig, else the service account of the pod, else what kubectl would use.
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

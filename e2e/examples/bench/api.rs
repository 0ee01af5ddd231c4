//! The API server, through the client that the product uses: the baseline differs in what it does, not in how.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::core::WatchEvent;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::time::timeout;

pub(crate) const JSON: &str = "application/json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// No request may take longer.
const LIMIT: Duration = Duration::from_secs(30);

/// The API server, as a cluster administrator sees it.
#[derive(Clone)]
pub(crate) struct Api {
    client: kube::Client,
}

impl Api {
    /// `agent` is the user agent in the audit log.
    pub(crate) async fn open(kubeconfig: &Path, agent: &str) -> Result<Self> {
        Ok(Self { client: knr_k8s::connect::client(Some(kubeconfig), agent).await? })
    }

    /// Reads an object or a list.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.send("GET", path, JSON, &Value::Null).await
    }

    /// Creates an object; `path` is that of its list.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.send::<IgnoredAny>("POST", path, JSON, object).await.map(drop)
    }

    /// Changes an object; `kind` is the content type of the patch.
    pub(crate) async fn patch(&self, path: &str, kind: &str, change: &Value) -> Result<()> {
        self.send::<IgnoredAny>("PATCH", path, kind, change).await.map(drop)
    }

    /// Deletes an object, or all objects of a list, without a grace period.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let now = serde_json::json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        self.send::<IgnoredAny>("DELETE", path, JSON, &now).await.map(drop)
    }

    /// Follows the changes of a list; `path` has a query already.
    pub(crate) async fn watch<T>(&self, path: &str) -> Result<BoxStream<'static, Result<WatchEvent<T>>>>
    where
        T: DeserializeOwned + Clone + Send + 'static,
    {
        let request = http::Request::get(format!("{path}&watch=1&allowWatchBookmarks=true"));
        let request = request.header(http::header::ACCEPT, JSON).body(Vec::new())?;
        let events = timeout(LIMIT, self.client.request_events(request)).await??;
        Ok(events.map(|event| Ok(event?)).boxed())
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<T> {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request = http::Request::builder().method(method).uri(path);
        let request =
            request.header(http::header::ACCEPT, JSON).header(http::header::CONTENT_TYPE, kind).body(body)?;
        let story = || format!("{method} {path}");
        timeout(LIMIT, self.client.request(request)).await.with_context(story)?.with_context(story)
    }
}

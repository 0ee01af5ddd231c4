//! One request to the API server: its target, its deadline and its result.

use std::iter::successors;

use futures::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use hyper_util::client::legacy::Error;
use knr_core::config::Config;
use kube::core::{Status, WatchEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::answer::{events, whole};
use crate::calls::{Call, Place, Verb};

/// The namespace of events about objects that have none.
pub(crate) const NODE_EVENTS: &str = "default";

/// The namespaces of an installation's own objects.
#[derive(Debug, Clone)]
pub struct Namespaces {
    /// The namespace of the controller.
    pub own: String,
    /// The namespace of the workers.
    pub workers: String,
    /// The namespace of the lease.
    pub lease: String,
}

impl Namespaces {
    /// Returns the namespaces for a controller that runs in `own`.
    #[must_use]
    pub fn of(config: &Config, own: &str) -> Self {
        let lease = match config.leader_election.lease_namespace.as_str() {
            "" => own,
            lease => lease,
        };
        Self { own: own.to_owned(), workers: config.worker.namespace.clone(), lease: lease.to_owned() }
    }
}

/// A client of the API server.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    namespaces: Namespaces,
}

/// The target of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Target<'a> {
    /// The name of an object.
    pub(crate) name: Option<&'a str>,
    /// A namespace other than the one that the call implies.
    pub(crate) namespace: Option<&'a str>,
    /// The query, encoded.
    pub(crate) query: &'a str,
}

impl<'a> Target<'a> {
    pub(crate) fn named(name: &'a str) -> Self {
        Self { name: Some(name), ..Self::default() }
    }

    pub(crate) fn query(query: &'a str) -> Self {
        Self { query, ..Self::default() }
    }
}

/// The body of a request.
#[derive(Debug)]
pub(crate) enum Body<'a, T: Serialize = ()> {
    Nothing,
    Json(&'a T),
    JsonPatch(&'a T),
    StrategicMerge(&'a T),
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The API server answered with an error.
    #[error("{}", message(.0))]
    Status(Box<Status>),
    /// The API server was never reached.
    #[error("no connection to the API server: {0}")]
    NoConnection(String),
    /// It is unknown whether the request was carried out.
    #[error("no answer from the API server: {0}")]
    NoAnswer(String),
    /// The answer cannot be parsed.
    #[error("the API server's answer cannot be read: {0}")]
    Unreadable(String),
}

fn message(status: &Status) -> String {
    let said = if status.message.is_empty() { &status.reason } else { &status.message };
    format!("{} ({})", said, status.code)
}

impl Failed {
    /// Returns the HTTP status, if there was one.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.code),
            Self::NoConnection(_) | Self::NoAnswer(_) | Self::Unreadable(_) => None,
        }
    }
}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        if is_connect(&error) { Self::NoConnection(story(&error)) } else { Self::NoAnswer(story(&error)) }
    }
}

/// Returns whether the connection itself failed, so that the request cannot have been carried out.
fn is_connect(error: &kube::Error) -> bool {
    causes(error).any(|cause| cause.downcast_ref::<Error>().is_some_and(Error::is_connect))
}

/// Returns the causes of an error, the nearest first.
pub(crate) fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    successors(error.source(), |cause| cause.source())
}

/// Returns an error with its causes, without repetition.
pub(crate) fn story(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error).map(ToString::to_string).fold(error.to_string(), |so_far, text| {
        if so_far.contains(&text) { so_far } else { format!("{so_far}: {text}") }
    })
}

impl Api {
    /// Creates a client for an installation in these namespaces.
    #[must_use]
    pub fn new(client: kube::Client, namespaces: Namespaces) -> Self {
        Self { client, namespaces }
    }

    /// Returns the underlying client.
    #[must_use]
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Returns the namespaces.
    #[must_use]
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn send<B: Serialize, T: DeserializeOwned>(
        &self,
        call: Call,
        target: Target<'_>,
        body: Body<'_, B>,
        deadline: Instant,
    ) -> Result<T, Failed> {
        let request = self.request(call, target, &body)?;
        ask(&self.client, request, deadline).await
    }

    /// Sends a request without a body and reads the answer.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        call: Call,
        target: Target<'_>,
        deadline: Instant,
    ) -> Result<T, Failed> {
        self.send(call, target, Body::<()>::Nothing, deadline).await
    }

    /// Opens a watch.
    pub(crate) async fn watch<T>(
        &self,
        call: Call,
        target: Target<'_>,
        deadline: Instant,
    ) -> Result<BoxStream<'static, Result<WatchEvent<T>, Failed>>, Failed>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let request = self.request(call, target, &Body::<()>::Nothing)?;
        in_time(async { events(self.client.send(request).await?).await }, deadline).await
    }

    fn request<B: Serialize>(
        &self,
        call: Call,
        target: Target<'_>,
        body: &Body<'_, B>,
    ) -> Result<http::Request<kube::client::Body>, Failed> {
        let (kind, body) = encode(body).map_err(|error| Failed::Unreadable(error.to_string()))?;
        let path = self.path(call, target);
        tracing::trace!(?call, path, "request");
        let mut request = http::Request::builder()
            .method(call.rule().verb.method())
            .uri(path)
            .header(ACCEPT, "application/json");
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, kind);
        }
        request.body(body.into()).map_err(|error| Failed::Unreadable(error.to_string()))
    }

    fn path(&self, call: Call, target: Target<'_>) -> String {
        let rule = call.rule();
        let mut path = match rule.group {
            "" => format!("/api/{}", rule.version),
            group => format!("/apis/{group}/{}", rule.version),
        };
        let implied = match rule.place {
            Place::Cluster | Place::Gates => None,
            Place::Workers => Some(self.namespaces.workers.as_str()),
            Place::Own => Some(self.namespaces.own.as_str()),
            Place::Lease => Some(self.namespaces.lease.as_str()),
            Place::NodeEvents => Some(NODE_EVENTS),
        };
        let parts = [
            target.namespace.or(implied).map(|namespace| format!("/namespaces/{namespace}")),
            Some(format!("/{}", rule.plural())),
            target.name.map(|name| format!("/{}", encoded(name))),
            rule.part().map(|part| format!("/{part}")),
        ];
        path.extend(parts.into_iter().flatten());
        let query = match (rule.verb, target.query) {
            (Verb::Watch, "") => "watch=1".to_owned(),
            (Verb::Watch, query) => format!("watch=1&{query}"),
            (_, query) => query.to_owned(),
        };
        if query.is_empty() { path } else { format!("{path}?{query}") }
    }
}

fn encode<B: Serialize>(body: &Body<'_, B>) -> serde_json::Result<(Option<&'static str>, Vec<u8>)> {
    let (kind, value) = match *body {
        Body::Nothing => return Ok((None, Vec::new())),
        Body::Json(value) => ("application/json", value),
        Body::JsonPatch(value) => ("application/json-patch+json", value),
        Body::StrategicMerge(value) => ("application/strategic-merge-patch+json", value),
    };
    // Large enough for most requests without reallocation.
    let mut text = Vec::with_capacity(2048);
    serde_json::to_writer(&mut text, value)?;
    Ok((Some(kind), text))
}

/// Sends a request and reads the answer.
pub(crate) async fn ask<T: DeserializeOwned>(
    client: &kube::Client,
    request: http::Request<kube::client::Body>,
    deadline: Instant,
) -> Result<T, Failed> {
    in_time(async { whole(client.send(request).await?).await }, deadline).await
}

/// Waits for an answer until the deadline. Nothing is sent once the deadline has passed.
async fn in_time<T>(call: impl Future<Output = Result<T, Failed>>, deadline: Instant) -> Result<T, Failed> {
    if deadline <= Instant::now() {
        return Err(Failed::NoConnection("there was no time left to send the request".to_owned()));
    }
    match timeout_at(deadline, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Failed::NoAnswer("none came in time".to_owned())),
    }
}

/// Encodes a text for a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

//! The four requests about the lease. Each has a timeout, except the watch.

use std::future::Future;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{ObjectMeta, PostParams, WatchEvent, WatchParams};
use tokio::time::{Instant, timeout_at};

use super::error::{Cause, LeaseError};
use crate::calls::Verb;

/// The events of a watch.
pub(super) type Events = BoxStream<'static, Result<WatchEvent<Lease>, kube::Error>>;

/// Requests about one lease.
#[derive(Clone)]
pub(super) struct LeaseCalls {
    api: Api<Lease>,
    namespace: String,
    name: String,
    patience: Duration,
}

impl LeaseCalls {
    /// No request takes longer than `patience`, so that a request that hangs leaves time for another.
    pub(super) fn new(client: kube::Client, namespace: String, name: String, patience: Duration) -> Self {
        Self { api: Api::namespaced(client, &namespace), namespace, name, patience }
    }

    /// Reads the lease, if there is one.
    pub(super) async fn get(&self, limit: Instant) -> Result<Option<Lease>, LeaseError> {
        self.bounded(Verb::Get, limit, self.api.get_opt(&self.name)).await
    }

    /// Creates the lease.
    pub(super) async fn create(&self, spec: LeaseSpec, limit: Instant) -> Result<Lease, LeaseError> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(spec) };
        self.bounded(Verb::Create, limit, self.api.create(&PostParams::default(), &lease)).await
    }

    /// Replaces the record in `known`. The request carries the metadata of `known`: the resource version, so that no
    /// other record is replaced, and the UID, because an update without a UID creates a lease that does not exist.
    pub(super) async fn replace(
        &self,
        known: &Lease,
        spec: LeaseSpec,
        limit: Instant,
    ) -> Result<Lease, LeaseError> {
        let lease = Lease { metadata: known.metadata.clone(), spec: Some(spec) };
        let params = PostParams::default();
        self.bounded(Verb::Update, limit, self.api.replace(&self.name, &params, &lease)).await
    }

    /// Watches the lease, beginning with its current state. Version 0 means whatever the API server has in its cache,
    /// which may be a little old. That only costs time.
    pub(super) fn watch(&self) -> Events {
        let (api, params) =
            (self.api.clone(), WatchParams::default().fields(&format!("metadata.name={}", self.name)));
        let opening = async move { api.watch(&params, "0").await };
        futures::stream::once(opening).try_flatten().boxed()
    }

    pub(super) fn error(&self, verb: Verb, cause: Cause) -> LeaseError {
        LeaseError { verb, namespace: self.namespace.clone(), name: self.name.clone(), cause }
    }

    async fn bounded<T>(
        &self,
        verb: Verb,
        limit: Instant,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, LeaseError> {
        let now = Instant::now();
        let end = limit.min(now + self.patience);
        match timeout_at(end, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.error(verb, Cause::of(verb, &error))),
            Err(_elapsed) => Err(self.error(verb, Cause::NoAnswer(end.saturating_duration_since(now)))),
        }
    }
}

//! Whether we may do what we are going to do, asked before anything begins.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use knr_core::config::Config;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::{Api, Failed, ask};
use crate::calls::{Call, Verb, When, Who};
use crate::scope::{self, Scope};

const AT_ONCE: usize = 8;

/// Something that we are not allowed to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The request.
    pub call: Call,
    /// The namespace; none for the whole cluster.
    pub namespace: Option<String>,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.call.describe())?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => f.write_str(" in the whole cluster"),
        }
    }
}

/// What somebody is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything that is asked for.
    Acting,
    /// Only look on.
    LookingOn,
}

impl Mode {
    fn needs(self, call: Call) -> bool {
        match self {
            Self::Acting => true,
            Self::LookingOn => {
                let rule = call.rule();
                matches!(rule.verb, Verb::Get | Verb::List | Verb::Watch) && rule.when != When::LeaderElection
            }
        }
    }
}

/// Everything that a configuration asks of the controller and that the API server will not let it do.
pub async fn missing(
    api: &Api,
    config: &Config,
    mode: Mode,
    limit: Duration,
) -> Result<Vec<Missing>, Failed> {
    let needed: Vec<Call> = Call::needed(Who::Controller, config).filter(|call| mode.needs(*call)).collect();
    let asked = stream::iter(needed).map(|call| async move {
        let scope = scope::of(call, config, api.namespaces());
        let allowed = is_allowed(api.client(), call, &scope, limit).await?;
        Ok::<_, Failed>((!allowed).then_some(Missing { call, namespace: scope.namespace }))
    });
    let denied: Vec<Option<Missing>> = asked.buffered(AT_ONCE).try_collect().await?;
    Ok(denied.into_iter().flatten().collect())
}

async fn is_allowed(client: &Client, call: Call, scope: &Scope, limit: Duration) -> Result<bool, Failed> {
    let rule = call.rule();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "namespace": scope.namespace.as_deref().unwrap_or_default(),
            "name": scope.name.as_deref().unwrap_or_default(),
            "verb": rule.verb.as_str(),
            "group": rule.group,
            "resource": rule.plural(),
            "subresource": rule.part().unwrap_or_default(),
        } },
    });
    let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes().into())
        .map_err(|error| Failed::Unreadable(error.to_string()))?;
    let answer: Value = ask(client, request, Instant::now() + limit).await?;
    Ok(answer["status"]["allowed"] == true)
}

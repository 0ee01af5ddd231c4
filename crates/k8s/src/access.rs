//! Finds missing permissions, before anything else begins.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use knr_core::config::Config;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::{Api, Body, Failed, Target, ask};
use crate::calls::{Call, Verb, When, Who};
use crate::scope::{self, Scope};

const AT_ONCE: usize = 8;

/// A request that is not permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The request.
    pub call: Call,
    /// The namespace; `None` for the whole cluster.
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

/// What the controller is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything that the configuration asks for.
    Acting,
    /// Only observe, without leader election.
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

/// The subject whose permissions are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// This process.
    Ourselves,
    /// A service account. To ask about it requires the permission to create `SubjectAccessReviews`.
    Account {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ourselves => f.write_str("this account"),
            Self::Account { namespace, name } => write!(f, "system:serviceaccount:{namespace}:{name}"),
        }
    }
}

/// Returns the requests that the controller needs for a configuration and that this process is not permitted to send.
pub async fn missing(
    api: &Api,
    config: &Config,
    mode: Mode,
    limit: Duration,
) -> Result<Vec<Missing>, Failed> {
    let needed = Call::needed(Who::Controller, config).filter(|call| mode.needs(*call));
    denied(api, config, needed, &Subject::Ourselves, limit).await
}

/// Returns the requests that `who` needs for a configuration and that the subject is not permitted to send.
pub async fn missing_of(
    api: &Api,
    config: &Config,
    who: Who,
    subject: &Subject,
    limit: Duration,
) -> Result<Vec<Missing>, Failed> {
    denied(api, config, Call::needed(who, config), subject, limit).await
}

async fn denied(
    api: &Api,
    config: &Config,
    needed: impl Iterator<Item = Call>,
    subject: &Subject,
    limit: Duration,
) -> Result<Vec<Missing>, Failed> {
    let scopes = |call| scope::of(call, config, api.namespaces()).into_iter().map(move |scope| (call, scope));
    let needed: Vec<(Call, Scope)> = needed.flat_map(scopes).collect();
    let asked = stream::iter(needed).map(|(call, scope)| async move {
        let allowed = is_allowed(api, subject, call, &scope, limit).await?;
        Ok::<_, Failed>((!allowed).then_some(Missing { call, namespace: scope.namespace }))
    });
    let denied: Vec<Option<Missing>> = asked.buffered(AT_ONCE).try_collect().await?;
    Ok(denied.into_iter().flatten().collect())
}

async fn is_allowed(
    api: &Api,
    subject: &Subject,
    call: Call,
    scope: &Scope,
    limit: Duration,
) -> Result<bool, Failed> {
    let rule = call.rule();
    let resource = json!({
        "namespace": scope.namespace.as_deref().unwrap_or_default(),
        "name": scope.name.as_deref().unwrap_or_default(),
        "verb": rule.verb.as_str(),
        "group": rule.group,
        "resource": rule.plural(),
        "subresource": rule.part().unwrap_or_default(),
    });
    let deadline = Instant::now() + limit;
    let answer: Value = match subject {
        Subject::Ourselves => {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": resource },
            });
            // Everybody may send this request, so no list of permissions contains it.
            let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(review.to_string().into_bytes().into())
                .map_err(|error| Failed::Unreadable(error.to_string()))?;
            ask(api.client(), request, deadline).await?
        }
        Subject::Account { namespace, .. } => {
            // The groups of a token of the service account: permissions may be bound to any of them.
            let in_namespace = format!("system:serviceaccounts:{namespace}");
            let groups = json!(["system:serviceaccounts", in_namespace, "system:authenticated"]);
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": { "user": subject.to_string(), "groups": groups, "resourceAttributes": resource },
            });
            api.send(Call::ReviewAccess, Target::default(), Body::Json(&review), deadline).await?
        }
    };
    Ok(answer["status"]["allowed"] == true)
}

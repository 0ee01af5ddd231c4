//! The API server answers, and authenticates the client.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SelfSubjectAccessReview};
use kube::api::{Api as Objects, PostParams};

use super::mtu;
use crate::api::{self, Api};
use crate::check::{About, Check, Context, Kind, Outcome, Trouble};

/// The user of a request without credentials.
const ANONYMOUS: &str = "system:anonymous";

pub(crate) static ABOUT: About = About {
    name: "kubernetes",
    summary: "The API server is reached as any pod reaches it: TCP connection, TLS handshake with its certificate \
              verified, a request for the worker's own identity (`SelfSubjectReview`, which every service account may \
              send; before Kubernetes 1.28 `SelfSubjectAccessReview`), its version, and a page that is too large for one packet.",
    kinds: &[
        (Kind::Resolve, "the name of the API server is not resolved: look at DNS"),
        (Kind::Timeout, "there is no answer: look at kube-proxy, firewall rules and routes of this node"),
        (Kind::Refused, "nothing listens there: is the API server up, and does kube-proxy know where?"),
        (Kind::Unreachable, "there is no route to it: look at the routes of the node and at its CNI plugin"),
        (Kind::HostUnreachable, "its host does not answer: look at the machine of the API server"),
        (Kind::Closed, "connections are closed on the way: look at load balancers and firewalls"),
        (Kind::Io, "look at the worker's log and at the limits of the node"),
        (
            Kind::TlsTimeout,
            "large packets are lost on the way to the node: look at the MTU of the pod network",
        ),
        (Kind::Untrusted, "look at the clock of the node, and whether a proxy intercepts TLS"),
        (Kind::Tls, "is it an API server that listens there?"),
        (Kind::NoAnswer, "large packets may be lost on the way from the node (MTU), or the API server hangs"),
        (
            Kind::AnswerLost,
            "large packets are lost on the way to the node: look at the MTU of the pod network",
        ),
        (Kind::BadAnswer, "is it an API server that listens there?"),
        (Kind::Unauthorized, "look at the service account of the worker and at the clock of the node"),
        (Kind::Forbidden, "look at the ClusterRoleBinding system:basic-user"),
        (Kind::Busy, "the API server is overloaded, or not up yet"),
        (Kind::ServerError, "look at the log of the API server"),
        (Kind::BadStatus, "is it an API server that listens there?"),
        (Kind::NoAccess, "look at the service account of the worker, or at the kubeconfig"),
    ],
};

/// See [`ABOUT`].
pub(crate) struct Kubernetes;

impl Check for Kubernetes {
    fn name(&self) -> &str {
        ABOUT.name
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        ask(cx).map(Outcome::from).boxed()
    }
}

async fn ask(cx: &Context) -> Result<String, Outcome> {
    let api = cx.surroundings.api.connect(cx.deadline).await?;
    let user = identity(&api).await?;
    let client = api.client();
    let version = api.ask("GET /version", client.apiserver_version()).await?;
    // Where large packets are lost, all of the above may still have fit into small ones.
    mtu::large_answer(&api).await?;
    Ok(format!("{} accepts the credentials{user}", version.git_version))
}

/// Returns the user as which the API server has authenticated the client, if the server reports it.
async fn identity(api: &Api) -> Result<String, Trouble> {
    let reviews: Objects<SelfSubjectReview> = Objects::all(api.client());
    let question = (PostParams::default(), SelfSubjectReview::default());
    let review = match api.ask("POST SelfSubjectReview", reviews.create(&question.0, &question.1)).await {
        Err(trouble) if trouble.kind == Kind::NotFound => return known(api).await,
        review => review?,
    };
    let user = review.status.and_then(|status| status.user_info?.username).unwrap_or_default();
    if user.is_empty() || user == ANONYMOUS {
        let detail = format!("POST SelfSubjectReview: the API server authenticates the worker as {user:?}");
        return Err(Trouble::new(Kind::Unauthorized, detail));
    }
    Ok(format!(" as {user}"))
}

/// Before Kubernetes 1.28 it cannot. But only authenticated users may create a `SelfSubjectAccessReview`.
async fn known(api: &Api) -> Result<String, Trouble> {
    let reviews: Objects<SelfSubjectAccessReview> = Objects::all(api.client());
    let attributes =
        NonResourceAttributes { path: Some("/version".to_owned()), verb: Some("get".to_owned()) };
    let mut question = SelfSubjectAccessReview::default();
    question.spec.non_resource_attributes = Some(attributes);
    let options = PostParams::default();
    let review = api.ask("POST SelfSubjectAccessReview", reviews.create(&options, &question)).await;
    review.map(|_| String::new()).map_err(api::always_served)
}

#[cfg(test)]
mod tests;

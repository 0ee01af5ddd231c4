//! Errors of lease requests, as values that a caller can log and compare.

use std::time::Duration;

use crate::api::story;
use crate::calls::Verb;

/// A request about the lease that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {} lease {name} in namespace {namespace}: {cause}", verb.as_str())]
pub struct LeaseError {
    /// The verb of the request.
    pub verb: Verb,
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Why it failed.
    #[source]
    pub cause: Cause,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The service account lacks the verb on `leases` in `coordination.k8s.io`.
    #[error("not permitted: {0}")]
    Forbidden(String),
    /// The namespace does not exist.
    #[error("there is no such namespace")]
    NoNamespace,
    /// The record has changed since it was read.
    #[error("somebody else has changed it")]
    Outdated,
    /// No answer arrived. The request may have been carried out, or may still be.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// The API server refused the request for another reason.
    #[error("refused with {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The message of the API server.
        message: String,
    },
    /// The API server could not be reached, or its answer cannot be parsed.
    #[error("{0}")]
    Broken(String),
    /// The election had already ended.
    #[error("the election has ended")]
    Ended,
}

impl Cause {
    pub(super) fn of(verb: Verb, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Broken(story(error));
        };
        let message = status.message.clone();
        match (status.code, verb) {
            (401 | 403, _) => Self::Forbidden(message),
            (404, Verb::Create) => Self::NoNamespace,
            (409, _) | (404, Verb::Update) => Self::Outdated,
            (code, _) => Self::Refused { code, message },
        }
    }

    /// Returns whether the request may have been carried out although it failed, or may still be.
    pub(super) fn leaves_doubt(&self) -> bool {
        match self {
            Self::NoAnswer(_) | Self::Broken(_) => true,
            Self::Refused { code, .. } => *code >= 500,
            Self::Forbidden(_) | Self::NoNamespace | Self::Outdated | Self::Ended => false,
        }
    }
}

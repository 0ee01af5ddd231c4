//! The product's writes, from the API server's audit log.

use std::fmt;

use anyhow::Result;
use knr_core::action::worker_name;
use lab::AuditEvent;

use crate::cluster::{Cluster, NAMESPACE};
use crate::controller::ACCOUNT;
use crate::node::Node;

/// Leases only decide who may write, and a review is a question in the form of a creation.
const NO_WRITES: [&str; 2] = ["leases", "selfsubjectaccessreviews"];

/// A request of the product's controller that was meant to change something, even if it was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The replica that sent it.
    pub replica: String,
    /// create, update, patch, delete.
    pub verb: String,
    /// The kind of object, in plural, with the subresource after a slash: `pods`, `nodes/status`.
    pub resource: String,
    /// Its name.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When the request arrived, as the server wrote it: comparing the texts compares the times.
    pub at: String,
}

impl Cluster {
    /// The writes of the product's controllers so far, in the order of the answers, without leases.
    pub fn writes(&self) -> Result<Vec<Write>> {
        let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let events = self.audit()?.into_iter();
        Ok(events
            .filter(|event| event.user == user && event.is_write())
            .filter(|event| !NO_WRITES.contains(&event.resource.as_str()))
            .map(Write::from)
            .collect())
    }

    /// The deletions of nodes by the product, whether they succeeded or not.
    pub fn node_deletions(&self) -> Result<Vec<Write>> {
        let mut writes = self.writes()?;
        writes.retain(|write| write.verb == "delete" && write.resource == "nodes");
        Ok(writes)
    }
}

impl Node<'_> {
    /// The writes of the product's controllers to this node and its workers so far, without events.
    pub fn writes(&self) -> Result<Vec<Write>> {
        let worker = worker_name(&self.uid().into());
        let mut writes = self.cluster().writes()?;
        writes.retain(|write| match write.resource.as_str() {
            "nodes" | "nodes/status" => write.name == self.name(),
            "pods" => write.name == worker,
            _ => false,
        });
        Ok(writes)
    }
}

impl Write {
    /// Returns true if it was carried out.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl From<AuditEvent> for Write {
    fn from(event: AuditEvent) -> Self {
        let AuditEvent { agent, verb, resource, name, code, at, .. } = event;
        Self { replica: replica(&agent).to_owned(), verb, resource, name, code, at }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replica, verb, resource, name, code, at: _ } = self;
        write!(out, "{replica}: {verb} {resource} {name}: {code}")
    }
}

/// The replica in a user agent: `kube-node-ready/0.1.0 (a_1f2e3d4c)`.
fn replica(agent: &str) -> &str {
    agent
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
        .map_or("", |(identity, _)| named(identity))
}

/// The name of the replica with this identity. Each run adds a different suffix after an underscore.
pub(crate) fn named(identity: &str) -> &str {
    identity.split_once('_').map_or(identity, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_known_by_what_it_calls_itself() {
        assert_eq!(replica("kube-node-ready/0.1.0 (a)"), "a");
        assert_eq!(replica("kube-node-ready/0.1.0 (a-1_1f2e3d4c)"), "a-1");
        assert_eq!(replica("kubectl/v1.36.3"), "");
    }
}

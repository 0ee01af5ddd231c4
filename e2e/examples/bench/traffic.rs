//! The requests of a subject, from the API server's audit log.

use std::collections::BTreeMap;

use anyhow::Result;
use lab::{AuditEvent, Lab};

/// Requests of one subject.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    events: Vec<AuditEvent>,
}

impl Traffic {
    /// All requests that have been answered so far. Watches count when they end.
    pub(crate) fn of(lab: &Lab, agent: &str) -> Result<Self> {
        let mut events = lab.audit()?;
        events.retain(|event| event.agent.contains(agent));
        Ok(Self { events })
    }

    /// The requests after an earlier snapshot.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        self.events.drain(..earlier.events.len().min(self.events.len()));
        self
    }

    /// Writes by kind, such as `patch nodes/status`, without leases and without the permission reviews at the start.
    pub(crate) fn writes(&self) -> BTreeMap<String, usize> {
        self.count(|event| event.is_write() && !is_about_us(event))
    }

    /// Reads of single objects and lists by kind.
    pub(crate) fn reads(&self) -> BTreeMap<String, usize> {
        self.count(|event| ["get", "list"].contains(&event.verb.as_str()) && !is_about_us(event))
    }

    /// Everything by kind.
    pub(crate) fn all(&self) -> BTreeMap<String, usize> {
        self.count(|_| true)
    }

    /// Writes that the API server refused.
    pub(crate) fn failures(&self) -> usize {
        self.events.iter().filter(|event| event.is_write() && event.code >= 400).count()
    }

    /// The highest number of patches to a single node.
    pub(crate) fn most_patches_of_a_node(&self) -> usize {
        let mut patches = BTreeMap::<&str, usize>::new();
        for event in self.events.iter().filter(|event| event.verb == "patch" && event.resource == "nodes") {
            *patches.entry(&event.name).or_default() += 1;
        }
        patches.into_values().max().unwrap_or(0)
    }

    fn count(&self, counts: impl Fn(&AuditEvent) -> bool) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for event in self.events.iter().filter(|event| counts(event)) {
            *kinds.entry(format!("{} {}", event.verb, event.resource)).or_default() += 1;
        }
        kinds
    }
}

fn is_about_us(event: &AuditEvent) -> bool {
    ["leases", "selfsubjectaccessreviews"].contains(&event.resource.as_str())
}

/// The kinds of requests, as text.
pub(crate) fn described(kinds: &BTreeMap<String, usize>) -> String {
    if kinds.is_empty() {
        return "none".to_owned();
    }
    kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

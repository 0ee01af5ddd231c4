//! The nodes that are closed, as far as they keep other nodes from being closed.

use std::collections::BTreeSet;

use super::{Member, Membership};
use crate::ids::NodeName;

/// Whether a node is closed. Each variant includes the ones before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closure {
    #[default]
    Open,
    /// By any gate.
    Closed,
    /// By the verification gate, and it was tried or closed again without being verified since.
    Unproven,
}

/// Which closed nodes keep others from being closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All. Nothing is recorded on a node that never had a gate when it is closed, so after another leader nobody knows
    /// which nodes were closed that way.
    Closed,
    /// Only unproven ones, so that many new nodes do not keep the others from being closed.
    Unproven,
}

/// Nodes in scope that are closed, or that this process is about to close. To count them costs the same in a cluster of
/// any size.
#[derive(Debug, Default)]
pub(super) struct Closings {
    /// Nodes that this process has closed or is about to close, and that were not open since. They need not be in scope
    /// any more.
    expected: BTreeSet<NodeName>,
    closed: BTreeSet<NodeName>,
    unproven: BTreeSet<NodeName>,
}

impl Closings {
    /// Updates how a node counts.
    pub(super) fn note(&mut self, name: &NodeName, member: &Member) {
        let is_in_scope = member.membership >= Membership::InScope;
        let is_expected = self.expected.contains(name);
        let counts = |least| is_in_scope && (is_expected || member.closure >= least);
        put(&mut self.closed, name, counts(Closure::Closed));
        put(&mut self.unproven, name, counts(Closure::Unproven));
    }

    /// Updates whether a node counts as closed until it is seen to be open.
    pub(super) fn expect(&mut self, name: &NodeName, member: &Member, is_expected: bool) {
        put(&mut self.expected, name, is_expected);
        self.note(name, member);
    }

    /// The nodes that count as closed until they are seen to be open.
    pub(super) fn expected(&self) -> &BTreeSet<NodeName> {
        &self.expected
    }

    /// The number of closed nodes besides this one.
    pub(super) fn besides(&self, name: &NodeName, counted: Counted) -> usize {
        let all = match counted {
            Counted::Closed => &self.closed,
            Counted::Unproven => &self.unproven,
        };
        all.len() - usize::from(all.contains(name))
    }
}

fn put(names: &mut BTreeSet<NodeName>, name: &NodeName, is_member: bool) {
    if !is_member {
        names.remove(name);
    } else if !names.contains(name) {
        names.insert(name.clone());
    }
}

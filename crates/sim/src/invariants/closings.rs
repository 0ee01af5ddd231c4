//! L3: how many open nodes may be closed, for whatever reason: it failed on probation, was restarted, or never had the
//! gate.
//!
//! - No node is closed or charged with an attempt while the cluster is in trouble ([`Rule::Trouble`]): too many nodes fail, or a reference run failed
//!   and nothing has passed since.
//! - At most `max(1, floor(maxFailingPercent / 100 * nodes in scope))` nodes are closed and unproven at any time
//!   ([`Rule::Closings`]). These are nodes that were tried or closed before, and not verified since. A node that is new
//!   and was never tried does not count.
//!
//! Both are about what is true in the cluster, as far as the process must know it: what it has closed itself, from its
//! order on, whether it was confirmed or not; and of what others have done, what has reached it.
//!
//! Slack: the number of nodes in scope is the maximum of the last ten minutes. A process that leads no longer, or learns
//! of a restore, starts over. While two processes lead, nothing is checked.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use knr_core::action::{Action, Recorded};
use knr_core::ids::{NodeRef, Requires, Uid};
use knr_core::view::NodeView;

use super::brake::LEARNED_WITHIN;
use super::runs::Process;
use super::{Monitor, Rule, is_in_scope, is_unproven};
use crate::run::Decided;
use crate::writers::Request;

/// A failed reference run means trouble for this long, unless anything passes.
const FAILED_REFERENCE_COUNTS: SignedDuration = SignedDuration::from_mins(5);

/// What each process has closed, and what it knows of reference runs.
#[derive(Debug, Default)]
pub(super) struct Closings {
    /// Nodes whose closing was ordered and not answered.
    ordered: BTreeSet<(Process, Uid)>,
    /// Nodes that were closed and not open since.
    closed: BTreeSet<(Process, Uid)>,
    /// When each process learned that a reference run had failed, and what that checked.
    failed_references: BTreeMap<Process, (Timestamp, Option<Requires>)>,
}

impl Closings {
    fn by(&self, process: Process) -> BTreeSet<&Uid> {
        let all = self.ordered.iter().chain(&self.closed);
        all.filter(|(by, _)| *by == process).map(|(_, node)| node).collect()
    }

    /// An order is no longer in flight.
    pub(super) fn settled(&mut self, request: &Request) {
        self.ordered.remove(&closing(request));
    }

    /// A request was carried out.
    pub(super) fn carried_out(&mut self, request: &Request) {
        if matches!(request.order.action, Action::CloseGate { .. }) {
            self.closed.insert(closing(request));
        }
    }

    /// A node is open.
    pub(super) fn opened(&mut self, node: &Uid) {
        self.closed.retain(|(_, closed)| closed != node);
    }

    /// A process starts over.
    pub(super) fn forget(&mut self, process: Process) {
        self.ordered.retain(|(by, _)| *by != process);
        self.closed.retain(|(by, _)| *by != process);
    }

    /// A process has learned that a reference run failed.
    pub(super) fn reference_failed(&mut self, by: Process, requires: Option<Requires>, now: Timestamp) {
        self.failed_references.insert(by, (now, requires));
    }
}

fn closing(request: &Request) -> (Process, Uid) {
    ((request.replica, request.life), request.order.action.node().uid.clone())
}

impl Monitor {
    /// Checks the closings and the failed attempts that were just decided.
    pub(super) fn may_close_and_charge(&mut self, decided: &Decided<'_>, now: Timestamp) {
        for order in decided.orders {
            if let Action::CloseGate { node, because, .. } = &order.action {
                if let Some(trouble) = self.trouble(decided, now) {
                    let how = format!("a node is closed ({because:?}) although {trouble}");
                    self.violate(node.name.as_str(), Rule::Trouble, how);
                }
                self.not_too_many(decided, node, now);
                self.closings.ordered.insert(((decided.replica, decided.life), node.uid.clone()));
            }
            if let Action::Record { node, what: Recorded::Failure, .. } = &order.action
                && let Some(trouble) = self.trouble(decided, now)
            {
                let how = format!("an attempt is charged to a node although {trouble}");
                self.violate(node.name.as_str(), Rule::Trouble, how);
            }
        }
    }

    /// Returns why a process must suspect the cluster.
    fn trouble(&self, decided: &Decided<'_>, now: Timestamp) -> Option<&'static str> {
        if self.is_in_trouble(decided, now) {
            return Some("many nodes are known to fail");
        }
        let process = (decided.replica, decided.life);
        let (at, requires) = self.closings.failed_references.get(&process)?;
        let is_required = requires.as_ref() == Some(&decided.engine.policies().fallback().requires);
        let is_recent = now.duration_since(*at) < FAILED_REFERENCE_COUNTS;
        let is_trouble = is_required && is_recent && !self.runs.has_passed_since(*at);
        is_trouble.then_some("a reference run has just failed")
    }

    fn not_too_many(&mut self, decided: &Decided<'_>, node: &NodeRef, now: Timestamp) {
        let own = self.closings.by((decided.replica, decided.life));
        let (config, world) = (decided.config, decided.engine.world());
        let is_known = |view: &NodeView| {
            let known = world.entry(&view.id.name).and_then(|entry| entry.view.as_ref());
            known.is_some_and(|known| {
                known.id == view.id && is_in_scope(known, config) && is_unproven(known, config)
            })
        };
        let counts = |view: &&NodeView| {
            view.id != *node
                && is_in_scope(view, config)
                && (own.contains(&view.id.uid) || is_unproven(view, config) && is_known(view))
        };
        let closed = decided.api.nodes().map(|(_, node)| &node.view).filter(counts).count();
        let of = self.in_scope.most_since(now - LEARNED_WITHIN);
        if config.limits.deletion.too_many_failing(closed + 1, of) {
            let how = format!("a node is closed although {closed} of {of} nodes are closed and unproven");
            self.violate(node.name.as_str(), Rule::Closings, how);
        }
    }
}

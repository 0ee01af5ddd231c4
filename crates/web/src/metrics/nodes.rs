//! The series that carry the name of a node, and the counts of nodes by phase. All of them are derived from one map, so
//! no series can outlive its node.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use knr_core::explain::Phase;
use knr_core::fault::installation_faults;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelValue, LabelValueEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

const PHASES: [Phase; 7] = [
    Phase::OutOfScope,
    Phase::Unverified,
    Phase::Pending,
    Phase::InProgress,
    Phase::Verified,
    Phase::Failed,
    Phase::Deleting,
];

#[derive(Debug, Clone)]
pub(super) struct Nodes(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    per_node: bool,
    nodes: BTreeMap<Arc<str>, Node>,
    counts: BTreeMap<Phase, i64>,
    /// The number of blocked nodes by the fault of the installation.
    blocked: BTreeMap<&'static str, i64>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    phase: Phase,
    verified_after: Option<Duration>,
    failures: u64,
    /// The fault of the installation that keeps the checks from running on it.
    blocked: Option<&'static str>,
}

struct Snapshot {
    counts: BTreeMap<Phase, i64>,
    blocked: BTreeMap<&'static str, i64>,
    nodes: Vec<(Arc<str>, Node)>,
}

impl Nodes {
    pub(super) fn new(per_node: bool) -> Self {
        let counts = PHASES.map(|phase| (phase, 0)).into();
        let blocked = installation_faults().map(|fault| (fault, 0)).collect();
        Self(Arc::new(Mutex::new(State { per_node, nodes: BTreeMap::new(), counts, blocked })))
    }

    pub(super) fn set_per_node(&self, per_node: bool) {
        self.lock().per_node = per_node;
    }

    pub(super) fn stands(&self, name: &str, phase: Option<Phase>) {
        let mut state = self.lock();
        let before = match phase {
            None => state.nodes.remove(name),
            Some(phase) => state.put(name, phase),
        };
        if let Some(before) = before {
            state.count(before.phase, -1);
            let after = state.nodes.get(name).and_then(|node| node.blocked);
            state.count_blocked(before.blocked, after);
        }
        if let Some(phase) = phase {
            state.count(phase, 1);
        }
    }

    pub(super) fn verified(&self, name: &str, since_seen: Duration) {
        if let Some(node) = self.lock().in_scope(name) {
            node.verified_after = Some(since_seen);
        }
    }

    pub(super) fn failed(&self, name: &str) {
        if let Some(node) = self.lock().in_scope(name) {
            node.failures += 1;
        }
    }

    pub(super) fn blocked(&self, name: &str, fault: Option<&'static str>) {
        let mut state = self.lock();
        if let Some(node) = state.in_scope(name) {
            let before = std::mem::replace(&mut node.blocked, fault);
            state.count_blocked(before, fault);
        }
    }

    /// The map is always consistent, so a panic while the lock was held does not matter.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy, so that the loop does not wait while a hundred thousand lines are written.
    fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let is_shown = |node: &Node| state.per_node && node.is_in_scope();
        let nodes = state.nodes.iter().filter(|(_, node)| is_shown(node));
        Snapshot {
            counts: state.counts.clone(),
            blocked: state.blocked.clone(),
            nodes: nodes.map(|(name, node)| (name.clone(), *node)).collect(),
        }
    }
}

impl State {
    /// Sets the phase of a node, and returns the node as it was before.
    fn put(&mut self, name: &str, phase: Phase) -> Option<Node> {
        let new = Node { phase, verified_after: None, failures: 0, blocked: None };
        let Some(node) = self.nodes.get_mut(name) else {
            self.nodes.insert(name.into(), new);
            return None;
        };
        let before = *node;
        *node = if new.is_in_scope() { Node { phase, ..*node } } else { new };
        Some(before)
    }

    fn count(&mut self, phase: Phase, by: i64) {
        *self.counts.entry(phase).or_default() += by;
    }

    fn count_blocked(&mut self, before: Option<&'static str>, after: Option<&'static str>) {
        for (fault, by) in [(before, -1), (after, 1)] {
            if let Some(fault) = fault {
                *self.blocked.entry(fault).or_default() += by;
            }
        }
    }

    /// Returns a managed node. A late report about a node that is gone or not managed must not bring its series back.
    fn in_scope(&mut self, name: &str) -> Option<&mut Node> {
        self.nodes.get_mut(name).filter(|node| node.is_in_scope())
    }
}

impl Node {
    fn is_in_scope(&self) -> bool {
        match self.phase {
            Phase::OutOfScope => false,
            Phase::Unverified
            | Phase::Pending
            | Phase::InProgress
            | Phase::Verified
            | Phase::Failed
            | Phase::Deleting => true,
        }
    }
}

impl Collector for Nodes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Snapshot { counts, blocked, nodes } = self.snapshot();
        encode_counts(&mut encoder, &counts)?;
        encode_blocked(&mut encoder, &blocked)?;
        encode_status(&mut encoder, &nodes)?;
        encode_durations(&mut encoder, &nodes)?;
        encode_failures(&mut encoder, &nodes)
    }
}

fn encode_counts(encoder: &mut DescriptorEncoder<'_>, counts: &BTreeMap<Phase, i64>) -> fmt::Result {
    let help = "Nodes that exist now, by phase.";
    let mut metric = encoder.encode_descriptor("nodes", help, None, MetricType::Gauge)?;
    for (phase, count) in counts {
        metric.encode_family(&[("phase", Word(*phase))])?.encode_gauge(count)?;
    }
    Ok(())
}

fn encode_blocked(encoder: &mut DescriptorEncoder<'_>, blocked: &BTreeMap<&'static str, i64>) -> fmt::Result {
    let help = "Nodes on which the checks cannot run now by a fault of the installation, by that fault.";
    let mut metric = encoder.encode_descriptor("nodes_blocked", help, None, MetricType::Gauge)?;
    for (fault, count) in blocked {
        metric.encode_family(&[("reason", *fault)])?.encode_gauge(count)?;
    }
    Ok(())
}

fn encode_status(encoder: &mut DescriptorEncoder<'_>, nodes: &[(Arc<str>, Node)]) -> fmt::Result {
    if nodes.is_empty() {
        return Ok(());
    }
    let help = "1 for the status of the node now; other statuses have no series.";
    let mut metric = encoder.encode_descriptor("verification_status", help, None, MetricType::Gauge)?;
    for (name, node) in nodes {
        let labels = ([("node", name.as_ref())], [("status", Word(node.phase))]);
        metric.encode_family(&labels)?.encode_gauge(&1_i64)?;
    }
    Ok(())
}

fn encode_durations(encoder: &mut DescriptorEncoder<'_>, nodes: &[(Arc<str>, Node)]) -> fmt::Result {
    let durations = nodes.iter().filter_map(|(name, node)| Some((name, node.verified_after?)));
    let mut durations = durations.peekable();
    if durations.peek().is_none() {
        return Ok(());
    }
    let help = "Time from the first sight of the node until it was last verified.";
    let unit = Some(&Unit::Seconds);
    let mut metric = encoder.encode_descriptor("verification_duration", help, unit, MetricType::Gauge)?;
    for (name, duration) in durations {
        metric.encode_family(&[("node", name.as_ref())])?.encode_gauge(&duration.as_secs_f64())?;
    }
    Ok(())
}

fn encode_failures(encoder: &mut DescriptorEncoder<'_>, nodes: &[(Arc<str>, Node)]) -> fmt::Result {
    let mut failing = nodes.iter().filter(|(_, node)| node.failures > 0).peekable();
    if failing.peek().is_none() {
        return Ok(());
    }
    let help = "Failed runs of the checks on the node; it has none as long as there is no such series.";
    let mut metric = encoder.encode_descriptor("retry_attempts", help, None, MetricType::Counter)?;
    for (name, node) in failing {
        let labels = [("node", name.as_ref())];
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&node.failures, None)?;
    }
    Ok(())
}

/// A phase as the value of a label.
#[derive(Debug)]
struct Word(Phase);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        write!(encoder, "{}", self.0)
    }
}

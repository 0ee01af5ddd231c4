//! The rules by name.

use std::fmt;

/// A rule. S1 to S6 and L1 to L4 are those of `docs/design.md`; the others follow from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A gate opens only on evidence from this node in this boot.
    S1,
    /// Nothing that belongs to others is changed.
    S2,
    /// At most one live worker for a node.
    S3,
    /// When a node may be deleted, except for what the five rules below check.
    S4,
    /// S4: the four steps of a fair trial, under the same requirements, after the last trouble, within minutes.
    FairTrial,
    /// S4: after trouble in the cluster a node has all its attempts again.
    FreshAttempts,
    /// S4: a node that failed only because of outages is never deleted.
    TrialInOutage,
    /// S4: no more nodes are deleted in an hour than the limits allow for the number of managed nodes.
    Budget,
    /// S4: a deletion that the configuration no longer allows is not sent.
    OldConfig,
    /// S5: when a verified node may be closed.
    S5,
    /// S5: a node where pods run does not get a gate with `NoExecute` only because it never had it.
    Eviction,
    /// S6: which process may give orders.
    S6,
    /// L1 and L2: the state at the end of a run.
    L1,
    /// L1 and L4: a node that is healthy at the end is open, whatever happened before.
    Recovered,
    /// L1: a node that is never healthy is deleted by the end, if deletion is enabled and no other rule forbids it.
    Replaced,
    /// A node that becomes healthy is open within one longest retry delay and one run of the checks.
    L4,
    /// L3: one by one, as failures are learned.
    Brake,
    /// L3: with everything that was known when it was decided.
    BrakeAtOnce,
    /// L3: no open node is closed, for whatever reason, while the cluster is in trouble.
    Trouble,
    /// L3: how many nodes may be closed and unproven at a time.
    Closings,
    /// L3: nodes that are not managed do not keep the brake on.
    BrakeStuck,
    /// A failure is recorded only if the worker failed.
    Verdict,
    /// A failure is not recorded if a cause outside the node kept its worker from starting.
    Blame,
    /// Excluded nodes are left alone.
    Scope,
    /// What Karpenter requires.
    Karpenter,
    /// Which node gets a worker first.
    Slots,
    /// No tight loops of writes.
    Storm,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S1 => "S1",
            Self::S2 => "S2",
            Self::S3 => "S3",
            Self::S4 => "S4",
            Self::FairTrial => "S4, fair trial",
            Self::FreshAttempts => "S4, fresh attempts",
            Self::TrialInOutage => "S4, no outage",
            Self::Budget => "S4, budget",
            Self::OldConfig => "S4, changed configuration",
            Self::S5 => "S5",
            Self::Eviction => "S5, eviction",
            Self::S6 => "S6",
            Self::L1 => "L1",
            Self::Recovered => "L1, recovered",
            Self::Replaced => "L1, replaced",
            Self::L4 => "L4",
            Self::Brake => "L3",
            Self::BrakeAtOnce => "L3, at once",
            Self::Trouble => "L3, trouble",
            Self::Closings => "L3, closings",
            Self::BrakeStuck => "L3, stuck",
            Self::Verdict => "verdict",
            Self::Blame => "blame",
            Self::Scope => "scope",
            Self::Karpenter => "Karpenter",
            Self::Slots => "slots",
            Self::Storm => "storm",
        })
    }
}

//! The rules by name.

use std::fmt;

/// A rule. S1 to S6 and L1 to L3 are those of `docs/design.md`; the others say what follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A gate opens only on evidence from this node in this boot.
    S1,
    /// Nothing of anybody else's is changed.
    S2,
    /// At most one live worker for a node.
    S3,
    /// When a node may be deleted, the two rules below apart.
    S4,
    /// S4: it failed, then a run elsewhere passed, then it failed again, and each run began after the one before.
    FairTrial,
    /// S4: and there was no outage from the first of these failures until the deletion.
    TrialInOutage,
    /// S4: no more nodes are deleted in an hour than the limits say for so many managed nodes.
    Budget,
    /// S4: a deletion that was decided before the configuration forbade it is not sent any more.
    OldConfig,
    /// S5: when a verified node may be closed.
    S5,
    /// S5: a gate with `NoExecute` is not put on a node where pods run, only because it never had it.
    Eviction,
    /// S6: who may give orders.
    S6,
    /// L1 and L2: what must be so at the end.
    L1,
    /// L1: a node that is fit at the end is open, whatever happened before.
    Recovered,
    /// L1: a node that is never fit is deleted at the end if that was asked for and nothing speaks against it.
    Replaced,
    /// L3: one by one, as failures are learned.
    Brake,
    /// L3: with everything that was known when it was decided.
    BrakeAtOnce,
    /// L3: nodes that are not looked after do not keep the brake on.
    BrakeStuck,
    /// A failure is recorded only of a worker that failed.
    Verdict,
    /// Nor does it count against a node that its worker could not be started from outside.
    Blame,
    /// Nodes that are to be left alone are.
    Scope,
    /// What Karpenter asks for.
    Karpenter,
    /// Who gets a worker first.
    Slots,
    /// No writes without end.
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
            Self::TrialInOutage => "S4, no outage",
            Self::Budget => "S4, budget",
            Self::OldConfig => "S4, changed configuration",
            Self::S5 => "S5",
            Self::Eviction => "S5, eviction",
            Self::S6 => "S6",
            Self::L1 => "L1",
            Self::Recovered => "L1, recovered",
            Self::Replaced => "L1, replaced",
            Self::Brake => "L3",
            Self::BrakeAtOnce => "L3, at once",
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

//! What the engine asks for, and what it is answered.

use jiff::Timestamp;

use crate::action::Action;
use crate::explain::Explanation;
use crate::ids::{NodeName, NodeRef};
use crate::world::Fact;

/// One write, and the number that identifies its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The number.
    pub ticket: u64,
    /// The write.
    pub action: Action,
}

/// Something that we have to read because no watch tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Everything, to heal whatever a watch may have lost. Answered by lists of those kinds of objects of which that can be
    /// feared, or not at all.
    Everything,
    /// Everything, because nothing that is known counts any more. Answered by lists of all that is watched, and by
    /// [`Fact::Ledger`] where nodes may be deleted.
    StartOver,
    /// A node and its worker, after a write of which we do not know what it did. Answered by [`Fact::Reread`],
    /// and by [`Fact::Ledger`] where nodes may be deleted.
    Node(NodeRef),
    /// What runs on a node. Answered by [`Fact::Occupancy`].
    Occupancy(NodeRef),
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Writes to carry out.
    pub orders: Vec<Order>,
    /// Writes that would be carried out if this were no dry run.
    pub withheld: Vec<Action>,
    /// What to read.
    pub questions: Vec<Question>,
    /// Deletions that were carried out although their answers were lost: to be reported now.
    pub confirmed: Vec<Action>,
    /// Nodes whose status changed; none for a node that is gone.
    pub changes: Vec<(NodeName, Option<Explanation>)>,
    /// When to decide again, even if nothing is heard until then.
    pub wake: Option<Timestamp>,
    /// How many nodes were decided about.
    pub considered: usize,
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It was carried out, and this is how things are now.
    Done(Vec<Fact>),
    /// Things are not as the order assumed: 404, 409, the name is taken, or 422 because a test in a patch failed.
    Conflict,
    /// The API server will not do this, and said why: 400, 403, any other 422.
    Refused(String),
    /// It was not carried out, and may be tried again: 429, 503, no connection.
    Unavailable,
    /// It may have been carried out, or may still be: 500, 504, no answer.
    Unknown,
}

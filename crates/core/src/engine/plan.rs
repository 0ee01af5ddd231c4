//! What the engine asks the caller to do, and how the caller answers.

use jiff::Timestamp;

use crate::action::Action;
use crate::explain::Explanation;
use crate::ids::{NodeName, NodeRef};
use crate::world::Fact;

/// One write, and the ticket that identifies its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub ticket: u64,
    pub action: Action,
}

/// Something to read from the API server because no watch shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Everything, to recover events that a watch may have lost. Answered by lists of the kinds of objects that may be
    /// affected, or not at all.
    Everything,
    /// Everything, because nothing that is known counts any more. Answered by lists of everything that is watched, and
    /// by [`Fact::Ledger`] where nodes may be deleted.
    StartOver,
    /// A node and its worker, because a watch may lag behind or the outcome of a write is unknown. Answered by
    /// [`Fact::Reread`], and by [`Fact::Ledger`] where nodes may be deleted.
    Node(NodeRef),
    /// The pods that run on a node. Answered by [`Fact::Occupancy`].
    Occupancy(NodeRef),
}

/// The result of one round of decisions.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Writes to carry out.
    pub orders: Vec<Order>,
    /// Writes that would be carried out if this were not a dry run.
    pub withheld: Vec<Action>,
    /// Objects to read.
    pub questions: Vec<Question>,
    /// Deletions that turned out to have been carried out although their answers were lost. They have to be reported
    /// now.
    pub confirmed: Vec<Action>,
    /// Nodes whose explanation changed; `None` for a node that is gone.
    pub changes: Vec<(NodeName, Option<Explanation>)>,
    /// When to decide again, even if nothing is learned until then.
    pub wake: Option<Timestamp>,
    /// The number of nodes that were decided about.
    pub considered: usize,
}

/// The outcome of an order.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It was carried out, and these facts describe the result.
    Done(Vec<Fact>),
    /// The cluster is not in the state that the order assumed: 404, 409, the name is taken, or 422 because a test in a
    /// patch failed.
    Conflict,
    /// The API server refused it, and said why: 400, 403, any other 422.
    Refused(String),
    /// It was not carried out, and can be retried: 429, 503, no connection.
    Unavailable,
    /// It may have been carried out, or may still be: 500, 504, no response.
    Unknown,
}

//! Refused writes. A write is given again until it is permitted, so the same refusal is an error only once.

use std::collections::BTreeMap;

use knr_core::action::Action;
use knr_core::engine::Outcome;
use knr_core::ids::NodeName;

/// The last refusal of each kind of write, by node, with its reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<NodeName, Vec<(Action, String)>>);

impl Refusals {
    /// Takes in an answer. Returns whether it is a refusal for the same reason as the last one of such a write.
    pub(super) fn is_repeated(&mut self, action: &Action, outcome: &Outcome) -> bool {
        let name = &action.node().name;
        match outcome {
            Outcome::Refused(why) => {
                let of_node = self.0.entry(name.clone()).or_default();
                let before = of_node.iter().position(|(refused, _)| refused.is_like(action));
                let before = before.map(|index| of_node.swap_remove(index).1);
                of_node.push((action.clone(), why.clone()));
                before.as_ref() == Some(why)
            }
            Outcome::Done(_) => {
                if let Some(of_node) = self.0.get_mut(name) {
                    of_node.retain(|(refused, _)| !refused.is_like(action));
                }
                false
            }
            Outcome::Conflict | Outcome::Unavailable | Outcome::Unknown => false,
        }
    }

    /// Forgets a node that is gone.
    pub(crate) fn forget(&mut self, node: &NodeName) {
        self.0.remove(node);
    }
}

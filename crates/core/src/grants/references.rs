//! When the next reference run may be ordered: one at a time, and after a pause if the last one had no result.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::ids::NodeName;
use crate::setback;

#[derive(Debug, Default)]
pub(crate) struct References {
    /// Nodes that wait for a reference run.
    waiting: BTreeSet<NodeName>,
    /// The node whose reference run was ordered and is not known to have been created yet.
    ordered: Option<NodeName>,
    /// The node that was asked last.
    last: Option<NodeName>,
    /// How many runs in a row had no result: they were refused, or evicted, or are under way.
    without_result: u32,
    not_before: Timestamp,
}

impl References {
    /// Records whether a node waits for a reference run.
    pub(crate) fn note_waiting(&mut self, node: &NodeName, waits: bool) {
        if waits {
            self.waiting.insert(node.clone());
        } else {
            self.waiting.remove(node);
        }
    }

    /// The nodes that wait for a reference run.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &NodeName> {
        self.waiting.iter()
    }

    /// From when on a reference run may be ordered, if a node waits for one.
    pub(super) fn due(&self) -> Option<Timestamp> {
        (!self.waiting.is_empty()).then_some(self.not_before)
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.ordered.is_some()
    }

    /// A reference run was ordered. The pause grows until one has a result, because whatever prevents one may prevent
    /// all.
    pub(super) fn order(&mut self, node: &NodeName, now: Timestamp) {
        self.ordered = Some(node.clone());
        self.last = Some(node.clone());
        self.not_before = now + setback::pause(self.without_result);
        self.without_result = self.without_result.saturating_add(1);
    }

    /// An order is no longer in flight.
    pub(super) fn settled(&mut self, node: &NodeName) {
        self.ordered.take_if(|ordered| ordered == node);
    }

    /// The result of a run on this node was learned.
    pub(crate) fn learned_result(&mut self, node: &NodeName) {
        if self.last.as_ref() == Some(node) {
            self.without_result = 0;
            self.not_before = Timestamp::default();
        }
    }

    /// A dry run does not order the run that nodes wait for, so it must not be tried again until one of them asks again.
    pub(crate) fn withhold(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    /// Orders a run on a node at a time, which is not created, and returns when the next one is due.
    fn ordered_in_vain(references: &mut References, node: &str, second: i64) -> Option<Timestamp> {
        references.order(&node.into(), at(second));
        assert!(references.is_ordered());
        references.settled(&node.into());
        references.due()
    }

    #[test]
    fn the_pause_grows_until_a_run_has_a_result() {
        let mut references = References::default();
        assert_eq!(references.due(), None, "nobody waits for one");
        references.note_waiting(&"n".into(), true);
        assert!(references.due().is_some_and(|due| due < at(0)));
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(ordered_in_vain(&mut references, "a", 0), Some(at(pause)));
        }
        references.learned_result(&"b".into());
        assert_eq!(references.due(), Some(at(30)), "another node was asked");
        references.learned_result(&"a".into());
        assert!(references.due().is_some_and(|due| due < at(0)));
        assert_eq!(ordered_in_vain(&mut references, "b", 0), Some(at(1)));
    }
}

//! Fresh reads of one node and its worker, made when a watch may have missed something.

use jiff::Timestamp;

use super::{Reread, Sight, World, is_news_in_list};
use crate::action::worker_name;
use crate::feed::{Feed, ObjectKind};
use crate::ids::NodeRef;

impl World {
    /// Records that a node is about to be read from the API server itself.
    pub(crate) fn asks_for(&mut self, node: &NodeRef) {
        let latest =
            (self.latest.of(&Feed::of(ObjectKind::Nodes)), self.latest.of(&Feed::of(ObjectKind::Workers)));
        if let Some(entry) = self.entries.get_mut(&node.name) {
            // The node may be requested again before the first answer arrives.
            entry.asked_at.get_or_insert(latest);
        }
    }

    /// Returns whether the store was restored from a backup: a node was read in versions below those that were known
    /// when the read was requested.
    pub(crate) fn is_restored(&self, reread: &Reread) -> bool {
        let asked_at = self.entries.get(&reread.node.name).and_then(|entry| entry.asked_at);
        asked_at
            .is_some_and(|(nodes, workers)| reread.node_version < nodes || reread.worker_version < workers)
    }

    pub(super) fn reread(&mut self, reread: Reread, now: Timestamp) {
        let Reread { node, view, node_version, worker, worker_version } = reread;
        self.touched.insert(node.name.clone());
        let known = self.node_version(&node.name);
        let floor = self.latest.floor(&Feed::of(ObjectKind::Nodes), node_version);
        match view {
            Some(view) if is_news_in_list(known, view.version, node_version, floor) => {
                self.set_node(view, Sight::Read, now);
            }
            None if known.is_some_and(|known| known <= node_version) => self.forget_node(&node.name),
            Some(_) | None => {}
        }
        let name = worker_name(&node.uid);
        let known = self.worker_version(&node.name, &name);
        let floor = self.latest.floor(&Feed::of(ObjectKind::Workers), worker_version);
        match worker {
            Some(worker) if is_news_in_list(known, worker.version, worker_version, floor) => {
                self.set_worker(worker, now);
            }
            None if known.is_some_and(|known| known <= worker_version) => {
                self.forget_worker(&node.name, &name);
            }
            Some(_) | None => {}
        }
        if let Some(entry) = self.entries.get_mut(&node.name) {
            entry.reread = Some(now);
            entry.asked_at = None;
        }
    }
}

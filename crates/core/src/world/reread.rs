//! Fresh reads of one node and its worker, made when a watch may have missed something.

use jiff::Timestamp;

use super::{Reread, Sight, World, is_news_in_list};
use crate::action::worker_name;
use crate::feed::{Feed, ObjectKind};
use crate::ids::{NodeRef, Version};

/// A request to read a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    at: Timestamp,
    /// The latest versions that were known then.
    nodes: Version,
    workers: Version,
}

impl World {
    /// Records that a node is about to be read from the API server itself.
    pub(crate) fn asks_for(&mut self, node: &NodeRef, now: Timestamp) {
        let [nodes, workers] =
            [ObjectKind::Nodes, ObjectKind::Workers].map(|kind| self.latest.of(&Feed::of(kind)));
        if let Some(entry) = self.entries.get_mut(&node.name) {
            // The node may be requested again before the first answer arrives.
            entry.asked.get_or_insert(Asked { at: now, nodes, workers });
        }
    }

    /// Returns whether the store was restored from a backup: a node was read in versions below those that were known
    /// when the read was requested.
    pub(crate) fn is_restored(&self, reread: &Reread) -> bool {
        let asked = self.entries.get(&reread.node.name).and_then(|entry| entry.asked);
        asked.is_some_and(|asked| reread.node_version < asked.nodes || reread.worker_version < asked.workers)
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
            // The answer may show the time at which it was asked for.
            entry.reread = Some(entry.asked.take().map_or(now, |asked| asked.at));
        }
    }
}

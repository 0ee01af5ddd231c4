//! Workers.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{SeenWorker, Source, WorkerCounts, World, is_news, is_news_in_list};
use crate::action::worker_name;
use crate::feed::{Feed, ObjectKind};
use crate::ids::{NodeName, NodeRef, Version, WorkerRef};
use crate::view::{Ending, Stage, WorkerView};

const FEED: Feed = Feed::of(ObjectKind::Workers);

impl World {
    pub(super) fn worker(&mut self, view: WorkerView, source: Source, now: Timestamp) {
        let version = view.version;
        if is_news(self.worker_version(&view.stamp.node.name, &view.id.name), version, self.latest.of(&FEED))
        {
            self.set_worker(view, now);
        }
        if source == Source::Watch {
            self.latest.advance(&FEED, version);
        }
    }

    pub(super) fn worker_version(&self, node: &NodeName, worker: &str) -> Option<Version> {
        self.entries.get(node)?.workers.get(worker).map(|worker| worker.view.version)
    }

    pub(super) fn set_worker(&mut self, view: WorkerView, now: Timestamp) {
        let name = view.stamp.node.name.clone();
        let entry = self.entries.entry(name.clone()).or_default();
        let known = entry.workers.get(&view.id.name);
        let since = match known {
            Some(known) if known.view.id == view.id && is_same_stage(&known.view, &view) => known.since,
            _ => now,
        };
        let asked_for = known.filter(|known| known.view.id == view.id).and_then(|known| known.asked_for);
        if let Some(known) = known.filter(|known| known.view.id != view.id) {
            entry.vanished = Some(known.as_ref().into());
        }
        if let Some(known) = known {
            self.workers.forget(&known.view);
        }
        self.workers.count(&view);
        let name_of_pod = view.id.name.clone();
        entry.workers.insert(name_of_pod, Box::new(SeenWorker { view, since, asked_for }));
        self.touched.insert(name);
    }

    /// Records when this process ordered the worker of a node. If a later worker is known by now, the time is still a
    /// lower bound.
    pub(crate) fn worker_was_asked_for(&mut self, node: &NodeRef, at: Timestamp) {
        let entry = self.entries.get_mut(&node.name);
        if let Some(worker) = entry.and_then(|entry| entry.workers.get_mut(&worker_name(&node.uid))) {
            worker.asked_for = Some(at);
        }
    }

    /// Gives every worker that has not ended, or is not gone yet although it was deleted, its full time again. A lease
    /// changes hands when the API server was out of reach, and then a kubelet could not report anything about it either.
    pub(crate) fn restart_workers(&mut self, now: Timestamp) {
        for (name, entry) in &mut self.entries {
            for worker in entry.workers.values_mut() {
                if worker.view.leaving || !matches!(worker.view.stage, Stage::Ended(_)) {
                    worker.since = now;
                    self.touched.insert(name.clone());
                }
            }
        }
    }

    pub(super) fn worker_gone(&mut self, id: &WorkerRef, node: &NodeName, version: Version, source: Source) {
        if source == Source::Watch {
            self.latest.advance(&FEED, version);
        }
        let entry = self.entries.get(node);
        let known = entry.and_then(|entry| entry.workers.get(&id.name));
        if known.is_some_and(|known| known.view.id == *id && known.view.version <= version) {
            self.forget_worker(node, &id.name);
        }
    }

    pub(super) fn workers(&mut self, views: Vec<WorkerView>, version: Version, now: Timestamp) {
        let listed: BTreeSet<String> = views.iter().map(|view| view.id.name.clone()).collect();
        let floor = self.latest.floor(&FEED, version);
        for view in views {
            let known = self.worker_version(&view.stamp.node.name, &view.id.name);
            if is_news_in_list(known, view.version, version, floor) {
                self.set_worker(view, now);
            }
        }
        self.latest.advance(&FEED, version);
        let all =
            self.entries.iter().flat_map(|(node, entry)| entry.workers.values().map(move |w| (node, w)));
        let gone: Vec<(NodeName, String)> = all
            .filter(|(_, worker)| !listed.contains(&worker.view.id.name) && worker.view.version <= version)
            .map(|(node, worker)| (node.clone(), worker.view.id.name.clone()))
            .collect();
        for (node, worker) in &gone {
            self.forget_worker(node, worker);
        }
    }

    pub(super) fn forget_worker(&mut self, node: &NodeName, worker: &str) {
        self.touched.insert(node.clone());
        if let Some(entry) = self.entries.get_mut(node)
            && let Some(gone) = entry.workers.remove(worker)
        {
            self.workers.forget(&gone.view);
            entry.vanished = Some(gone.as_ref().into());
        }
        self.drop_if_empty(node);
    }
}

impl WorkerCounts {
    fn count(&mut self, worker: &WorkerView) {
        *self.stage(&worker.stage) += 1;
        self.live += usize::from(is_live(worker));
    }

    fn forget(&mut self, worker: &WorkerView) {
        *self.stage(&worker.stage) -= 1;
        self.live -= usize::from(is_live(worker));
    }

    fn stage(&mut self, stage: &Stage) -> &mut usize {
        match stage {
            Stage::Pending(_) => &mut self.pending,
            Stage::Running => &mut self.running,
            Stage::Ended(Ending::Exited { code: 0, .. }) => &mut self.succeeded,
            Stage::Ended(_) => &mut self.failed,
        }
    }
}

/// It has not ended. A worker that is being deleted does not count either, because it may remain for as long as its
/// kubelet is gone.
fn is_live(worker: &WorkerView) -> bool {
    !matches!(worker.stage, Stage::Ended(_)) && !worker.leaving
}

fn is_same_stage(one: &WorkerView, other: &WorkerView) -> bool {
    std::mem::discriminant(&one.stage) == std::mem::discriminant(&other.stage) && one.leaving == other.leaving
}

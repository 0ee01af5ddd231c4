//! What is known of init pods.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::{Latest, SeenInitPod, World, is_news};
use crate::ids::{NodeName, Uid, Version};
use crate::view::InitPodView;

/// What a watch still tells this long after a restart was seen may be from before it.
const LATE: SignedDuration = SignedDuration::from_secs(60);

impl World {
    pub(super) fn init_pod(&mut self, view: InitPodView, now: Timestamp) {
        if is_news(self.init_pod_version(&view.host, &view.uid), view.version, self.latest.init_pods) {
            self.latest.init_pods = self.latest.init_pods.max(view.version);
            self.set_init_pod(view, now);
        }
    }

    pub(super) fn init_pod_version(&self, host: &NodeName, uid: &Uid) -> Option<Version> {
        self.entries.get(host)?.init_pods.get(uid).map(|pod| pod.view.version)
    }

    pub(super) fn set_init_pod(&mut self, view: InitPodView, now: Timestamp) {
        self.touched.insert(view.host.clone());
        let entry = self.entries.entry(view.host.clone()).or_default();
        // A pod that was there before we saw its node, and was not told of: then we did not see the node join.
        let is_earlier = entry.view.is_some() && view.version <= entry.met;
        if is_earlier && entry.doubt.is_none() {
            entry.begin_to_doubt(entry.met, now);
        }
        let may_be_late = entry.restart_seen.is_some_and(|at| now < at + LATE);
        let in_doubt = entry.doubt.is_some_and(|doubt| now < doubt.since + LATE);
        let is_older = entry.doubt.is_some_and(|doubt| view.version <= doubt.version);
        let pods = &mut entry.init_pods;
        let known = pods.remove(&view.uid);
        let is_anew =
            known.as_ref().is_some_and(|known| known.view.containers != view.containers && !is_older);
        let was_restarted = known.as_ref().is_some_and(|known| known.restarted);
        let restarted = was_restarted || is_anew;
        let is_come_upon = known.is_none() && entry.doubt.is_some();
        let (before, mut outlived, mut found) =
            known.map(|known| (known.view.annotations, known.outlived, known.found)).unwrap_or_default();
        if in_doubt && is_anew && !was_restarted {
            outlived.extend(before);
        }
        outlived.retain(|key, value| view.annotations.get(key) == Some(value));
        // Also what is seen together with the new containers: it may have been there before them.
        if may_be_late && !was_restarted {
            outlived.extend(view.annotations.clone());
        }
        found.retain(|key, value| view.annotations.get(key) == Some(value));
        if is_come_upon || is_older {
            found.clone_from(&view.annotations);
        }
        pods.insert(view.uid.clone(), SeenInitPod { view, restarted, outlived, found });
    }

    pub(super) fn init_pod_gone(&mut self, uid: &Uid, host: &NodeName, version: Version) {
        self.latest.init_pods = self.latest.init_pods.max(version);
        let pods = self.entries.get(host).map(|entry| &entry.init_pods);
        if pods.and_then(|pods| pods.get(uid)).is_some_and(|known| known.view.version <= version) {
            self.forget_init_pod(host, uid);
        }
    }

    pub(super) fn init_pods(&mut self, views: Vec<InitPodView>, version: Version, now: Timestamp) {
        let listed: BTreeSet<Uid> = views.iter().map(|view| view.uid.clone()).collect();
        for view in views {
            let known = self.init_pod_version(&view.host, &view.uid);
            if is_news(known, view.version, Latest::floor(self.latest.init_pods, version)) {
                self.set_init_pod(view, now);
            }
        }
        self.latest.init_pods = self.latest.init_pods.max(version);
        let all = self
            .entries
            .iter()
            .flat_map(|(node, entry)| entry.init_pods.values().map(move |pod| (node, pod)));
        let gone: Vec<(NodeName, Uid)> = all
            .filter(|(_, pod)| !listed.contains(&pod.view.uid) && pod.view.version <= version)
            .map(|(node, pod)| (node.clone(), pod.view.uid.clone()))
            .collect();
        for (node, uid) in &gone {
            self.forget_init_pod(node, uid);
        }
    }

    pub(super) fn forget_init_pod(&mut self, host: &NodeName, uid: &Uid) {
        self.touched.insert(host.clone());
        if let Some(entry) = self.entries.get_mut(host) {
            entry.init_pods.remove(uid);
        }
        self.drop_if_empty(host);
    }
}

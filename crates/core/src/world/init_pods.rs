//! Init pods. Several feeds may show the same pod, each in the order of its versions, and one may be ahead of another.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{Doubt, NodeEntry, World, is_news, is_news_in_list};
use crate::feed::Feed;
use crate::ids::{NodeName, Uid, Version};
use crate::view::InitPodView;

/// Events that a watch delivers within this long after a restart was seen may predate it.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// An init pod, and whether its status may predate a restart.
#[derive(Debug)]
pub struct SeenInitPod {
    pub view: InitPodView,
    /// Its containers have been started again since the doubt arose.
    pub restarted: bool,
    /// The annotations that it carried when the node was restarted. A restart does not remove them, so they say nothing
    /// about the time after it.
    pub outlived: BTreeMap<String, String>,
    /// The annotations that it carried when this process first saw it. They may have outlived a restart that this
    /// process did not see.
    pub found: BTreeMap<String, String>,
    /// The feeds that show it, each with the version last shown. A list, because there is usually only one.
    shown_by: Vec<(Feed, Version)>,
    outdated: Option<Outdated>,
}

/// One feed no longer shows a pod, and no other feed has shown its new state yet. Until then the last known status of
/// the pod does not count: it is treated as not ready, and all its annotations as old.
#[derive(Debug)]
struct Outdated {
    /// The version as of which the known state of the pod is outdated.
    since: Version,
    /// The annotations that had outlived a restart before the pod became outdated.
    outlived: BTreeMap<String, String>,
}

/// How far the status of a node's pods can be relied on at this moment.
struct Moment {
    restart_seen: Option<Timestamp>,
    doubt: Option<Doubt>,
    now: Timestamp,
}

impl Moment {
    fn of(entry: &NodeEntry, now: Timestamp) -> Self {
        Self { restart_seen: entry.restart_seen, doubt: entry.doubt, now }
    }

    fn may_be_late(&self) -> bool {
        self.restart_seen.is_some_and(|at| self.now < at + LATE)
    }

    fn is_in_doubt(&self) -> bool {
        self.doubt.is_some_and(|doubt| self.now < doubt.since + LATE)
    }

    fn is_before_doubt(&self, version: Version) -> bool {
        self.doubt.is_some_and(|doubt| version <= doubt.version)
    }
}

impl SeenInitPod {
    /// A pod that was not known before.
    fn new(view: InitPodView, moment: &Moment) -> Self {
        let said = |counts: bool| if counts { view.annotations.clone() } else { BTreeMap::new() };
        let (outlived, found) = (said(moment.may_be_late()), said(moment.doubt.is_some()));
        Self { view, restarted: false, outlived, found, shown_by: Vec::new(), outdated: None }
    }

    /// The same pod in a new version.
    fn changed(self, view: InitPodView, moment: &Moment) -> Self {
        let Self { view: known, restarted: was_restarted, outlived, mut found, shown_by, outdated } = self;
        let since = outdated.as_ref().map(|outdated| outdated.since);
        let mut outlived = outdated.map_or(outlived, |outdated| outdated.outlived);
        let is_older = moment.is_before_doubt(view.version);
        let is_started_again = known.containers != view.containers && !is_older;
        if moment.is_in_doubt() && is_started_again && !was_restarted {
            outlived.extend(known.annotations);
        }
        outlived.retain(|key, value| view.annotations.get(key) == Some(value));
        // This includes annotations that are first seen together with the new containers: they may be older than these.
        if moment.may_be_late() && !was_restarted {
            outlived.extend(view.annotations.clone());
        }
        found.retain(|key, value| view.annotations.get(key) == Some(value));
        if is_older {
            found.clone_from(&view.annotations);
        }
        let restarted = was_restarted || is_started_again;
        let mut pod = Self { view, restarted, outlived, found, shown_by, outdated: None };
        if let Some(since) = since.filter(|since| pod.view.version < *since) {
            pod.expire(since);
        }
        pod
    }

    /// Handles a restart of its node.
    pub(super) fn outlive(&mut self) {
        self.outlived.clone_from(&self.view.annotations);
        if let Some(outdated) = &mut self.outdated {
            outdated.outlived.clone_from(&self.view.annotations);
        }
    }

    /// Its status does not count until it is shown in this version or a later one.
    fn expire(&mut self, since: Version) {
        let outlived = match self.outdated.take() {
            Some(outdated) => outdated.outlived,
            None => std::mem::replace(&mut self.outlived, self.view.annotations.clone()),
        };
        self.view.ready = false;
        self.outdated = Some(Outdated { since, outlived });
    }

    fn last_shown_by(&self, feed: &Feed) -> Option<Version> {
        self.shown_by.iter().find(|(shown_by, _)| shown_by == feed).map(|(_, version)| *version)
    }

    fn show(&mut self, feed: &Feed, version: Version) {
        self.hide(feed);
        self.shown_by.push((feed.clone(), version));
    }

    fn hide(&mut self, feed: &Feed) {
        self.shown_by.retain(|(shown_by, _)| shown_by != feed);
    }
}

impl World {
    pub(super) fn init_pod(&mut self, view: InitPodView, feed: &Feed, now: Timestamp) {
        let version = view.version;
        if is_news(self.init_pod_shown_by(&view.host, &view.uid, feed), version, self.latest.of(feed)) {
            self.show_init_pod(view, feed, Version::default(), now);
        }
        self.latest.advance(feed, version);
    }

    pub(super) fn init_pod_version(&self, host: &NodeName, uid: &Uid) -> Option<Version> {
        self.entries.get(host)?.init_pods.get(uid).map(|pod| pod.view.version)
    }

    /// The version in which a feed last showed a pod, if the feed shows it.
    fn init_pod_shown_by(&self, host: &NodeName, uid: &Uid, feed: &Feed) -> Option<Version> {
        self.entries.get(host)?.init_pods.get(uid)?.last_shown_by(feed)
    }

    /// A feed shows a pod. Another feed may have shown it in a later version already.
    fn show_init_pod(&mut self, view: InitPodView, feed: &Feed, list: Version, now: Timestamp) {
        let (host, uid, version) = (view.host.clone(), view.uid.clone(), view.version);
        let known = self.init_pod_version(&host, &uid);
        if known.is_none() || is_news_in_list(known, version, list, Version::default()) {
            self.set_init_pod(view, now);
        }
        if let Some(pod) = self.entries.get_mut(&host).and_then(|entry| entry.init_pods.get_mut(&uid)) {
            pod.show(feed, version);
        }
    }

    fn set_init_pod(&mut self, view: InitPodView, now: Timestamp) {
        self.touched.insert(view.host.clone());
        let entry = self.entries.entry(view.host.clone()).or_default();
        // The pod existed before this process first saw its node, so this process did not see the node join.
        let is_earlier = entry.view.is_some() && view.version <= entry.met;
        if is_earlier && entry.doubt.is_none() {
            entry.begin_to_doubt(entry.met, now);
        }
        let moment = Moment::of(entry, now);
        let uid = view.uid.clone();
        let pod = match entry.init_pods.remove(&uid) {
            Some(known) => known.changed(view, &moment),
            None => SeenInitPod::new(view, &moment),
        };
        entry.init_pods.insert(uid, pod);
    }

    pub(super) fn init_pod_gone(&mut self, uid: &Uid, host: &NodeName, version: Version, feed: &Feed) {
        self.latest.advance(feed, version);
        if self.init_pod_shown_by(host, uid, feed).is_some_and(|shown| shown <= version) {
            self.hide_init_pod(host, uid, feed, Some(version));
        }
    }

    pub(super) fn init_pods(
        &mut self,
        views: Vec<InitPodView>,
        version: Version,
        feed: &Feed,
        now: Timestamp,
    ) {
        let listed: BTreeSet<Uid> = views.iter().map(|view| view.uid.clone()).collect();
        let floor = self.latest.floor(feed, version);
        for view in views {
            let shown = self.init_pod_shown_by(&view.host, &view.uid, feed);
            if is_news_in_list(shown, view.version, version, floor) {
                self.show_init_pod(view, feed, version, now);
            }
        }
        self.latest.advance(feed, version);
        let is_gone = |pod: &SeenInitPod, shown: Version| shown <= version && !listed.contains(&pod.view.uid);
        for (host, uid) in self.init_pods_of(feed, is_gone) {
            self.hide_init_pod(&host, &uid, feed, Some(version));
        }
    }

    /// A feed is no longer needed.
    pub(super) fn leave_init_pods(&mut self, feed: &Feed) {
        for (host, uid) in self.init_pods_of(feed, |_, _| true) {
            self.hide_init_pod(&host, &uid, feed, None);
        }
    }

    fn init_pods_of(
        &self,
        feed: &Feed,
        is_wanted: impl Fn(&SeenInitPod, Version) -> bool,
    ) -> Vec<(NodeName, Uid)> {
        let all = self
            .entries
            .iter()
            .flat_map(|(node, entry)| entry.init_pods.values().map(move |pod| (node, pod)));
        all.filter(|(_, pod)| pod.last_shown_by(feed).is_some_and(|shown| is_wanted(pod, shown)))
            .map(|(node, pod)| (node.clone(), pod.view.uid.clone()))
            .collect()
    }

    /// A feed no longer shows a pod, either as of a version or because it is no longer watched.
    fn hide_init_pod(&mut self, host: &NodeName, uid: &Uid, feed: &Feed, version: Option<Version>) {
        let Some(entry) = self.entries.get_mut(host) else { return };
        let Some(pod) = entry.init_pods.get_mut(uid) else { return };
        pod.hide(feed);
        if pod.shown_by.is_empty() {
            entry.init_pods.remove(uid);
        } else if let Some(version) = version
            && pod.view.version <= version
            && feed.shows(&pod.view)
        {
            // This feed would still show the pod in its known state, so the pod has changed.
            pod.expire(version);
        } else {
            return;
        }
        self.touched.insert(host.clone());
        self.drop_if_empty(host);
    }
}

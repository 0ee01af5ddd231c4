//! Nodes.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Sight, Source, World, is_news, is_news_in_list};
use crate::feed::{Feed, ObjectKind};
use crate::ids::{NodeName, NodeRef, Version};
use crate::names;
use crate::state::NodeState;
use crate::view::NodeView;

const FEED: Feed = Feed::of(ObjectKind::Nodes);

impl World {
    pub(super) fn node(&mut self, view: NodeView, source: Source, now: Timestamp) {
        let version = view.version;
        if is_news(self.node_version(&view.id.name), version, self.latest.of(&FEED)) {
            self.set_node(view, Sight::Watched, now);
        }
        if source == Source::Watch {
            self.latest.advance(&FEED, version);
        }
    }

    pub(super) fn node_version(&self, name: &NodeName) -> Option<Version> {
        self.entries.get(name)?.view.as_ref().map(|view| view.version)
    }

    pub(super) fn set_node(&mut self, view: NodeView, sight: Sight, now: Timestamp) {
        let entry = self.entries.entry(view.id.name.clone()).or_default();
        let state = view
            .annotations
            .get(names::STATE_ANNOTATION)
            .and_then(NodeState::parse)
            .filter(|state| state.uid == view.id.uid);
        if state != entry.state {
            entry.state = state;
            entry.state_seen = now;
            entry.state_fact = self.facts;
            // Whether or not this state accounts for the vanished worker, that worker is about the time before.
            entry.vanished = None;
            entry.unsound = false;
        }
        if entry.view.as_ref().is_none_or(|known| known.condition != view.condition) {
            entry.condition_seen = now;
        }
        let is_same = entry.view.as_ref().is_some_and(|known| known.id.uid == view.id.uid);
        entry.ready_since = view.ready.then(|| entry.ready_since.filter(|_| is_same).unwrap_or(now));
        let requested = view.annotations.get(names::RETRY_ANNOTATION);
        let known = entry.view.as_ref().and_then(|known| known.annotations.get(names::RETRY_ANNOTATION));
        if !is_same || requested != known {
            entry.retry_requested = requested.map(|_| now);
        }
        match &entry.view {
            Some(known) if known.id.uid == view.id.uid => {
                if known.boot != view.boot {
                    entry.begin_to_doubt(view.version, now);
                    entry.see_restart(now);
                }
            }
            _ => {
                entry.meet(view.version, sight, now);
            }
        }
        self.touched.insert(view.id.name.clone());
        entry.view = Some(view);
    }

    pub(super) fn node_gone(&mut self, id: &NodeRef, version: Version) {
        self.latest.advance(&FEED, version);
        if self.node_version(&id.name).is_some_and(|known| known <= version) {
            self.forget_node(&id.name);
        }
    }

    pub(super) fn nodes(&mut self, views: Vec<NodeView>, version: Version, now: Timestamp) {
        let listed: BTreeSet<NodeName> = views.iter().map(|view| view.id.name.clone()).collect();
        let floor = self.latest.floor(&FEED, version);
        for view in views {
            let known = self.node_version(&view.id.name);
            if is_news_in_list(known, view.version, version, floor) {
                self.set_node(view, Sight::Listed, now);
            }
        }
        self.latest.advance(&FEED, version);
        let gone: Vec<NodeName> = self
            .entries
            .iter()
            .filter(|(name, entry)| {
                !listed.contains(*name) && entry.view.as_ref().is_some_and(|view| view.version <= version)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in &gone {
            self.forget_node(name);
        }
    }

    pub(super) fn forget_node(&mut self, name: &NodeName) {
        self.touched.insert(name.clone());
        if let Some(entry) = self.entries.get_mut(name) {
            entry.view = None;
            entry.state = None;
            entry.vanished = None;
            entry.occupancy = None;
            entry.unsound = false;
        }
        self.drop_if_empty(name);
    }

    pub(super) fn drop_if_empty(&mut self, name: &NodeName) {
        if let Some(entry) = self.entries.get(name)
            && entry.view.is_none()
            && entry.workers.is_empty()
            && entry.init_pods.is_empty()
        {
            self.entries.remove(name);
        }
    }
}

//! How the engine learns facts, and when it knows enough to decide.

use jiff::Timestamp;

use super::{Engine, NodeTask};
use crate::decide::{History, Mode, survey};
use crate::feed::{Feed, ObjectKind};
use crate::grants::fleet::Noted;
use crate::ids::NodeName;
use crate::world::{Extent, Fact};

impl Engine {
    /// Learns a fact.
    pub fn learn(&mut self, fact: Fact, now: Timestamp) {
        let now = self.not_back(now);
        let fact = match fact {
            Fact::Reread(reread) if self.mode == Mode::Controller && self.world.is_restored(&reread) => {
                Fact::Restored(Feed::of(ObjectKind::Nodes))
            }
            fact => fact,
        };
        if !self.takes_in(&fact) {
            return;
        }
        if let Fact::Reread(reread) = &fact
            && self.tasks.get_mut(&reread.node.name).is_some_and(NodeTask::mark_read)
        {
            self.grants.settled(&reread.node.name);
        }
        self.world.learn(fact, now);
        self.note_touched(now);
    }

    /// Notes what has changed in the world, and reconsiders the nodes concerned.
    pub(super) fn note_touched(&mut self, now: Timestamp) {
        for name in self.world.take_touched() {
            self.note(&name, now);
            self.changed.insert(name);
        }
    }

    pub(super) fn note_workers(&mut self, name: &NodeName, now: Timestamp) {
        let runs_within = self.policy(name).worker.runs_within();
        self.grants.slots.note(name, self.world.entry(name), runs_within, now);
    }

    /// Updates the grants with the node's contribution to the fleet.
    pub(super) fn note(&mut self, name: &NodeName, now: Timestamp) {
        self.note_workers(name, now);
        let entry = self.world.entry(name);
        let member = entry
            .map(|entry| survey(self.context(entry, History::default(), now), entry, self.world.facts()));
        if self.grants.fleet.note(name, member.unwrap_or_default(), now) == Noted::NewRun {
            self.grants.references.learned_result(name);
            self.changed.extend(self.grants.references.waiting().cloned());
        }
    }

    /// A closed node counts as closed until it is open again, no matter who opens it.
    pub(super) fn note_if_open(&mut self, name: &NodeName) {
        let is_closed = self.world.entry(name).is_some_and(|entry| {
            let is_on = |taint| entry.view.as_ref().is_some_and(|view| view.position(taint).is_some());
            self.policy_of(entry).gates.iter().any(|gate| gate.taints.iter().any(is_on))
        });
        if !is_closed {
            self.grants.note_open(name);
        }
    }

    /// Keeps track of the feeds that are known, and returns whether a fact counts. Nothing is decided on partial
    /// knowledge, so a feed has to start with a list.
    fn takes_in(&mut self, fact: &Fact) -> bool {
        let Some((feed, extent)) = fact.feed() else {
            // An answer to a read that predates a restore is outdated.
            let is_known = |kind| self.known.contains(&Feed::of(kind));
            return !matches!(fact, Fact::Reread(_))
                || is_known(ObjectKind::Nodes) && is_known(ObjectKind::Workers);
        };
        let is_known = self.known.contains(&feed);
        match extent {
            Extent::One => is_known,
            Extent::All => {
                let is_watched = self.feeds.contains(&feed);
                if is_watched && !is_known {
                    self.known.insert(feed);
                }
                is_watched
            }
            // The first feed that detects a restore resets all of them, because what the others know predates it. They
            // then start with a list, too.
            Extent::Nothing if is_known => {
                self.known.clear();
                self.starts_over = true;
                self.ticket_at_restore = self.next_ticket;
                self.grants.fleet.start_over(self.now);
                self.tasks.values_mut().for_each(NodeTask::start_over);
                self.grants.clear();
                true
            }
            Extent::Nothing => false,
        }
    }

    /// Returns whether every essential feed has been listed. Until then nothing is decided.
    #[must_use]
    pub fn knows_enough(&self) -> bool {
        self.feeds.iter().filter(|feed| feed.kind().is_essential()).all(|feed| self.known.contains(feed))
    }
}

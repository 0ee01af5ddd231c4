//! What the engine learns, and when it knows enough to decide.

use jiff::Timestamp;

use super::{Engine, NodeTask};
use crate::decide::{Mode, Refusals, survey};
use crate::feed::{Feed, Kind};
use crate::ids::NodeName;
use crate::world::{Extent, Fact};

impl Engine {
    /// Learns a fact.
    pub fn learn(&mut self, fact: Fact, now: Timestamp) {
        let now = self.not_back(now);
        let fact = match fact {
            Fact::Reread(reread) if self.mode == Mode::Controller && self.world.is_restored(&reread) => {
                Fact::Restored(Feed::of(Kind::Nodes))
            }
            fact => fact,
        };
        if !self.takes_in(&fact) {
            return;
        }
        if let Fact::Reread(reread) = &fact
            && let Some(task) = self.tasks.get_mut(&reread.node.name)
        {
            task.mark_read();
        }
        self.world.learn(fact, now);
        for name in self.world.take_touched() {
            self.note(&name, now);
            self.changed.insert(name);
        }
    }

    pub(super) fn note_workers(&mut self, name: &NodeName, now: Timestamp) {
        let entry = self.world.entry(name);
        let policy = entry.map_or(self.policies.fallback().as_ref(), |entry| self.policy_of(entry));
        let runs_within = policy.worker.runs_within();
        self.grants.slots.note(name, entry, runs_within, now);
    }

    /// Takes note of what a node means for all of them together.
    pub(super) fn note(&mut self, name: &NodeName, now: Timestamp) {
        self.note_workers(name, now);
        let entry = self.world.entry(name);
        let member = entry
            .map(|entry| survey(self.context(entry, Refusals::default(), now), entry, self.world.facts()));
        self.grants.fleet.note(name, member.unwrap_or_default(), now);
    }

    /// Keeps track of what is known. Says whether a fact counts: nothing is decided on half a picture, so a feed that is
    /// not known begins with a list.
    fn takes_in(&mut self, fact: &Fact) -> bool {
        let Some((feed, extent)) = fact.feed() else {
            // What was read before everything started over is from before that.
            let is_known = |kind| self.known.contains(&Feed::of(kind));
            return !matches!(fact, Fact::Reread(_)) || is_known(Kind::Nodes) && is_known(Kind::Workers);
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
            // The first feed that finds out starts everything over, because what the others know is from before that. The
            // others then begin with a list, too.
            Extent::Nothing if is_known => {
                self.known.clear();
                self.starts_over = true;
                self.grants.fleet.start_over(self.now);
                self.tasks.values_mut().for_each(NodeTask::mark_unclear);
                self.grants.clear();
                true
            }
            Extent::Nothing => false,
        }
    }

    /// Whether all is known that decisions rest on. Until then none is made.
    #[must_use]
    pub fn knows_enough(&self) -> bool {
        self.feeds.iter().filter(|feed| feed.kind().is_essential()).all(|feed| self.known.contains(feed))
    }
}

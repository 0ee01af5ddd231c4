//! History of the number of nodes, and of the startup taints of Karpenter's pools.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use knr_core::ids::NodeName;
use knr_core::view::PoolView;

/// Every process knows of a change to a pool after this time, if the event is not lost.
const KNOWN_WITHIN: SignedDuration = SignedDuration::from_mins(1);
/// Everything is listed again within this time: every ten minutes, when the loop gets to it and the request succeeds.
const LISTED_WITHIN: SignedDuration = SignedDuration::from_mins(12);

/// The number of some of the nodes over time.
#[derive(Debug, Default)]
pub(super) struct Count {
    names: BTreeSet<NodeName>,
    /// The number of nodes from each of these times on.
    history: Vec<(Timestamp, usize)>,
}

impl Count {
    /// Records whether a node is one of them.
    pub(super) fn note(&mut self, name: &NodeName, is_one: bool, now: Timestamp) {
        let changed = if is_one { self.names.insert(name.clone()) } else { self.names.remove(name) };
        if changed {
            self.history.push((now, self.names.len()));
        }
    }

    /// Returns the most of them that there were at any time since then.
    pub(super) fn most_since(&self, since: Timestamp) -> usize {
        let first = self.history.partition_point(|(at, _)| *at <= since).saturating_sub(1);
        self.history[first.min(self.history.len())..].iter().map(|(_, count)| *count).max().unwrap_or(0)
    }
}

/// The startup taints of Karpenter's pools over time.
#[derive(Debug)]
pub(super) struct Pools {
    history: Vec<(Timestamp, BTreeMap<String, BTreeSet<String>>)>,
    /// When an event about a pool was lost.
    lost: Vec<Timestamp>,
}

impl Pools {
    pub(super) fn new(pools: &[PoolView], now: Timestamp) -> Self {
        let mut known = Self { history: Vec::new(), lost: Vec::new() };
        known.note(pools, now);
        known
    }

    /// An event about a pool was lost.
    pub(super) fn lost(&mut self, now: Timestamp) {
        self.lost.push(now);
    }

    /// Returns the time since which a process may not have learned of a change by `at`: what it missed because an event
    /// was lost it learns from the next list.
    pub(super) fn unknown_since(&self, at: Timestamp) -> Timestamp {
        let was_lost = |lost: &Timestamp| (at - LISTED_WITHIN..=at).contains(lost);
        let lost = self.lost.iter().copied().filter(was_lost).min();
        lost.unwrap_or(at) - KNOWN_WITHIN
    }

    /// Records that the pools were edited.
    pub(super) fn note(&mut self, pools: &[PoolView], now: Timestamp) {
        let keys = pools.iter().map(|pool| (pool.name.clone(), pool.startup_taints.clone()));
        self.history.push((now, keys.collect()));
    }

    /// Returns whether a pool listed this key as a startup taint at any time since then.
    pub(super) fn knew(&self, pool: &str, key: &str, since: Timestamp) -> bool {
        let first = self.history.partition_point(|(at, _)| *at <= since).saturating_sub(1);
        self.history[first..].iter().any(|(_, pools)| pools.get(pool).is_some_and(|keys| keys.contains(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_most_since_a_time_includes_those_who_were_there_before() {
        let mut managed = Count::default();
        assert_eq!(managed.most_since(at(0)), 0);
        managed.note(&"a".into(), true, at(1));
        managed.note(&"b".into(), true, at(2));
        managed.note(&"a".into(), false, at(3));
        assert_eq!([0, 2, 3, 9].map(|second| managed.most_since(at(second))), [2, 2, 1, 1]);
    }

    #[test]
    fn what_a_pool_knew_lately_is_known() {
        let pool = |keys: &[&str]| PoolView {
            name: "p".to_owned(),
            startup_taints: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        let mut pools = Pools::new(&[pool(&["k"])], at(0));
        pools.note(&[pool(&[])], at(5));
        assert!(pools.knew("p", "k", at(4)) && !pools.knew("p", "k", at(5)));
        assert!(!pools.knew("p", "other", at(0)) && !pools.knew("other", "k", at(0)));
    }

    #[test]
    fn a_lost_event_is_made_up_for_by_the_next_list() {
        let mut pools = Pools::new(&[], at(0));
        let unknown_for =
            |pools: &Pools, second| (at(second) - pools.unknown_since(at(second))).get_seconds();
        assert_eq!(unknown_for(&pools, 1_000), 60);
        pools.lost(at(1_000));
        assert_eq!([900, 1_000, 1_720, 1_721].map(|second| unknown_for(&pools, second)), [60, 60, 780, 60]);
    }
}

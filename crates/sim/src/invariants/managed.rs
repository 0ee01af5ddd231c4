//! How many nodes there were to look after, and what Karpenter's pools knew, and when.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use knr_core::ids::NodeName;
use knr_core::view::PoolView;

/// How many nodes there were to look after.
#[derive(Debug, Default)]
pub(super) struct Managed {
    names: BTreeSet<NodeName>,
    /// How many there were from each of these times on.
    history: Vec<(Timestamp, usize)>,
}

impl Managed {
    /// A node is looked after, or is not.
    pub(super) fn note(&mut self, name: &NodeName, is_managed: bool, now: Timestamp) {
        let changed = if is_managed { self.names.insert(name.clone()) } else { self.names.remove(name) };
        if changed {
            self.history.push((now, self.names.len()));
        }
    }

    /// The most there were at any time since then.
    pub(super) fn most_since(&self, since: Timestamp) -> usize {
        let first = self.history.partition_point(|(at, _)| *at <= since).saturating_sub(1);
        self.history[first.min(self.history.len())..].iter().map(|(_, count)| *count).max().unwrap_or(0)
    }
}

/// What Karpenter's pools knew.
#[derive(Debug)]
pub(super) struct Pools {
    history: Vec<(Timestamp, BTreeMap<String, BTreeSet<String>>)>,
}

impl Pools {
    pub(super) fn new(pools: &[PoolView], now: Timestamp) -> Self {
        let mut known = Self { history: Vec::new() };
        known.note(pools, now);
        known
    }

    /// The pools were edited.
    pub(super) fn note(&mut self, pools: &[PoolView], now: Timestamp) {
        let keys = pools.iter().map(|pool| (pool.name.clone(), pool.startup_taints.clone()));
        self.history.push((now, keys.collect()));
    }

    /// At some time since then a pool knew this taint to be temporary.
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
        let mut managed = Managed::default();
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
}

//! A set of keys ordered by rank, for timers and queues.

use std::collections::{BTreeMap, BTreeSet};

/// Keys ordered by rank. A key has at most one rank.
#[derive(Debug)]
pub(crate) struct Schedule<R, K> {
    ranks: BTreeMap<K, R>,
    order: BTreeSet<(R, K)>,
}

impl<R, K> Default for Schedule<R, K> {
    fn default() -> Self {
        Self { ranks: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<R: Ord + Clone, K: Ord + Clone> Schedule<R, K> {
    /// Sets the rank of a key, or removes the key.
    pub(crate) fn set(&mut self, key: &K, rank: Option<R>) {
        let before = match &rank {
            Some(rank) => self.ranks.insert(key.clone(), rank.clone()),
            None => self.ranks.remove(key),
        };
        if let Some(before) = before {
            self.order.remove(&(before, key.clone()));
        }
        if let Some(rank) = rank {
            self.order.insert((rank, key.clone()));
        }
    }

    pub(crate) fn rank(&self, key: &K) -> Option<&R> {
        self.ranks.get(key)
    }

    pub(crate) fn first(&self) -> Option<&(R, K)> {
        self.order.first()
    }

    /// Removes and returns the first key, if its rank is at most `last`.
    pub(crate) fn pop_until(&mut self, last: &R) -> Option<K> {
        let (_, key) = self.first().filter(|(rank, _)| rank <= last)?.clone();
        self.set(&key, None);
        Some(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(R, K)> {
        self.order.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.ranks.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(schedule: &Schedule<u32, char>) -> String {
        schedule.iter().map(|(_, key)| key).collect()
    }

    #[test]
    fn keys_come_in_the_order_of_their_ranks() {
        let mut schedule = Schedule::default();
        for (key, rank) in [('a', 3), ('b', 1), ('c', 2), ('d', 2)] {
            schedule.set(&key, Some(rank));
        }
        assert_eq!((keys(&schedule).as_str(), schedule.len()), ("bcda", 4));
        assert_eq!(schedule.first(), Some(&(1, 'b')));
    }

    #[test]
    fn a_key_has_one_rank_at_a_time() {
        let mut schedule = Schedule::default();
        for (key, rank) in [('a', 1), ('b', 2), ('a', 3), ('a', 3)] {
            schedule.set(&key, Some(rank));
        }
        assert_eq!((keys(&schedule).as_str(), schedule.len()), ("ba", 2));
        schedule.set(&'b', None);
        schedule.set(&'c', None);
        assert_eq!((keys(&schedule).as_str(), schedule.len()), ("a", 1));
    }

    #[test]
    fn only_what_is_due_is_taken_out() {
        let mut schedule = Schedule::default();
        for (key, rank) in [('a', 1), ('b', 2), ('c', 3)] {
            schedule.set(&key, Some(rank));
        }
        let due: String = std::iter::from_fn(|| schedule.pop_until(&2)).collect();
        assert_eq!((due.as_str(), keys(&schedule).as_str(), schedule.len()), ("ab", "c", 1));
        schedule.clear();
        assert_eq!((schedule.first(), schedule.len()), (None, 0));
    }
}

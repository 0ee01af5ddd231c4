//! Paths of values in the configuration.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// The path from the root of the configuration to a value, such as `nodeManagement.taints[1].effect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path(Vec<Step>);

impl Path {
    /// The path to a key, given the keys that lead to it.
    pub(super) fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|&key| Step::Key(key.to_owned())).collect())
    }

    /// Parses a path such as `nodeManagement.taints[0].key`.
    pub(super) fn parse(text: &str) -> Self {
        text.split(['.', '[']).fold(Self::default(), |path, part| {
            match part.strip_suffix(']').and_then(|index| index.parse().ok()) {
                Some(index) => path.index(index),
                None => path.key(part),
            }
        })
    }

    /// The path to a key of this mapping.
    pub(super) fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    /// The path to an item of this list.
    pub(super) fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The path to the parent of this value.
    pub(super) fn parent(&self) -> Option<Self> {
        let (_, steps) = self.0.split_last()?;
        Some(Self(steps.to_vec()))
    }

    /// Returns whether one of the two paths equals or contains the other.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine == theirs)
    }

    /// Follows the path down a tree, with the given functions for keys and indexes.
    pub(super) fn follow<T>(
        &self,
        root: T,
        by_key: impl Fn(T, &str) -> Option<T>,
        by_index: impl Fn(T, usize) -> Option<T>,
    ) -> Option<T> {
        self.0.iter().try_fold(root, |at, step| match step {
            Step::Key(key) => by_key(at, key),
            Step::Index(index) => by_index(at, *index),
        })
    }

    /// The last key, if the path ends in one.
    pub(super) fn last_key(&self) -> Option<&str> {
        match self.0.last() {
            Some(Step::Key(key)) => Some(key),
            _ => None,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if is_plain(key) => {
                    write!(f, "{}{key}", if position == 0 { "" } else { "." })?;
                }
                Step::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

/// A key with a dot in it would read like two.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_the_file() {
        let taints = Path::of(&["nodeManagement", "taints"]);
        assert_eq!(taints.index(1).key("effect").to_string(), "nodeManagement.taints[1].effect");
        assert_eq!(Path::of(&["a"]).key("nvidia.com/gpu").to_string(), r#"a["nvidia.com/gpu"]"#);
        assert_eq!(Path::default().to_string(), "");
        assert_eq!(Path::parse("nodeManagement.taints[1].effect"), taints.index(1).key("effect"));
    }

    #[test]
    fn overlap_is_containment_either_way() {
        let list = Path::of(&["gates"]);
        assert!(list.overlaps(&list.index(0).key("name")));
        assert!(list.index(0).overlaps(&list));
        assert!(!list.index(0).overlaps(&list.index(1)));
    }
}

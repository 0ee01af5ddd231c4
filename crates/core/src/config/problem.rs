//! What is wrong with a configuration, said so that a person can mend it.

use std::fmt;

use super::path::Path;
use super::tree::Node;

/// A place in a file. Both numbers start at 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Line.
    pub line: u64,
    /// Column.
    pub column: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `nodeManagement.taints[1].effect`, or the environment variable. Empty if the file as a
    /// whole is meant.
    pub path: String,
    /// Where in the file. Environment variables have no such place.
    pub location: Option<Location>,
    /// What is wrong and what was expected.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = self.location {
            write!(f, "{location}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong, in file order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// The problems, in file order.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    pub(super) fn one(problem: Problem) -> Self {
        Self(vec![problem])
    }

    /// The value, unless there is a problem with it.
    pub(super) fn none_or<T>(value: T, problems: impl Iterator<Item = Problem>) -> Result<T, Self> {
        let mut problems: Vec<Problem> = problems.collect();
        problems.sort_by_key(|problem| problem.location);
        if problems.is_empty() { Ok(value) } else { Err(Self(problems)) }
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if position == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// A problem before it is known where the configuration came from.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) path: Path,
    /// Other keys that have a part in it: a change there could mend it, too.
    pub(super) related: Vec<Path>,
    /// The place, if it is not that of the value.
    pub(super) location: Option<Location>,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn new(path: Path, message: impl Into<String>) -> Self {
        Self { path, related: Vec::new(), location: None, message: message.into() }
    }

    pub(super) fn related(mut self, paths: impl IntoIterator<Item = Path>) -> Self {
        self.related.extend(paths);
        self
    }

    pub(super) fn at(mut self, location: Option<Location>) -> Self {
        self.location = location;
        self
    }

    /// All keys that have a part in it, the most important one first.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.path).chain(&self.related)
    }

    /// The problem as the reader of the file should see it. If the key that matters most was not written, a
    /// related one that was written is shown instead, else whatever contains the key.
    pub(super) fn in_file(self, tree: &Node) -> Problem {
        let written = self.paths().find(|path| tree.find(path).is_some()).unwrap_or(&self.path);
        let location = self.location.or_else(|| tree.nearest(written));
        Problem { path: written.to_string(), location, message: self.message }
    }
}

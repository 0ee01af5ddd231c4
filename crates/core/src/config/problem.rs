//! Problems with a configuration, worded so that the user can fix them.

use std::fmt;

use super::path::Path;
use super::tree::Node;

/// A place in a file. Both numbers start at 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    pub line: u64,
    pub column: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `nodeManagement.taints[1].effect`, or the environment variable. Empty if the problem is the
    /// file as a whole.
    pub path: String,
    /// The location in the file. Environment variables have none.
    pub location: Option<Location>,
    /// The problem, and what was expected.
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

/// All problems, in file order. Never empty.
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

    /// Returns the value, unless there are problems with it.
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

/// A problem that is not yet attributed to a file or an environment variable.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) path: Path,
    /// Other keys that are involved: a change there could fix the problem, too.
    pub(super) related: Vec<Path>,
    /// The location, if it is not that of the value.
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

    /// All keys that are involved, the most important one first.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.path).chain(&self.related)
    }

    /// The problem as shown to the reader of the file. If the most important key is not in the file, the first related
    /// key that is in the file is shown instead. If there is none, the location is that of the nearest parent.
    pub(super) fn in_file(self, tree: &Node) -> Problem {
        let written = self.paths().find(|path| tree.find(path).is_some()).unwrap_or(&self.path);
        let location = self.location.or_else(|| tree.nearest(written));
        Problem { path: written.to_string(), location, message: self.message }
    }
}

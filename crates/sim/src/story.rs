//! The story of a run, for developers who investigate a failure.

use std::collections::VecDeque;
use std::fmt::{self, Write};

use jiff::Timestamp;

/// The number of lines that are kept.
const KEPT: usize = 20_000;
/// The number of lines about a node that are reported.
const SHOWN: usize = 60;

/// Whether a story is kept. Runs are deterministic, so only one that breaks a rule is repeated with a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoryMode {
    /// Nothing is kept, which is faster.
    Off,
    /// Everything is kept.
    On,
}

/// The events of a run, line by line.
#[derive(Debug)]
pub(crate) struct Story {
    mode: StoryMode,
    lines: VecDeque<(Timestamp, String, String)>,
}

impl Story {
    /// Returns an empty story.
    #[must_use]
    pub(crate) fn new(mode: StoryMode) -> Self {
        Self { mode, lines: VecDeque::new() }
    }

    /// Adds an event. `node` is empty if it concerns the whole cluster.
    pub(crate) fn note(&mut self, at: Timestamp, node: &str, line: impl fmt::Display) {
        if self.mode == StoryMode::Off {
            return;
        }
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back((at, node.to_owned(), line.to_string()));
    }

    /// Returns the last lines about a node or the whole cluster.
    #[must_use]
    pub(crate) fn about(&self, node: &str, start: Timestamp) -> String {
        let concerns =
            |(_, who, _): &&(Timestamp, String, String)| node.is_empty() || who.is_empty() || who == node;
        let lines: Vec<_> = self.lines.iter().filter(concerns).collect();
        let mut text = String::new();
        for (at, who, line) in &lines[lines.len().saturating_sub(SHOWN)..] {
            let since = at.duration_since(start);
            let _ = writeln!(text, "  {:>9.3} s  {who:<6} {line}", since.as_secs_f64());
        }
        text
    }
}

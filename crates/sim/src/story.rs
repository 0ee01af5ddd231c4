//! What happened, for people who have to find out why.

use std::collections::VecDeque;
use std::fmt::{self, Write};

use jiff::Timestamp;

/// So many of the last lines are kept.
const KEPT: usize = 20_000;
/// So many of those that concern a node are told.
const TOLD: usize = 60;

/// Whether a story is kept. It follows from the seed, so only runs in which a rule breaks are told, the second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Nothing is kept, which takes less time.
    Silent,
    /// All of it.
    Aloud,
}

/// What happened, line by line.
#[derive(Debug)]
pub(crate) struct Story {
    telling: Telling,
    lines: VecDeque<(Timestamp, String, String)>,
}

impl Story {
    /// A story that has not begun.
    #[must_use]
    pub(crate) fn new(telling: Telling) -> Self {
        Self { telling, lines: VecDeque::new() }
    }

    /// Notes that something happened, and to which node if to one.
    pub(crate) fn note(&mut self, at: Timestamp, node: &str, line: impl fmt::Display) {
        if self.telling == Telling::Silent {
            return;
        }
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back((at, node.to_owned(), line.to_string()));
    }

    /// The last lines about a node, and what concerns everybody.
    #[must_use]
    pub(crate) fn about(&self, node: &str, start: Timestamp) -> String {
        let concerns =
            |(_, who, _): &&(Timestamp, String, String)| node.is_empty() || who.is_empty() || who == node;
        let lines: Vec<_> = self.lines.iter().filter(concerns).collect();
        let mut text = String::new();
        for (at, who, line) in &lines[lines.len().saturating_sub(TOLD)..] {
            let since = at.duration_since(start);
            let _ = writeln!(text, "  {:>9.3} s  {who:<6} {line}", since.as_secs_f64());
        }
        text
    }
}

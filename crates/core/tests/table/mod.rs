//! Cases as tables: how they are written, turned into a cluster, played and compared.

mod build;
mod play;
mod spec;

pub(crate) use play::play;
pub(crate) use spec::Scene;

use jiff::Timestamp;

const DAY: &str = "2026-03-01T";

/// A time of the one day on which all cases happen: `10:00:30`.
fn clock(text: &str) -> Timestamp {
    format!("{DAY}{text}Z").parse().unwrap_or_else(|error| panic!("{text} is no time of day: {error}"))
}

/// Times in a text as they are written in cases.
fn without_day(text: &str) -> String {
    let mut parts = text.split(DAY);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(&part.replacen('Z', "", 1));
    }
    plain
}

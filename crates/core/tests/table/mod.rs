//! Cases: their format, and how they are turned into a cluster, played and compared.

mod build;
mod play;
mod spec;

pub(crate) use play::play;
pub(crate) use spec::Scene;

use jiff::Timestamp;

const DAY: &str = "2026-03-01T";

/// Parses a time such as `10:00:30` on the one day on which all cases happen.
fn clock(text: &str) -> Timestamp {
    format!("{DAY}{text}Z").parse().unwrap_or_else(|error| panic!("{text} is no time of day: {error}"))
}

/// Expands times such as `at 10:00:30` in a text to full timestamps.
fn with_day(text: &str) -> String {
    let is_time = |part: &&str| part.parse::<jiff::civil::Time>().is_ok();
    let full = |part: &str| match part.get(..8).filter(is_time) {
        Some(time) => format!("{DAY}{time}Z{}", &part[8..]),
        None => part.to_owned(),
    };
    text.split(" at ").map(full).collect::<Vec<_>>().join(" at ")
}

/// Shortens timestamps in a text to the form that is used in cases.
fn without_day(text: &str) -> String {
    let mut parts = text.split(DAY);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(&part.replacen('Z', "", 1));
    }
    plain
}

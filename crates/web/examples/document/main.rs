//! Generates `docs/metrics.md` from the metrics that are really served.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use knr_core::explain::Phase;
use knr_core::report::{CheckOutcome, CheckResult, Report};
use knr_web::{Exposition, Health, Metrics, NodeMetrics};

/// Labels with an open set of values, which cannot be listed.
const OPEN: [&str; 4] = ["check", "node", "resource", "version"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(std::fs::write(file(), document()?)?)
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md")
}

/// One metric family, as the exposition describes it.
#[derive(Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

fn document() -> Result<String, std::fmt::Error> {
    let mut text = String::from(include_str!("introduction.md"));
    text.push_str(&table(&sample()?)?);
    text.push_str(include_str!("daemonset.md"));
    text.push_str(&table(&sample_of_a_node()?)?);
    Ok(text)
}

fn table(exposed: &str) -> Result<String, std::fmt::Error> {
    let mut text = String::from("| name | type | labels | meaning |\n|---|---|---|---|\n");
    for (name, Family { kind, help, labels }) in families(exposed) {
        let suffix = if kind == "counter" { "_total" } else { "" };
        let labels: Vec<String> = labels.iter().map(|(label, values)| in_words(label, values)).collect();
        writeln!(text, "| `{name}{suffix}` | {kind} | {} | {help} |", labels.join("; "))?;
    }
    Ok(text)
}

fn in_words(label: &str, values: &BTreeSet<String>) -> String {
    if OPEN.contains(&label) {
        return format!("`{label}`");
    }
    let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
    format!("`{label}`: {}", values.join(", "))
}

/// Returns an exposition in which every family has a series.
fn sample() -> Result<String, std::fmt::Error> {
    let (metrics, health) = (Metrics::new(true), Health::new());
    let _nodes = health.watch("nodes", Duration::from_secs(1));
    for (name, phase) in [
        ("a", Phase::Unverified),
        ("b", Phase::Pending),
        ("c", Phase::InProgress),
        ("d", Phase::Verified),
        ("e", Phase::Failed),
        ("f", Phase::Deleting),
    ] {
        metrics.node(name, Some(phase));
        metrics.verified(name, Duration::from_secs(1));
        metrics.failed(name);
    }
    metrics.text(&health)
}

fn sample_of_a_node() -> Result<String, std::fmt::Error> {
    let metrics = NodeMetrics::new("a", &["dns".to_owned()]);
    let ran = |name: &str| CheckResult {
        name: name.to_owned(),
        outcome: CheckOutcome::Pass,
        millis: 1,
        note: String::new(),
    };
    let report = Report { checks: vec![ran("dns"), ran("kubernetes")], ..Report::default() };
    metrics.ran(&report, jiff::Timestamp::UNIX_EPOCH);
    metrics.text(&Health::new())
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            name.clone_into(&mut current);
            help.clone_into(&mut families.entry(name.to_owned()).or_default().help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            kind.clone_into(&mut families.entry(name.to_owned()).or_default().kind);
        } else if let Some(family) = families.get_mut(&current) {
            let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
            for (label, value) in labels.iter().flat_map(|(labels, _)| labels.split(',')).filter_map(pair) {
                family.labels.entry(label.to_owned()).or_default().insert(value.to_owned());
            }
        }
    }
    families
}

/// Returns a label and its value, except for the bounds of histogram buckets.
fn pair(label: &str) -> Option<(&str, &str)> {
    let (label, value) = label.split_once('=')?;
    (label != "le").then_some((label, value.trim_matches('"')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_up_to_date() {
        let committed = std::fs::read_to_string(file()).unwrap_or_default();
        let is_up_to_date = committed == document().unwrap();
        assert!(is_up_to_date, "docs/metrics.md is not up to date: run `make generate` and commit it");
    }
}

//! `docs/checks.md` matches the code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use knr_core::config::Config;

use super::ABOUT;
use crate::check::{About, COMMON, Kind};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/checks.md");
    std::fs::read_to_string(path).unwrap_or_default()
}

fn rows(kinds: &[(Kind, &str)]) -> String {
    let mut text = "| Failure | Meaning | Hint |\n| --- | --- | --- |\n".to_owned();
    for (kind, hint) in kinds {
        let _ = writeln!(text, "| `{}` | {} | {hint} |", kind.word(), kind.meaning());
    }
    text
}

fn section(about: &About) -> String {
    format!("### {}\n\n{}\n\n{}", about.name, about.summary, rows(about.kinds))
}

#[test]
fn every_check_and_every_failure_is_in_the_documentation() {
    let page = page();
    let expected: Vec<String> = ABOUT.iter().map(|about| section(about)).chain([rows(&COMMON)]).collect();
    for section in &expected {
        assert!(
            page.contains(section.as_str()),
            "docs/checks.md lacks this; it should have:\n\n{}",
            expected.join("\n")
        );
    }
    let row_count = |text: &str| text.lines().filter(|line| line.starts_with("| `")).count();
    let tables =
        page.split("| Failure |").skip(1).map(|table| table.split("\n\n").next().unwrap_or_default());
    let written: usize = tables.map(row_count).sum();
    assert_eq!(written, row_count(&expected.join("\n")));
}

#[test]
fn the_examples_in_the_documentation_are_valid() {
    let page = page();
    let examples: Vec<&str> =
        page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let config = Config::parse(example).unwrap_or_else(|problems| panic!("{problems}\n{example}"));
        assert_ne!(config, Config::default());
    }
}

#[test]
fn every_kind_is_used_and_has_a_word_of_its_own() {
    let words: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
    assert_eq!(words.len(), Kind::ALL.len());
    let listed: BTreeSet<&str> =
        ABOUT.iter().flat_map(|about| about.kinds).chain(&COMMON).map(|(kind, _)| kind.word()).collect();
    assert_eq!(listed, words);
    for about in ABOUT {
        let once: BTreeSet<&str> = about.kinds.iter().map(|(kind, _)| kind.word()).collect();
        assert_eq!(once.len(), about.kinds.len(), "{}", about.name);
    }
}

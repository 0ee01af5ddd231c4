//! The generated files in `docs/` match the code.
#![allow(clippy::disallowed_methods, reason = "the files to compare with must be read")]

use std::path::Path;

use knr_core::config::Config;

#[path = "../examples/generate/failures.rs"]
mod failures;
#[path = "../examples/generate/reference.rs"]
mod reference;
#[path = "../examples/generate/yaml.rs"]
mod yaml;

#[test]
fn the_generated_files_are_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, text) in reference::files() {
        let committed = std::fs::read_to_string(docs.join(name)).unwrap_or_default();
        assert!(committed == text, "docs/{name} is not up to date: run `make generate` and commit it");
    }
}

#[test]
fn the_default_file_in_the_reference_is_the_default() {
    let text = reference::default_file();
    assert_eq!(Config::parse(&text), Ok(Config::default()), "{text}");
    let [_, (_, reference), _] = reference::files();
    assert!(reference.contains(&text));
}

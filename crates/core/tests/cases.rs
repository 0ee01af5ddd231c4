//! The specification: every file in `tests/cases` is a list of promises, written for operators. This test verifies all
//! of them. See `table/spec.rs` for the format of a case.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "the cases are files")]

mod support;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use table::{Scene, play};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "yaml"));
    files.sort();
    files
}

fn run(file: &Path) -> (usize, Vec<String>) {
    let text = std::fs::read_to_string(file).unwrap();
    let short = file.file_name().unwrap().to_string_lossy().into_owned();
    let cases: Vec<Scene> = match serde_saphyr::from_str(&text) {
        Ok(cases) => cases,
        Err(error) => return (0, vec![format!("{short} cannot be read: {error}\n")]),
    };
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case.name.as_deref().unwrap_or("a case without a name");
        let found = catch_unwind(AssertUnwindSafe(|| play(case))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            vec![format!("    {}\n", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panics"))]
        });
        if !found.is_empty() {
            wrong.push(format!("{short}: {name}\n{}", found.concat()));
        }
    }
    (cases.len(), wrong)
}

#[test]
fn every_promise_is_kept() {
    let (mut cases, mut wrong) = (0, Vec::new());
    for file in files() {
        let (count, found) = run(&file);
        cases += count;
        wrong.extend(found);
    }
    let count = wrong.len();
    assert!(wrong.is_empty(), "{count} of {cases} cases (- expected, + got):\n\n{}", wrong.join("\n"));
    println!("{cases} cases");
}

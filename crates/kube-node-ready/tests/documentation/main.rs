//! Tests that the documentation is true: links resolve, YAML is valid, and everything that it names exists. No cluster
//! is needed.
#![allow(clippy::unwrap_used, clippy::panic)]

mod blocks;
mod commands;
mod links;
mod names;
mod page;
mod schema;

use std::path::{Path, PathBuf};
use std::process::Command;

use page::Page;

/// The program, as it was built for this test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_kube-node-ready");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file of the checkout.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The paths of the files in a folder whose names have this ending, sorted.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let mut files: Vec<String> = entries
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.ends_with(ending))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    files.sort();
    files
}

/// All pages of the documentation.
fn pages() -> Vec<Page> {
    let mut paths =
        ["README.md", "CHANGELOG.md", "deploy/helm/kube-node-ready/README.md"].map(str::to_owned).to_vec();
    paths.extend(files("docs", ".md"));
    paths.extend(files("examples", ".md"));
    paths.iter().map(|path| Page::new(path, &read(path))).collect()
}

/// A made-up page, to test that mistakes are found.
fn sample(text: &str) -> Page {
    Page::new("docs/sample.md", text)
}

/// Fails with all findings on all pages.
fn expect_none(found: impl Fn(&Page) -> Vec<String>) {
    let all: Vec<String> = pages()
        .iter()
        .flat_map(|page| found(page).into_iter().map(|what| format!("{}: {what}", page.path)))
        .collect();
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn links_and_anchors_lead_somewhere() {
    let pages = pages();
    expect_none(|page| links::broken(page, &pages));
}

#[test]
fn every_page_and_example_is_linked_from_the_readme_or_from_a_linked_page() {
    let mut wanted = files("docs", ".md");
    wanted.extend(files("examples", ""));
    let found = links::reachable("README.md", &pages());
    let missing: Vec<&String> = wanted.iter().filter(|path| !found.contains(*path)).collect();
    assert!(missing.is_empty(), "no link leads to {missing:?}");
}

#[test]
fn yaml_and_json_are_what_they_are_said_to_be() {
    let readers = blocks::Readers::new();
    expect_none(|page| readers.wrong(page));
}

#[test]
fn examples_are_what_they_are_said_to_be() {
    let readers = blocks::Readers::new();
    for path in files("examples", ".yaml") {
        let found = readers.wrong_yaml(&read(&path), None);
        assert!(found.is_none(), "{path}: {}", found.unwrap());
    }
}

#[test]
fn the_example_for_karpenter_gives_the_taint_of_the_default_configuration() {
    let pool: serde_json::Value = serde_saphyr::from_str(&read("examples/karpenter-example.yaml")).unwrap();
    let taints = serde_json::to_value(knr_core::config::Config::default().node_management.taints).unwrap();
    assert_eq!(pool["spec"]["template"]["spec"]["startupTaints"], taints);
    assert!(pool["spec"]["template"]["spec"].get("taints").is_none());
}

#[test]
fn the_script_for_a_worker_runs_the_checks_of_a_configuration() {
    let config = Path::new(env!("CARGO_TARGET_TMPDIR")).join("worker.yaml");
    for (file, code) in [("/", 0), ("/no/such/file", 1)] {
        let checks = format!(
            "skipChecks: [dns, kubernetes, network, services], checks: [{{name: own, file: {{path: {file}}}}}]"
        );
        std::fs::write(&config, format!("worker: {{retries: 0, {checks}}}")).unwrap();
        let run = Command::new(root().join("examples/run-worker-local.sh"))
            .arg(&config)
            .env_remove("KUBECONFIG")
            // An exported bash function in place of cargo: the program is already built.
            .env(
                "BASH_FUNC_cargo%%",
                r#"() { while [ "$1" != -- ]; do shift; done; shift; "$PROGRAM" "$@"; }"#,
            )
            .env("PROGRAM", PROGRAM)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert_eq!(run.status.code(), Some(code), "{said}{}", String::from_utf8_lossy(&run.stderr));
        assert!(said.contains(r#""name":"own""#), "{said}");
    }
}

#[test]
fn targets_of_make_exist() {
    let known = commands::targets(&read("Makefile"));
    expect_none(|page| commands::unknown_targets(page, &known));
}

#[test]
fn the_program_takes_the_arguments_that_are_shown() {
    expect_none(|page| commands::rejected(page, PROGRAM));
}

#[test]
fn files_and_values_in_commands_exist() {
    let values = schema::Values::new();
    expect_none(|page| {
        commands::missing_files(page).into_iter().chain(commands::unknown_values(page, &values)).collect()
    });
}

#[test]
fn labels_taints_variables_keys_and_metrics_exist() {
    let known = names::Known::new();
    expect_none(|page| known.unknown(page));
}

#[test]
fn sentences_of_the_controller_are_quoted_as_it_says_them() {
    let sources = ["crates/core/src", "crates/kube-node-ready/src"].map(names::sources).concat();
    let page = Page::new("docs/troubleshooting.md", &read("docs/troubleshooting.md"));
    let quoted: Vec<&str> = ["What the controller says", "Nodes are not deleted"]
        .into_iter()
        .flat_map(|heading| page.first_cells(heading))
        .collect();
    assert!(quoted.len() > 20, "{quoted:?}");
    let missing: Vec<&&str> = quoted.iter().filter(|sentence| !sources.contains(**sentence)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

//! The tables in `docs/rbac.md`, generated from the list of all calls.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use knr_k8s::calls::{Call, Place, Verb, When, Who};

const BEGIN: &str =
    "<!-- Generated from crates/k8s/src/calls.rs. Run `make generate` after a change there. -->\n";
const END: &str = "<!-- End of what is generated. -->\n";

const fn title(who: Who) -> &'static str {
    match who {
        Who::Controller => "Controller",
        Who::Worker => "Worker",
        Who::Daemonset => "DaemonSet",
        Who::Release => "Release, on uninstalling",
        Who::Doctor => "Doctor, in `helm test`",
    }
}

const fn place(place: Place) -> &'static str {
    match place {
        Place::Cluster => "cluster",
        Place::Workers => "workers",
        Place::Own => "own",
        Place::Lease => "lease",
        Place::NodeEvents => "events",
        Place::Gates => "gates",
    }
}

const fn when(when: When) -> &'static str {
    match when {
        When::Always => "always",
        When::LeaderElection => "leader election",
        When::Deletion => "deletion",
        When::Backfill => "backfill",
        When::StartupGates => "startup gates",
    }
}

/// Returns one row for each resource at each place, with all its verbs.
fn rows(who: Who) -> BTreeMap<(When, Place, String), Vec<Verb>> {
    let mut rows: BTreeMap<_, Vec<Verb>> = BTreeMap::new();
    for rule in Call::ALL.iter().map(|call| call.rule()).filter(|rule| rule.who.contains(&who)) {
        let (plural, part) = rule.resource.split_once('/').unwrap_or((rule.resource, ""));
        let group = if rule.group.is_empty() { String::new() } else { format!(".{}", rule.group) };
        let part = if part.is_empty() { String::new() } else { format!("/{part}") };
        let verbs = rows.entry((rule.when, rule.place, format!("{plural}{group}{part}"))).or_default();
        verbs.push(rule.verb);
        verbs.sort_unstable();
    }
    rows
}

fn tables() -> String {
    let mut text = String::new();
    for who in [Who::Controller, Who::Worker, Who::Daemonset, Who::Release, Who::Doctor] {
        let _ = writeln!(text, "\n## {}\n\n| resource | may | place | when |\n|---|---|---|---|", title(who));
        for ((needed, at, resource), verbs) in rows(who) {
            let verbs: Vec<&str> = verbs.into_iter().map(Verb::as_str).collect();
            let _ =
                writeln!(text, "| `{resource}` | {} | {} | {} |", verbs.join(", "), place(at), when(needed));
        }
    }
    text + "\n"
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rbac.md")
}

#[test]
fn the_page_is_up_to_date() {
    let page = std::fs::read_to_string(file()).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/rbac.md says where the tables begin");
    let (_, after) = rest.split_once(END).expect("docs/rbac.md says where the tables end");
    let wanted = format!("{before}{BEGIN}{}{END}{after}", tables());
    // `make generate` sets this variable.
    if std::env::var_os("GENERATE").is_some() {
        return std::fs::write(file(), wanted).unwrap();
    }
    assert!(page == wanted, "docs/rbac.md is not up to date: run `make generate` and commit it");
}

#[test]
fn every_request_is_on_the_page() {
    let tables = tables();
    for call in Call::ALL {
        let described = call.describe();
        let (verb, resource) = described.split_once(' ').unwrap();
        let is_there = |line: &str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            cells.len() > 2
                && cells[1] == format!("`{resource}`")
                && cells[2].split(", ").any(|word| word == verb)
        };
        assert!(tables.lines().any(is_there), "{described} is missing");
    }
}

//! `docs/cli.md`, made from what the command line says of itself.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use clap::{Command, CommandFactory};
use knr_core::config::variables;
use knr_core::names;

use super::Cli;
use crate::exit;

const INTRODUCTION: &str = "# Command line

<!-- Generated from the help texts of the program. Run `make generate` after a change there. -->

One program, one image. What it does, and with which rights, depends on the subcommand.
";

/// As wide as what a pipe gets.
const WIDTH: usize = 100;

fn reference() -> String {
    let mut root = without_values(Cli::command().term_width(WIDTH));
    root.build();
    let mut text = INTRODUCTION.to_owned();
    describe(&root, &root, &mut text);
    exit_codes(&mut text);
    environment(&root, &mut text);
    text
}

/// What the variables hold where this is written is nobody's business.
fn without_values(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_env_values(true)).mut_subcommands(without_values)
}

/// A command and all below it, each with what `--help` prints.
fn describe(root: &Command, command: &Command, text: &mut String) {
    let name = full_name(command);
    let words = name.split(' ').chain(["--help"]);
    let help = root.clone().try_get_matches_from(words).unwrap_err().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    let _ = writeln!(text, "\n## {name}\n\n```text\n$ {name} --help\n{}\n```", lines.join("\n"));
    subcommands(command).for_each(|command| describe(root, command, text));
}

fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or(command.get_name())
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| command.get_name() != "help")
}

fn exit_codes(text: &mut String) {
    let meanings = [
        (0, "It was done. The controller was told to stop and did; no check failed."),
        (exit::FAILED, "Something failed. A check failed; the controller was told to stop a second time."),
        (
            exit::BAD_INPUT,
            "The configuration or the command line is wrong. A worker could not run its checks.",
        ),
        (
            exit::FORBIDDEN,
            "The API server does not let the program do what it must. It names every permission that is missing.",
        ),
    ];
    text.push_str("\n## Exit codes\n\n| Code | Meaning |\n| --- | --- |\n");
    for (code, meaning) in meanings {
        let _ = writeln!(text, "| {code} | {meaning} |");
    }
    text.push_str(
        "\nSIGTERM and SIGINT ask for an orderly end: the controller finishes the writes that it has begun and gives its lease back. \
         A second one\nends it at once.\n",
    );
}

fn environment(root: &Command, text: &mut String) {
    let mut flags: BTreeMap<String, Vec<String>> = BTreeMap::new();
    collect(root, &mut flags);
    text.push_str("\n## Environment variables\n\n| Variable | Meaning |\n| --- | --- |\n");
    for (variable, uses) in flags {
        let _ = writeln!(text, "| `{variable}` | {} |", uses.join(", "));
    }
    for (variable, meaning) in [
        (names::CHECKS_VARIABLE, "What a worker checks, as JSON: the controller hands it over in this way"),
        ("KUBECONFIG", "Where the kubeconfig is, as for kubectl, if nothing else says so"),
        ("NO_COLOR", "No colours, also on a terminal"),
        ("CLICOLOR_FORCE", "Colours, also where there is no terminal"),
    ] {
        let _ = writeln!(text, "| `{variable}` | {meaning} |");
    }
    let keys: Vec<String> = variables().iter().map(|variable| format!("`{}`", variable.name)).collect();
    let _ = writeln!(
        text,
        "\nThese set keys of the [configuration](config.md#environment-variables), in every subcommand:\n{}.",
        keys.join(", ")
    );
}

/// Which flags each variable stands for.
fn collect(command: &Command, flags: &mut BTreeMap<String, Vec<String>>) {
    for arg in command.get_arguments() {
        if let (Some(variable), Some(flag)) = (arg.get_env(), arg.get_long()) {
            let (_, command) = full_name(command).split_once(' ').unwrap_or_default();
            let used = format!("`{command} --{flag}`");
            flags.entry(variable.to_string_lossy().into_owned()).or_default().push(used);
        }
    }
    subcommands(command).for_each(|command| collect(command, flags));
}

fn file() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md")
}

#[test]
fn the_reference_is_up_to_date() {
    let text = reference();
    // `make generate` sets it.
    if std::env::var_os("GENERATE").is_some() {
        return std::fs::write(file(), text).unwrap();
    }
    let committed = std::fs::read_to_string(file()).unwrap_or_default();
    assert!(committed == text, "docs/cli.md is not up to date: run `make generate` and commit it");
}

#[test]
fn the_reference_has_every_flag_and_every_exit_code() {
    let text = reference();
    for part in
        ["--dry-run", "--kubeconfig <FILE>", "--termination-log <FILE>", "[env: POD_NAME]", "manifests rbac"]
    {
        assert!(text.contains(part), "{part} is missing");
    }
    for code in [0, exit::FAILED, exit::BAD_INPUT, exit::FORBIDDEN] {
        assert!(text.contains(&format!("\n| {code} | ")), "{code} is missing");
    }
}

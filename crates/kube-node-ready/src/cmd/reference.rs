//! Generates `docs/cli.md` from the help texts of the command line.

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

There is one program and one image. What it does, and which permissions it needs, depends on the subcommand.
";

/// The width of help texts that go to a pipe.
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

/// Hides the values of environment variables, which depend on the machine that generates the page.
fn without_values(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_env_values(true)).mut_subcommands(without_values)
}

/// Describes a command and all commands below it by their `--help` output.
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
        (0, "Success: a clean shutdown of the controller, or no check failed."),
        (
            exit::FAILED,
            "Failure: a check failed, or the controller got a second signal while it was shutting down.",
        ),
        (
            exit::BAD_INPUT,
            "The configuration or the command line is invalid, or a worker could not run its checks.",
        ),
        (exit::FORBIDDEN, "Permissions are missing. The program names each of them."),
    ];
    text.push_str("\n## Exit codes\n\n| Code | Meaning |\n| --- | --- |\n");
    for (code, meaning) in meanings {
        let _ = writeln!(text, "| {code} | {meaning} |");
    }
    text.push_str(
        "\nOn SIGTERM or SIGINT the controller shuts down cleanly: it finishes the writes that it has begun and releases its lease. \
         A second signal\nends it at once.\n",
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
        (names::CHECKS_VARIABLE, "What a worker checks, as JSON; set by the controller"),
        ("KUBECONFIG", "Path of the kubeconfig, as for kubectl, if it is not set elsewhere"),
        ("NO_COLOR", "No colours, even on a terminal"),
        ("CLICOLOR_FORCE", "Colours, even without a terminal"),
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

/// Collects the flags that each variable sets.
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

//! The program as an operator starts it, and its output.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result};
use fs_err as fs;
use knr_e2e::{Cluster, product};

/// The outcome of a run of the program.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program in an empty environment, so that nothing of this machine leaks in.
pub(crate) fn program(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Command> {
    let mut command = Command::new(product::path()?);
    command.env_clear().env("HOME", "/nonexistent").args(arguments);
    Ok(command)
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> Result<Printed> {
    let Output { status, stdout, stderr } = command.output().with_context(|| format!("{command:?}"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Printed { code: status.code(), out: text(stdout), err: text(stderr) })
}

/// The same command on a terminal, in an environment that is clean as well.
pub(crate) fn on_a_terminal(command: &Command) -> Command {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let line: Vec<_> = words.map(|word| format!("'{}'", word.display())).collect();
    let mut terminal = Command::new("script");
    terminal.env_clear().env("TERM", "xterm").env("SHELL", "/bin/sh");
    terminal.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    terminal.args([
        "--quiet",
        "--return",
        "--flush",
        "--command",
        &format!("exec {}", line.join(" ")),
        "/dev/null",
    ]);
    terminal
}

/// Writes a file for the program.
pub(crate) fn file(cluster: &Cluster, name: &str, text: &str) -> Result<PathBuf> {
    let path = cluster.folder().join(name);
    fs::write(&path, text)?;
    Ok(path)
}

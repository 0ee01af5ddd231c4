//! The subcommands, one file each.

mod check;
mod controller;
mod manifests;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use knr_core::config::Config;

/// Keeps new Kubernetes nodes closed until they have proven that they can do their work.
#[derive(Debug, Parser)]
#[command(name = "kube-node-ready", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the nodes of a cluster, have new ones verified, and open those that are fit.
    Controller(controller::Args),
    /// Run the checks on this node and report: what the controller starts in a pod on each new node.
    Worker(worker::Args),
    /// Run the checks on this machine, for a person.
    Check(check::Args),
    /// Print Kubernetes objects that an installation needs.
    Manifests(manifests::Args),
}

/// Runs a subcommand.
pub(crate) async fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Controller(args) => controller::run(args).await,
        Command::Worker(args) => worker::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Manifests(args) => manifests::run(args),
    }
}

/// A configuration file, and what it holds. Without one: the defaults.
fn load(path: Option<&Path>) -> Result<(Config, Option<(PathBuf, String)>)> {
    let Some(path) = path else { return Ok((Config::default(), None)) };
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("the configuration {shown} cannot be read"))?;
    let config = Config::parse(&text).with_context(|| format!("the configuration {shown} is wrong"))?;
    Ok((config, Some((path.to_owned(), text))))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

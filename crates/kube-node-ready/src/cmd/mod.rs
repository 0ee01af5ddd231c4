//! The subcommands, one file each.

#[cfg(test)]
mod chart;
mod check;
mod controller;
mod daemonset;
mod doctor;
mod manifests;
#[cfg(test)]
mod reference;
mod release;
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::exit::BadInput;
use crate::version;
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use knr_core::config::{Config, LogFormat, Problems};

const LOG_FORMAT: &str = "LOG_FORMAT";

/// Keeps new Kubernetes nodes closed until they have proven that they can do their work.
#[derive(Debug, Parser)]
#[command(name = "kube-node-ready", version = version::LONG.as_str(), propagate_version = true, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the nodes of a cluster, verify new ones, and open those that pass.
    Controller(controller::Args),
    /// Manage the node that this runs on without a controller: check it, open it, and optionally monitor it.
    Daemonset(daemonset::Args),
    /// Run the checks on this node and report the result; the controller starts this in a pod on each new node.
    Worker(worker::Args),
    /// Run the checks on this machine by hand.
    Check(check::Args),
    /// Test an installation on its cluster and leave nothing behind; `helm test` runs this.
    Doctor(doctor::Args),
    /// Open all gates on all nodes permanently; `helm uninstall` runs this.
    Release(release::Args),
    /// Print Kubernetes objects that an installation needs.
    Manifests(manifests::Args),
}

/// Runs a subcommand.
pub(crate) async fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Controller(args) => controller::run(args).await,
        Command::Daemonset(args) => daemonset::run(args).await,
        Command::Worker(args) => worker::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Release(args) => release::run(args).await,
        Command::Manifests(args) => manifests::run(args),
    }
}

/// Settings that override the configuration file: the environment, and the command line, which overrides both.
#[derive(Debug, Clone)]
pub(crate) struct Overrides {
    environment: BTreeMap<String, String>,
    demands: fn(&mut Config),
}

/// A configuration and its origin.
#[derive(Debug)]
struct Loaded {
    config: Config,
    /// The file and its content, if there is one.
    file: Option<(PathBuf, String)>,
    /// The log format, if the file or the environment sets it.
    format: Option<LogFormat>,
}

impl Overrides {
    /// Only the environment of this process.
    fn from_environment() -> Self {
        Self::of(environment())
    }

    /// Only these variables.
    pub(crate) fn of(environment: BTreeMap<String, String>) -> Self {
        Self { environment, demands: |_| {} }
    }

    /// Adds the demands of the command line.
    pub(crate) fn and(self, demands: fn(&mut Config)) -> Self {
        Self { demands, ..self }
    }

    /// Applies the overrides to the configuration of a file.
    pub(crate) fn apply(&self, file: Config) -> Result<Config, Problems> {
        let mut config = Config::from_environment(file, &self.environment)?;
        (self.demands)(&mut config);
        Ok(config)
    }

    /// Reads a configuration file; without one, the defaults apply.
    fn load(&self, path: Option<&Path>) -> Result<Loaded> {
        let (config, file) = match path {
            None => (Config::default(), None),
            Some(path) => {
                let shown = path.display();
                let text = std::fs::read_to_string(path).map_err(|error| {
                    BadInput(format!("the configuration {shown} cannot be read: {error}"))
                })?;
                let config =
                    Config::parse(&text).with_context(|| format!("the configuration {shown} is wrong"))?;
                (config, Some((path.to_owned(), text)))
            }
        };
        let config = self.apply(config).context("the environment is wrong")?;
        let in_file = file.as_ref().is_some_and(|(_, text)| says_format(text));
        let says_how = in_file || self.variable(LOG_FORMAT).is_some();
        Ok(Loaded { format: says_how.then_some(config.logging.format), config, file })
    }

    /// The value of a variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }
}

/// The demand that the flag `--dry-run` makes on a configuration.
fn demands_of(dry_run: bool) -> fn(&mut Config) {
    if dry_run { |config| config.reconciliation.dry_run = true } else { |_| {} }
}

/// The kubeconfig of the command line, or else of the configuration.
fn kubeconfig_of(given: Option<PathBuf>, config: &Config) -> Option<PathBuf> {
    let named = &config.kubernetes.kubeconfig;
    given.or_else(|| (!named.is_empty()).then(|| named.into()))
}

/// Returns true if a configuration sets the log format. If it does not, a terminal gets lines for people.
fn says_format(text: &str) -> bool {
    let tree = serde_saphyr::from_str::<serde_json::Value>(text).unwrap_or_default();
    tree.pointer("/logging/format").is_some()
}

/// The environment, without variables that are not valid UTF-8.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_subcommand_says_its_version_too() {
        for (words, name) in [
            (&["kube-node-ready", "--version"][..], "kube-node-ready"),
            (&["kube-node-ready", "controller", "--version"], "kube-node-ready-controller"),
        ] {
            let said = Cli::try_parse_from(words).unwrap_err().to_string();
            assert_eq!(said, format!("{name} {}\n", *version::LONG));
        }
    }

    #[test]
    fn the_command_line_goes_before_the_configuration_in_naming_a_kubeconfig() {
        let silent = Config::default();
        let named = Config::parse("kubernetes: {kubeconfig: /named}").unwrap();
        let given = || Some(PathBuf::from("/given"));
        assert_eq!(kubeconfig_of(None, &silent), None);
        assert_eq!(kubeconfig_of(None, &named), Some("/named".into()));
        assert_eq!(kubeconfig_of(given(), &named), given());
    }

    fn in_checkout(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(path)).unwrap()
    }

    /// Uncomments keys: prose has a space after its `#`, a key has none.
    fn with_comments_taken_off(text: &str) -> String {
        let uncommented = |line: &str| match line.split_once('#') {
            Some((margin, key)) if margin.trim().is_empty() && !key.starts_with(' ') => {
                format!("{margin}{key}")
            }
            Some((margin, item)) if margin.trim().is_empty() && item.starts_with("  ") => {
                format!("{margin}{item}")
            }
            _ => line.to_owned(),
        };
        text.lines().map(uncommented).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_changes_nothing_and_shows_every_key() {
        let example = in_checkout("examples/controller-config.yaml");
        assert_eq!(Config::parse(&example).unwrap(), Config::default());
        let whole = with_comments_taken_off(&example);
        Config::parse(&whole).unwrap_or_else(|problems| panic!("{problems}\n{whole}"));
        let schema: serde_json::Value =
            serde_json::from_str(&in_checkout("docs/config.schema.json")).unwrap();
        for key in keys(&schema) {
            let is_there = whole.lines().any(|line| {
                let line = line.split('#').next().unwrap_or_default();
                line.match_indices(&format!("{key}:"))
                    .any(|(at, _)| !line[..at].ends_with(char::is_alphanumeric))
            });
            assert!(is_there, "{key} is not in the example");
        }
    }

    /// All keys of a schema, at any depth.
    fn keys(schema: &serde_json::Value) -> Vec<&str> {
        let below = match schema {
            serde_json::Value::Object(map) => map.values().flat_map(keys).collect(),
            serde_json::Value::Array(list) => list.iter().flat_map(keys).collect(),
            _ => Vec::new(),
        };
        let own = schema["properties"].as_object().into_iter().flat_map(|own| own.keys().map(String::as_str));
        own.chain(below).collect()
    }
}

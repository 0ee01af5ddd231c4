//! `kube-node-ready daemonset`: manages the node it runs on.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use knr_core::config::{Config, Level, LogFormat};
use knr_core::names;

use super::controller::{gate, own_namespace};
use super::doctor::duration;
use super::{Loaded, Overrides, kubeconfig_of};
use crate::daemonset::{self, Monitoring, Settings};
use crate::exit::BadInput;
use crate::shutdown;
use crate::telemetry::{self, Output};
use crate::version;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The environment variables in docs/config.md override the file. A command line that begins with a flag \
                        is one of this subcommand: `kube-node-ready --dry-run`.\n\nExit codes: 0 clean shutdown, or no \
                        check failed in a dry run, 1 something failed, 2 the configuration is invalid, 3 a permission is \
                        missing."
)]
pub(crate) struct Args {
    /// Configuration file [default: the default configuration]
    #[arg(long, env = "CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the node that this runs on
    #[arg(long, env = names::NODE_NAME_VARIABLE, value_name = "NAME")]
    node: Option<String>,
    /// Keep running when the node is verified, and close it again if the checks fail too often in a row
    #[arg(long)]
    monitor: bool,
    /// How often the checks run on a verified node, give or take a tenth
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    monitor_interval: Duration,
    /// Consecutive failed runs after which a verified node is closed
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    monitor_failures: u32,
    /// Run all checks once, report what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Kubeconfig, to run outside a cluster [default: the pod's service account, or what kubectl would use]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the pod [default: that of the service account, or kube-system]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Name of this pod in events [default: the name of the node]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// The lowest level that is logged [default: that of the configuration]
    #[arg(long, value_enum, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
    /// The format of the log [default: that of the configuration; console on a terminal]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One object per line
    Json,
    /// Readable text
    Console,
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Debug => Self::Debug,
            LogLevel::Info => Self::Info,
            LogLevel::Warn => Self::Warn,
            LogLevel::Error => Self::Error,
        }
    }
}

impl From<Format> for LogFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Console => Self::Console,
        }
    }
}

/// Manages the node that this process runs on.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let Loaded { config, format, .. } = Overrides::from_environment().load(args.config.as_deref())?;
    refuse_commands(&config)?;
    let level = args.log_level.map_or(config.logging.level, Level::from);
    telemetry::init(level, args.log_format.map(LogFormat::from).or(format), Output::Stdout)?;
    let stop = shutdown::on_signal()?;
    let is_dry_run = args.dry_run || config.reconciliation.dry_run;
    let node = args.node.filter(|node| !node.is_empty());
    let node = match node {
        None if !is_dry_run => {
            return Err(BadInput(format!(
                "the name of the node is not known; give it with --node, or set {}",
                names::NODE_NAME_VARIABLE
            ))
            .into());
        }
        node => node.unwrap_or_default(),
    };
    let monitoring = Monitoring { interval: args.monitor_interval, failures: args.monitor_failures };
    let settings = Settings {
        kubeconfig: kubeconfig_of(args.kubeconfig, &config),
        config,
        namespace: args.namespace.unwrap_or_else(own_namespace),
        identity: args.identity.unwrap_or_else(|| node.clone()),
        node,
        monitoring: args.monitor.then_some(monitoring),
    };
    tracing::info!(
        version = knr_core::VERSION,
        commit = version::COMMIT,
        node = settings.node,
        gate = gate(&settings.config),
        monitor = args.monitor,
        dry_run = is_dry_run,
        "starting"
    );
    if !is_dry_run {
        return daemonset::run(settings, stop).await;
    }
    if !args.dry_run {
        return daemonset::look_on(settings, stop).await;
    }
    tokio::select! {
        code = daemonset::dry_run(settings) => code,
        () = stop.cancelled() => Ok(ExitCode::SUCCESS),
    }
}

/// Refuses a worker command, which a `DaemonSet` pod cannot run: the gate would open although less was checked than was
/// asked for.
fn refuse_commands(config: &Config) -> Result<()> {
    if config.worker.command.is_empty() {
        return Ok(());
    }
    let why = "worker.command is set, but a pod of the DaemonSet runs the built-in checks alone; put your own into \
               worker.initContainers, or take the controller";
    Err(BadInput(why.to_owned()).into())
}

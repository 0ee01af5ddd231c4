//! `kube-node-ready worker`: runs the checks on a node and reports.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use knr_checks::{ApiAccess, fit};
use knr_core::config::{CheckPlan, Level, LogFormat};
use knr_core::names;
use knr_core::report::Report;

use super::{Loaded, Overrides};
use crate::telemetry::{self, Output};
use crate::{exit, shutdown};

/// The default `terminationMessagePath` of a container.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "KUBE_NODE_READY_CHECKS says which checks to run; without it, the configuration file and the \
                        environment variables in docs/config.md do.\n\nExit codes: 0 all checks passed, 1 a check failed, \
                        2 the checks could not be run."
)]
pub(crate) struct Args {
    /// Configuration file [default: the default configuration]
    #[arg(long, env = "CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the node that this runs on: pods on other nodes are preferred
    #[arg(long, env = names::NODE_NAME_VARIABLE, value_name = "NAME")]
    node: Option<String>,
    /// Where the report is written [default: /dev/termination-log if it exists]
    #[arg(long, value_name = "FILE")]
    termination_log: Option<PathBuf>,
}

/// Runs the checks and reports.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let Args { config, node, termination_log } = args;
    let (report, code) = match prepare(config.as_deref()) {
        Ok(plan) => carry_out(&plan, node.as_deref()).await?,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            could_not_run(format!("{error:#}"))
        }
    };
    if let Err(error) = leave(&fit(report), termination_log.as_deref()) {
        anstream::eprintln!("error: the report cannot be written: {error}");
    }
    Ok(code.into())
}

/// Reads the check plan and starts logging.
fn prepare(config: Option<&Path>) -> Result<CheckPlan> {
    let Prepared { plan, level, format } = read(config, &Overrides::from_environment())?;
    telemetry::init(level, format, Output::Stdout)?;
    Ok(plan)
}

/// The check plan, and how to log.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) plan: CheckPlan,
    level: Level,
    format: Option<LogFormat>,
}

/// Reads the check plan that the controller passed, or else that of the file and the environment.
pub(super) fn read(config: Option<&Path>, overrides: &Overrides) -> Result<Prepared> {
    let Loaded { config, format, .. } = overrides.load(config)?;
    let plan = match overrides.variable(names::CHECKS_VARIABLE) {
        Some(text) => {
            CheckPlan::parse(text).with_context(|| format!("{} is wrong", names::CHECKS_VARIABLE))?
        }
        None => config.worker.check_plan(),
    };
    Ok(Prepared { plan, level: config.logging.level, format })
}

async fn carry_out(plan: &CheckPlan, node: Option<&str>) -> Result<(Report, u8)> {
    let stop = shutdown::on_signal()?;
    let checks = async { knr_checks::run(plan, node, ApiAccess::for_worker(None).await).await };
    tokio::select! {
        report = checks => {
            let failed = report.failures();
            tracing::info!(node, checks = report.checks.len(), failed, "checks done");
            Ok((report, if failed == 0 { 0 } else { exit::FAILED }))
        }
        () = stop.cancelled() => {
            let (report, code) = could_not_run("stopped before the checks were done".to_owned());
            Ok((Report { stopped: true, ..report }, code))
        }
    }
}

fn could_not_run(error: String) -> (Report, u8) {
    (Report { error: Some(error), ..Report::default() }, exit::BAD_INPUT)
}

/// Writes the report to the given path, or else to where the kubelet reads it, if this is a container.
fn leave(report: &str, path: Option<&Path>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(true);
    let opened = match path {
        Some(path) => options.create(true).open(path),
        None => options.open(TERMINATION_LOG),
    };
    match opened {
        Ok(mut file) => file.write_all(report.as_bytes()),
        Err(error) if path.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Overrides {
        Overrides::of(pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn what_was_handed_over_counts_and_nothing_else() {
        let handed = CheckPlan { retries: 7, ..CheckPlan::default() };
        let text = serde_json::to_string(&handed).unwrap();
        let both = with(&[(names::CHECKS_VARIABLE, &text), ("CHECK_TIMEOUT", "3s"), ("LOG_LEVEL", "debug")]);
        let prepared = read(None, &both).unwrap();
        assert_eq!((prepared.plan, prepared.level, prepared.format), (handed, Level::Debug, None));
    }

    #[test]
    fn without_it_the_file_and_the_environment_count() {
        let file = std::env::temp_dir().join(format!("worker-{}.yaml", std::process::id()));
        let text = "worker: {retries: 5, timeoutSeconds: 100}";
        std::fs::write(&file, text).unwrap();
        let environment = with(&[("INITIAL_TIMEOUT", "90s"), (names::CHECKS_VARIABLE, "")]);
        let Prepared { plan, format, .. } = read(Some(&file), &environment).unwrap();
        assert_eq!((plan.retries, plan.timeout_seconds, format), (5, 90, None));
        std::fs::write(&file, format!("{text}\nlogging: {{format: json}}")).unwrap();
        assert_eq!(read(Some(&file), &environment).unwrap().format, Some(LogFormat::Json));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read(None, &with(&[])).unwrap().plan, CheckPlan::default());
        assert_eq!(read(None, &with(&[("LOG_FORMAT", "console")])).unwrap().format, Some(LogFormat::Console));
    }

    #[test]
    fn bad_input_is_reported() {
        let said = |overrides| format!("{:#}", read(None, &overrides).unwrap_err());
        let bad = said(with(&[(names::CHECKS_VARIABLE, "{")]));
        assert!(bad.starts_with("KUBE_NODE_READY_CHECKS is wrong: EOF"), "{bad}");
        assert!(said(with(&[("CHECK_TIMEOUT", "x")])).contains("CHECK_TIMEOUT"));
        let missing = format!("{:#}", read(Some(Path::new("/no/such/file")), &with(&[])).unwrap_err());
        assert!(missing.contains("/no/such/file"), "{missing}");
        let (report, code) = could_not_run(bad);
        assert_eq!((report.checks.len(), report.error.is_some(), code), (0, true, 2));
    }

    #[test]
    fn the_report_replaces_what_was_there() {
        let file = std::env::temp_dir().join(format!("termination-{}.log", std::process::id()));
        std::fs::write(&file, "x".repeat(100)).unwrap();
        leave("{}", Some(&file)).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}");
        std::fs::remove_file(&file).unwrap();
        leave("{}", Some(&file)).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}");
        std::fs::remove_file(&file).unwrap();
        assert!(leave("{}", Some(Path::new("/no/such/folder/file"))).is_err());
    }
}

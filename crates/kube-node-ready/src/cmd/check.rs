//! `kube-node-ready check`: runs the checks on this machine, for an operator.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use clap::ValueEnum;
use knr_checks::ApiAccess;
use knr_core::config::{Level, LogFormat};
use knr_core::names;
use knr_core::report::{CheckOutcome, Report};

use super::{Overrides, worker};
use crate::exit;
use crate::telemetry::{self, Output};

pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
const QUIET: Style = AnsiColor::Yellow.on_default();
pub(super) const FAINT: Style = Style::new().dimmed();

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a kubeconfig the checks that need the API server are skipped.\n\nExit codes: 0 no check \
                        failed, 1 a check failed, 2 the configuration is invalid."
)]
pub(crate) struct Args {
    /// Configuration file [default: the default configuration]
    #[arg(long, env = "CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig [default: the pod's service account, or what kubectl would use]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of this machine's node: pods on other nodes are preferred
    #[arg(long, env = names::NODE_NAME_VARIABLE, value_name = "NAME")]
    node: Option<String>,
    /// The format of the result
    #[arg(long, short, value_enum, default_value_t = Form::Table)]
    output: Form,
    /// Log every try
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A table
    Table,
    /// The report of a worker
    Json,
}

/// Runs the checks and prints how they went.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let Args { config, kubeconfig, node, output, verbose } = args;
    let prepared = match worker::read(config.as_deref(), &Overrides::from_environment()) {
        Ok(prepared) => prepared,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            return Ok(exit::BAD_INPUT.into());
        }
    };
    let level = if verbose { Level::Debug } else { Level::Error };
    telemetry::init(level, Some(LogFormat::Console), Output::Stderr)?;
    let api = ApiAccess::for_person(kubeconfig.as_deref()).await;
    let report = knr_checks::run(&prepared.plan, node.as_deref(), api).await;
    match output {
        Form::Table => anstream::print!("{}", table(&report)),
        Form::Json => anstream::println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(if report.failures() == 0 { ExitCode::SUCCESS } else { exit::FAILED.into() })
}

/// A line for each check, a hint below each that failed, and a summary.
pub(super) fn table(report: &Report) -> String {
    let width =
        report.checks.iter().map(|check| check.name.len()).chain(["CHECK".len()]).max().unwrap_or_default();
    let mut text = format!("{FAINT}{:width$}  RESULT   TIME     DETAIL{FAINT:#}\n", "CHECK");
    let margin = width + "  RESULT   TIME     ".len();
    let mut skipped = 0;
    for check in &report.checks {
        let (style, word, took, detail, hint) = match &check.outcome {
            CheckOutcome::Pass => (GOOD, "pass", time(check.millis), check.note.clone(), ""),
            CheckOutcome::Fail(failure) => {
                let detail = format!("{}: {}", failure.kind, failure.detail);
                (BAD, "FAIL", time(check.millis), detail, failure.hint.as_str())
            }
            CheckOutcome::Skipped(why) => {
                skipped += 1;
                (QUIET, "skipped", String::new(), why.clone(), "")
            }
        };
        let line = format!("{:width$}  {style}{word:7}{style:#}  {took:7}  {detail}", check.name);
        let _ = writeln!(text, "{}", line.trim_end());
        if !hint.is_empty() {
            let _ = writeln!(text, "{:margin$}{FAINT}{hint}{FAINT:#}", "");
        }
    }
    let passed = report.checks.len() - report.failures() - skipped;
    let _ = writeln!(text, "\n{passed} passed, {} failed, {skipped} skipped", report.failures());
    text
}

fn time(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis} ms"),
        _ => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use knr_core::fault::Kind;
    use knr_core::report::{CheckResult, Failure};

    use super::*;

    fn result(name: &str, outcome: CheckOutcome, millis: u64, note: &str) -> CheckResult {
        CheckResult { name: name.into(), outcome, millis, note: note.into() }
    }

    #[test]
    fn the_table_is_plain_without_its_colours() {
        let failure = Failure {
            kind: Kind::Timeout.into(),
            detail: "no answer".into(),
            hint: "look at kube-proxy".into(),
        };
        let report = Report {
            checks: vec![
                result("dns", CheckOutcome::Fail(failure), 10_003, ""),
                result("kubernetes", CheckOutcome::Pass, 12, "v1.36.3"),
                result("network", CheckOutcome::Skipped("no kubeconfig".into()), 0, ""),
            ],
            ..Report::default()
        };
        let text = table(&report);
        assert!(text.contains("\u{1b}[31m") || text.contains("\u{1b}[1m"), "{text:?}");
        let expected = "CHECK       RESULT   TIME     DETAIL\n\
                        dns         FAIL     10.0 s   timeout: no answer\n\
                        \x20                             look at kube-proxy\n\
                        kubernetes  pass     12 ms    v1.36.3\n\
                        network     skipped           no kubeconfig\n\
                        \n\
                        1 passed, 1 failed, 1 skipped\n";
        assert_eq!(strip_str(&text).to_string(), expected);
    }
}

//! `kube-node-ready doctor`: tests an installation on its cluster.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use jiff::SignedDuration;
use knr_core::config::{Level, LogFormat, Selector};
use knr_k8s::doctor::{Doctor, Finding, Installation, Mode, OwnPod};
use serde::Serialize;
use tokio::time::{Instant, interval_at};

use super::check::{self, BAD, FAINT, GOOD};
use super::{Overrides, controller, kubeconfig_of};
use crate::telemetry::{self, Output};
use crate::{exit, shutdown};

/// A step that takes longer shows its progress.
const LONG: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
/// The longest timeout: nobody waits longer, and no deadline overflows.
const LONGEST: Duration = Duration::from_hours(24);
/// The width of the longest step name.
const WIDTH: usize = "configuration".len();

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A worker runs on one node and is removed again; no node changes. The environment variables in \
                        docs/config.md override the file.\n\nExit codes: 0 everything works, 1 something does not, 2 the \
                        configuration is invalid, 3 the doctor's own service account lacks a permission."
)]
pub(crate) struct Args {
    /// Configuration file of the installation
    #[arg(long, env = "CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The mode of the installation
    #[arg(long, value_enum, default_value_t = Kind::Controller)]
    mode: Kind,
    /// Service account of the installation
    #[arg(long, value_name = "NAME")]
    account: String,
    /// Labels of its pods
    #[arg(long, value_name = "LABELS")]
    selector: Selector,
    /// Node on which a worker runs [default: one that is Ready, if possible verified]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Kubeconfig [default: the pod's service account, or what kubectl would use]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the installation [default: that of the pod, or kube-system]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Timeout for everything together
    #[arg(long, value_name = "DURATION", default_value = "180s", value_parser = duration)]
    timeout: Duration,
    /// The format of the findings
    #[arg(long, short, value_enum, default_value_t = Form::Table)]
    output: Form,
    /// Pod in which this runs; the worker is garbage-collected with it
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pod_name: Option<String>,
    /// UID of that pod
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pod_uid: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A controller and its workers
    Controller,
    /// A pod on each node
    Daemonset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A line for each finding
    Table,
    /// One object with all findings
    Json,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let problem = |_| format!("{text:?} is not a duration; expected one such as 90s or 3m");
    let duration = text.parse::<SignedDuration>().map_err(problem)?;
    match Duration::try_from(duration) {
        Ok(duration) if duration > LONGEST => Err("expected 24h or less".to_owned()),
        Ok(duration) if duration >= SECOND => Ok(duration),
        Ok(_) | Err(_) => Err("expected a second or more".to_owned()),
    }
}

/// Tests an installation and prints the findings.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let Args { config, mode, account, selector, node, kubeconfig, namespace, .. } = args;
    let loaded = Overrides::from_environment().load(config.as_deref())?;
    telemetry::init(Level::Error, Some(LogFormat::Console), Output::Stderr)?;
    let stop = shutdown::on_signal()?;
    let agent = format!("kube-node-ready/{} (doctor)", knr_core::VERSION);
    let client =
        knr_k8s::connect::client(kubeconfig_of(kubeconfig, &loaded.config).as_deref(), &agent).await?;
    let installation = Installation {
        mode: match mode {
            Kind::Controller => Mode::Controller,
            Kind::Daemonset => Mode::Daemonset,
        },
        namespace: namespace.unwrap_or_else(controller::own_namespace),
        account,
        selector,
        config: loaded.config,
        node,
        own_pod: args.pod_name.zip(args.pod_uid).map(|(name, uid)| OwnPod { name, uid }),
    };
    let doctor = Doctor::new(client, installation, Instant::now() + args.timeout);
    if let Some(code) = unable(&doctor).await? {
        return Ok(code);
    }
    let mut findings = vec![Finding::fine("configuration", "it is accepted")];
    print(args.output, findings.last());
    for step in doctor.steps() {
        let taken = Box::pin(doctor.take(step, stop.cancelled()));
        findings.push(with_progress(doctor.name(step), taken).await);
        print(args.output, findings.last());
        if stop.is_cancelled() {
            break;
        }
    }
    match args.output {
        Form::Table => anstream::print!("{}", end(&findings)),
        Form::Json => anstream::println!("{}", serde_json::to_string_pretty(&Document::of(&findings))?),
    }
    let is_well = findings.iter().all(Finding::is_ok) && !stop.is_cancelled();
    Ok(if is_well { ExitCode::SUCCESS } else { exit::FAILED.into() })
}

/// Reports the permissions that the doctor itself lacks; without them its findings would be meaningless.
async fn unable(doctor: &Doctor) -> Result<Option<ExitCode>> {
    let missing = match doctor.lacks().await {
        Ok(missing) => missing,
        Err(error) if matches!(error.code(), Some(401 | 403)) => {
            anstream::eprintln!("error: the API server does not accept who we are: {error}");
            return Ok(Some(exit::FORBIDDEN.into()));
        }
        Err(error) => return Err(error.into()),
    };
    for right in &missing {
        anstream::eprintln!("error: the doctor's own account may not {right}");
    }
    Ok((!missing.is_empty()).then(|| exit::FORBIDDEN.into()))
}

/// Shows the progress of a slow step on a terminal.
async fn with_progress(name: &str, step: impl Future<Output = Finding>) -> Finding {
    let is_watched = std::io::stderr().is_terminal();
    let began = Instant::now();
    let mut step = std::pin::pin!(step);
    let mut ticks = interval_at(began + LONG, SECOND);
    loop {
        tokio::select! {
            finding = &mut step => {
                if is_watched {
                    anstream::eprint!("\r\u{1b}[K");
                }
                return finding;
            }
            _ = ticks.tick(), if is_watched => {
                let seconds = began.elapsed().as_secs();
                anstream::eprint!("\r\u{1b}[K{name:WIDTH$}  {FAINT}.. {seconds} s{FAINT:#}");
                // Without a newline, the line would stay in the buffer.
                let _ = std::io::stderr().flush();
            }
        }
    }
}

fn print(form: Form, finding: Option<&Finding>) {
    match form {
        Form::Table => finding.iter().for_each(|finding| anstream::print!("{}", line(finding))),
        Form::Json => {}
    }
}

/// A finding, with its details below it.
fn line(finding: &Finding) -> String {
    let (style, word) = if finding.is_ok() { (GOOD, "ok") } else { (BAD, "FAILED") };
    let mut text = format!("{:WIDTH$}  {style}{word:6}{style:#}  {}\n", finding.name, finding.detail);
    let margin = WIDTH + "  FAILED  ".len();
    for line in &finding.lines {
        let _ = writeln!(text, "{:margin$}{line}", "");
    }
    if let Some(next) = &finding.next {
        let _ = writeln!(text, "{:margin$}{FAINT}next: {next}{FAINT:#}", "");
    }
    text
}

/// The checks of the worker, and a summary.
fn end(findings: &[Finding]) -> String {
    let mut text = String::new();
    for report in findings.iter().filter_map(|finding| finding.report.as_ref()) {
        let _ = write!(text, "\n{}", check::table(report));
    }
    let failed = findings.iter().filter(|finding| !finding.is_ok()).count();
    match failed {
        0 => text.push_str("\nThe installation works.\n"),
        _ => {
            let _ = writeln!(text, "\n{failed} of {} findings failed.", findings.len());
        }
    }
    text
}

/// All findings as JSON.
#[derive(Debug, Serialize)]
struct Document<'a> {
    ok: bool,
    findings: Vec<FindingDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct FindingDocument<'a> {
    result: &'static str,
    #[serde(flatten)]
    finding: &'a Finding,
}

impl<'a> Document<'a> {
    fn of(findings: &'a [Finding]) -> Self {
        let document = |finding: &'a Finding| FindingDocument {
            result: if finding.is_ok() { "ok" } else { "failed" },
            finding,
        };
        Self { ok: findings.iter().all(Finding::is_ok), findings: findings.iter().map(document).collect() }
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;

    fn missing() -> Finding {
        Finding {
            name: "permissions",
            detail: "1 of 20 are missing".into(),
            lines: vec!["somebody may not patch nodes".into()],
            next: Some("give them".into()),
            report: None,
        }
    }

    #[test]
    fn a_failure_is_printed_with_its_remedy() {
        let text = line(&missing());
        assert!(text.contains('\u{1b}'), "{text:?}");
        let expected = "permissions    FAILED  1 of 20 are missing\n\
                        \x20                      somebody may not patch nodes\n\
                        \x20                      next: give them\n";
        assert_eq!(strip_str(&text).to_string(), expected);
        let fine = line(&Finding::fine("configuration", "it is accepted"));
        assert_eq!(strip_str(&fine).to_string(), "configuration  ok      it is accepted\n");
    }

    #[test]
    fn the_end_says_whether_it_works() {
        let fine = Finding::fine("configuration", "it is accepted");
        assert_eq!(end(std::slice::from_ref(&fine)), "\nThe installation works.\n");
        assert_eq!(end(&[fine, missing()]), "\n1 of 2 findings failed.\n");
    }

    #[test]
    fn json_says_the_same() {
        let findings = [Finding::fine("configuration", "it is accepted"), missing()];
        let document = serde_json::to_value(Document::of(&findings)).unwrap();
        let expected = serde_json::json!({ "ok": false, "findings": [
            { "result": "ok", "name": "configuration", "detail": "it is accepted" },
            { "result": "failed", "name": "permissions", "detail": "1 of 20 are missing",
              "lines": ["somebody may not patch nodes"], "next": "give them" },
        ] });
        assert_eq!(document, expected);
    }

    #[test]
    fn a_timeout_is_a_duration() {
        assert_eq!(duration("180s"), Ok(Duration::from_mins(3)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        for bad in ["", "180", "0s", "-1s", "soon"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(duration("24h"), Ok(LONGEST));
        for endless in ["24h 1s", "9000000000000000000s"] {
            assert_eq!(duration(endless), Err("expected 24h or less".to_owned()));
        }
    }
}

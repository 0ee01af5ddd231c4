//! `kube-node-ready release`: opens all gates of this installation, when it is uninstalled.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use knr_core::config::{Config, Level, LogFormat, Selector, Taint};
use knr_k8s::access::{self, Subject};
use knr_k8s::api::{Api, Namespaces};
use knr_k8s::calls::Who;
use knr_k8s::release::{Ending, Fate, Plan, Release, Step, Summary};
use tokio::time::Instant;

use super::check::{BAD, FAINT, GOOD};
use super::doctor::duration;
use super::{Overrides, controller, demands_of, kubeconfig_of};
use crate::exit;
use crate::telemetry::{self, Output};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "This does not verify nodes: their labels stay as they are, and their conditions report that they were opened \
                        without a verdict. Other taints are not touched. It is safe to run this more than once. With \
                        reconciliation.dryRun it is a dry run as well. The environment variables in docs/config.md override \
                        the file.\n\nExit codes: 0 all gates of the configuration are open, or it was a dry run, 1 \
                        something failed, 2 the configuration is invalid, 3 a permission is missing."
)]
pub(crate) struct Args {
    /// Configuration file, which names the gates
    #[arg(long, env = "CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Labels of the pods that must be gone first, because they would close the nodes again
    #[arg(long, value_name = "LABELS")]
    selector: Selector,
    /// Kubeconfig [default: the pod's service account, or what kubectl would use]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Report what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Namespace of those pods [default: that of this pod, or kube-system]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Timeout for everything together
    #[arg(long, value_name = "DURATION", default_value = "240s", value_parser = duration)]
    timeout: Duration,
}

/// Opens all gates and prints the outcome for each node.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let Args { config, selector, kubeconfig, dry_run, namespace, timeout } = args;
    let deadline = Instant::now() + timeout;
    let config = Overrides::from_environment().and(demands_of(dry_run)).load(config.as_deref())?.config;
    telemetry::init(Level::Warn, Some(LogFormat::Console), Output::Stderr)?;
    let agent = format!("kube-node-ready/{} (release)", knr_core::VERSION);
    let client = knr_k8s::connect::client(kubeconfig_of(kubeconfig, &config).as_deref(), &agent).await?;
    let namespaces = Namespaces::of(&config, &namespace.unwrap_or_else(controller::own_namespace));
    let workers = namespaces.workers.clone();
    let release =
        Release { api: Api::new(client, namespaces), config, selector, now: Timestamp::now(), deadline };
    if !is_allowed(&release).await? {
        return Ok(exit::FORBIDDEN.into());
    }
    let summary = match release.run(|step| anstream::print!("{}", line(step))).await {
        Ok(Ending::Released(summary)) => summary,
        Ok(Ending::Planned(plan)) => {
            anstream::print!("{}", planned(&plan));
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => {
            anstream::eprintln!("error: {error}\n{}", advice(&release.config));
            return Ok(exit::FAILED.into());
        }
    };
    anstream::print!("{}", end(&summary, &workers));
    let is_done = summary.closed.is_empty() && summary.workers_left.is_empty();
    Ok(if is_done { ExitCode::SUCCESS } else { exit::FAILED.into() })
}

/// Returns true if this process has all permissions that it is going to need. Prints all missing ones at once.
async fn is_allowed(release: &Release) -> Result<bool> {
    let Release { api, config, .. } = release;
    let limit = config.kubernetes.request_timeout();
    let missing = match access::missing_of(api, config, Who::Release, &Subject::Ourselves, limit).await {
        Ok(missing) => missing,
        Err(error) if matches!(error.code(), Some(401 | 403)) => {
            anstream::eprintln!("error: the API server does not accept who we are: {error}");
            return Ok(false);
        }
        Err(error) => return Err(error).context("the API server cannot be asked for permissions"),
    };
    for right in &missing {
        anstream::eprintln!("error: a permission is missing: {right}");
    }
    if !missing.is_empty() {
        anstream::eprintln!("{}", advice(config));
    }
    Ok(missing.is_empty())
}

/// Commands for an operator, for when the release does not succeed. One taint each: given several, kubectl does not
/// change a node that lacks one of them.
fn advice(config: &Config) -> String {
    let startup = config.gates.iter().map(|gate| &gate.taint);
    let taints = config.node_management.taints.iter().chain(startup);
    let off = taints.map(|taint| format!("\n  kubectl taint nodes --all {}:{}-", taint.key, taint.effect));
    format!("not all gates are open; run this again, or open them by hand:{}", off.collect::<String>())
}

/// A step, as one line.
fn line(step: &Step) -> String {
    match step {
        Step::Waiting(pods) => {
            format!("{FAINT}waiting for the pods that close nodes to go: {}{FAINT:#}\n", pods.join(", "))
        }
        Step::Abandoned(pods) => {
            format!("{FAINT}waiting no longer, their node does not answer: {}{FAINT:#}\n", pods.join(", "))
        }
        Step::WorkerRemoved(pod) => format!("{FAINT}removed the worker {pod}{FAINT:#}\n"),
        Step::Node(node, Fate::Opened(taints)) => {
            format!("{GOOD}opened{GOOD:#}  {node}  without {}\n", keys(taints))
        }
        Step::Node(node, Fate::Gone) => format!("gone    {node}\n"),
        Step::Node(node, Fate::Closed(closed)) => {
            format!("{BAD}CLOSED{BAD:#}  {node}  {}\n", closed.why)
        }
    }
}

/// The plan of a dry run, as text.
fn planned(plan: &Plan) -> String {
    let Plan { waits_for, workers, nodes, without_gate } = plan;
    let mut text = "this is a dry run, nothing was changed\n".to_owned();
    if !waits_for.is_empty() {
        let _ = writeln!(text, "would wait until these pods are gone: {}", waits_for.join(", "));
    }
    for pod in workers {
        let _ = writeln!(text, "would remove the worker {pod}");
    }
    for (node, taints) in nodes {
        let _ = writeln!(text, "would open  {node}  without {}", keys(taints));
    }
    let word = if nodes.len() == 1 { "node" } else { "nodes" };
    let _ = writeln!(text, "would open {} {word}, {without_gate} have no gate", nodes.len());
    text
}

fn keys(taints: &[Taint]) -> String {
    taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>().join(", ")
}

/// A summary, and the commands left for an operator to run.
fn end(summary: &Summary, workers: &str) -> String {
    let Summary { opened, without_gate, closed, workers_left } = summary;
    let nodes = if *opened == 1 { "node" } else { "nodes" };
    let mut text = format!("opened {opened} {nodes}, {without_gate} had no gate\n");
    if !closed.is_empty() {
        let _ = writeln!(text, "{BAD}{} could not be opened{BAD:#}; by hand:", closed.len());
    }
    for node in closed {
        let _ = writeln!(text, "  {}", node.by_hand());
    }
    if !workers_left.is_empty() {
        let _ = writeln!(text, "{BAD}{} workers could not be removed{BAD:#}; by hand:", workers_left.len());
    }
    for (pod, why) in workers_left {
        let _ = writeln!(text, "  kubectl delete pod --namespace {workers} {pod}  {FAINT}# {why}{FAINT:#}");
    }
    text
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use knr_k8s::release::Closed;

    use super::*;

    fn taints() -> Vec<Taint> {
        Config::default().node_management.taints
    }

    #[test]
    fn a_line_says_what_became_of_a_node() {
        let said = |fate: Fate| strip_str(&line(&Step::Node("n1".into(), fate))).to_string();
        assert_eq!(said(Fate::Opened(taints())), "opened  n1  without node-ready/unverified\n");
        assert_eq!(said(Fate::Gone), "gone    n1\n");
        let closed = Closed { node: "n1".into(), taints: taints(), why: "no (403)".into() };
        assert_eq!(said(Fate::Closed(closed)), "CLOSED  n1  no (403)\n");
    }

    #[test]
    fn a_person_can_do_it_by_hand() {
        let config = Config::parse("gates: [{name: startup}]").unwrap();
        let expected = "not all gates are open; run this again, or open them by hand:\n\
                        \x20 kubectl taint nodes --all node-ready/unverified:NoSchedule-\n\
                        \x20 kubectl taint nodes --all startup.k8s.io/initializing:NoSchedule-";
        assert_eq!(advice(&config), expected);
    }

    #[test]
    fn a_dry_run_says_what_would_be_done() {
        let nothing = "this is a dry run, nothing was changed\nwould open 0 nodes, 0 have no gate\n";
        assert_eq!(planned(&Plan::default()), nothing);
        let plan = Plan {
            waits_for: vec!["a".to_owned(), "b".to_owned()],
            workers: vec!["node-ready-worker-1".to_owned()],
            nodes: vec![("n1".into(), taints())],
            without_gate: 12,
        };
        let expected = "this is a dry run, nothing was changed\n\
                        would wait until these pods are gone: a, b\n\
                        would remove the worker node-ready-worker-1\n\
                        would open  n1  without node-ready/unverified\n\
                        would open 1 node, 12 have no gate\n";
        assert_eq!(planned(&plan), expected);
    }

    #[test]
    fn the_end_says_what_is_left_to_do() {
        let summary = Summary { opened: 3, without_gate: 12, ..Summary::default() };
        assert_eq!(end(&summary, "w"), "opened 3 nodes, 12 had no gate\n");
        let closed = vec![Closed { node: "n1".into(), taints: taints(), why: "no".into() }];
        let workers_left = vec![("node-ready-worker-1".to_owned(), "no".to_owned())];
        let summary = Summary { opened: 1, closed, workers_left, ..Summary::default() };
        let expected = "opened 1 node, 0 had no gate\n\
                        1 could not be opened; by hand:\n\
                        \x20 kubectl taint node n1 node-ready/unverified:NoSchedule-\n\
                        1 workers could not be removed; by hand:\n\
                        \x20 kubectl delete pod --namespace w node-ready-worker-1  # no\n";
        assert_eq!(strip_str(&end(&summary, "w")).to_string(), expected);
    }
}

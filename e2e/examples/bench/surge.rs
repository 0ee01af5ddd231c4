//! Thousands of nodes open at a hundred a second: how many lines are logged, and how late conditions and events are.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fs_err as fs;
use lab::{Home, Lab, Tool};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::api::Api;
use crate::fleet::Fleet;
use crate::mirror::SeenNode;
use crate::objects;
use crate::process;
use crate::report::{Report, Unit, percentile};
use crate::subject::{self, Subject};

/// Workers finish at this pace: 100 in a second.
const PACE: Duration = Duration::from_millis(10);
/// A condition may come this long after its opening, in seconds.
const CONDITION_LIMIT: f64 = 60.0;

/// Measures, and reports the results.
pub(crate) fn measure(runtime: &Runtime, nodes: usize, report: &mut Report) -> Result<()> {
    let lab = Lab::builder(&Home::from_env()?, "bench-surge")
        .flag(Tool::KubeControllerManager, "--node-monitor-grace-period=2h")
        .temporary()?;
    lab.apply(&objects::setting())?;
    lab.start_kwok()?;
    let _in_runtime = runtime.enter();
    let mut fleet = Fleet::new(runtime.block_on(Api::open(&lab.kubeconfig(), "bench"))?);
    eprintln!("making {nodes} nodes");
    runtime.block_on(fleet.grow(nodes))?;
    let subject =
        Subject::product(&knr_e2e::product::path()?, &lab, &subject::config(nodes, ""), "surge-product")?;
    eprintln!("waiting for {nodes} workers");
    let pods = runtime.block_on(fleet.running_workers(nodes))?;
    subject.until_at_rest(fleet.patience())?;
    let (pid, log) = (subject.program.pid(), Log::read(&subject)?);
    let cpu = process::cpu(pid)?;
    eprintln!("workers finish");
    let began = Instant::now();
    runtime.block_on(async {
        fleet.end_workers_at(&pods, PACE).await?;
        fleet.openings().await?;
        fleet.conditions().await
    })?;
    subject.until_at_rest(fleet.patience())?;
    let took = began.elapsed();
    report.section(&format!("{nodes} simulated nodes, workers finish at 100 a second"));
    report_times(&fleet, began, report)?;
    report.add("until nothing was left to do", format!("{:.0} s", took.as_secs_f64()));
    Log::read(&subject)?.since(&log).report(nodes, report);
    report_events(&subject, nodes, report)?;
    report.add("processor time", format!("{:.2} s", (process::cpu(pid)?.saturating_sub(cpu)).as_secs_f64()));
    Ok(())
}

fn report_times(fleet: &Fleet, began: Instant, report: &mut Report) -> Result<()> {
    let seen = fleet.nodes.look();
    let last = seen.values().filter_map(|node| node.opened_at).max().context("no openings")?;
    report.add("last opening after", format!("{:.0} s", last.duration_since(began).as_secs_f64()));
    let lag = |node: &SeenNode| Some(node.judged_at?.saturating_duration_since(node.opened_at?));
    let lags: Vec<Duration> = seen.values().filter_map(lag).collect();
    report.add("conditions", lags.len().to_string());
    report.add("p50, from the opening to the condition", seconds(percentile(&lags, 0.5)));
    report.at_most(
        "the latest of them",
        Unit::Seconds,
        percentile(&lags, 1.0).as_secs_f64(),
        CONDITION_LIMIT,
    );
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // counts of nodes
fn report_events(subject: &Subject, nodes: usize, report: &mut Report) -> Result<()> {
    let metrics = subject.metrics()?;
    let written = metrics
        .value("kube_node_ready_writes_total", &[("action", "event"), ("outcome", "done")])
        .context("no count of the events that were written")?;
    // Earlier versions dropped events and did not count them.
    let dropped = metrics.value("kube_node_ready_events_dropped_total", &[]);
    report.add("events written", written.to_string());
    report.add("events dropped", dropped.map_or_else(|| "not counted".to_owned(), |count| count.to_string()));
    let missing = nodes as f64 - written - dropped.unwrap_or_default();
    report.at_most("events neither written nor counted as dropped", Unit::Count, missing.max(0.0), 0.0);
    Ok(())
}

fn seconds(span: Duration) -> String {
    format!("{:.2} s", span.as_secs_f64())
}

/// The number of lines in a log.
#[derive(Debug, Clone, Copy, Default)]
struct Log {
    lines: usize,
    /// Of these, warnings and errors.
    warnings: usize,
}

impl Log {
    fn read(subject: &Subject) -> Result<Self> {
        let text = fs::read_to_string(subject.program.log())?;
        let is_warning = |line: &&str| {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            line["level"] == "warn" || line["level"] == "error"
        };
        Ok(Self { lines: text.lines().count(), warnings: text.lines().filter(is_warning).count() })
    }

    fn since(self, earlier: &Self) -> Self {
        Self { lines: self.lines - earlier.lines, warnings: self.warnings - earlier.warnings }
    }

    #[allow(clippy::cast_precision_loss)] // counts of lines
    fn report(self, nodes: usize, report: &mut Report) {
        report.at_most("warnings and errors in the log", Unit::Count, self.warnings as f64, 0.0);
        report.add("lines of the log for a node", format!("{:.1}", self.lines as f64 / nodes as f64));
    }
}

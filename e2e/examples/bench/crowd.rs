//! A thousand simulated nodes: the same work for the baseline and for the product, in turn, on one control plane.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use knr_core::config::Config;
use lab::{Home, Lab, TemporaryLab, Tool};
use tokio::runtime::Runtime;

use crate::api::Api;
use crate::fleet::Fleet;
use crate::objects;
use crate::process::{self, Memory};
use crate::report::{Report, Unit, median, percentile};
use crate::subject::{self, Subject, Who};
use crate::traffic::{self, Traffic};

/// Workers finish at this pace: 50 in a second.
const PACE: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_mins(1);
/// The factor by which the number of nodes grows for the measurement of memory.
const MANY: usize = 3;

/// The number of nodes and of rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) rounds: usize,
}

/// The nodes, and the measurements.
pub(crate) struct Crowd<'a> {
    runtime: &'a Runtime,
    fleet: Fleet,
    config: String,
    product: PathBuf,
    runs: usize,
    rates: Vec<(Who, Rate)>,
    bursts: Vec<(Who, Burst)>,
    /// The subject of the last run.
    last: Option<Subject>,
    /// Dropped last.
    lab: TemporaryLab,
}

/// A run in which workers end one after another.
#[derive(Debug, Clone, Copy)]
struct Rate {
    p50: Duration,
    p99: Duration,
    /// Processor time from the first worker's end until there was nothing more to do.
    cpu: Duration,
    /// Of this, until the last gate was open.
    cpu_to_open: Duration,
    /// Processor time since the start of the process.
    cpu_in_all: Duration,
}

/// A run in which all workers have ended before the subject starts.
#[derive(Debug, Clone, Copy)]
struct Burst {
    openings_per_second: f64,
    start_to_ready: Duration,
}

impl<'a> Crowd<'a> {
    /// Measures the speed of the baseline and the product.
    pub(crate) fn measure(runtime: &'a Runtime, size: Size, report: &mut Report) -> Result<Self> {
        let mut crowd = Self::gather(runtime, size)?;
        let _in_runtime = runtime.enter();
        for left in (1..=size.rounds).rev() {
            // The order alternates, and ends with the product.
            let mut order = [Who::Baseline, Who::Product];
            order.rotate_left((left - 1) % 2);
            // A burst lasts only seconds, in which the machine may be slow: there are two of each.
            order.into_iter().chain(order.into_iter().rev()).try_for_each(|who| crowd.burst(who))?;
            order.into_iter().try_for_each(|who| crowd.rate(who))?;
        }
        crowd.report_speed(report);
        Ok(crowd)
    }

    /// Measures the processor time of several builds of the product in turn, on the same nodes.
    pub(crate) fn compare(
        runtime: &'a Runtime,
        size: Size,
        builds: &[PathBuf],
        report: &mut Report,
    ) -> Result<()> {
        let mut crowd = Self::gather(runtime, size)?;
        let _in_runtime = runtime.enter();
        let mut rates = BTreeMap::<&PathBuf, Vec<Rate>>::new();
        for round in 0..size.rounds {
            for number in 0..builds.len() {
                // The order rotates.
                let build = &builds[(round + number) % builds.len()];
                crowd.product.clone_from(build);
                crowd.rate(Who::Product)?;
                rates.entry(build).or_default().extend(crowd.rates.drain(..).map(|(_, rate)| rate));
            }
        }
        for build in builds {
            let rates = rates.get(build).map(Vec::as_slice).unwrap_or_default();
            report.section(&format!("Processor time of {}, {} runs", build.display(), rates.len()));
            for (what, field) in [
                ("openings, with all that follows", (|rate| rate.cpu) as fn(&Rate) -> Duration),
                ("of this, until the last gate was open", |rate| rate.cpu_to_open),
                ("with the start and the making of workers", |rate| rate.cpu_in_all),
            ] {
                let times = || rates.iter().map(|rate| field(rate).as_secs_f64());
                let (least, most) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
                report.add(what, format!("{:.2} s ({least:.2} to {most:.2})", median(times())));
            }
        }
        Ok(())
    }

    fn gather(runtime: &'a Runtime, size: Size) -> Result<Self> {
        let lab = Lab::builder(&Home::from_env()?, "bench-kwok")
            .flag(Tool::KubeControllerManager, "--node-monitor-grace-period=30m")
            .temporary()?;
        lab.apply(&objects::setting())?;
        lab.start_kwok()?;
        let _in_runtime = runtime.enter();
        let api = runtime.block_on(Api::open(&lab.kubeconfig(), "bench"))?;
        let (fleet, config) = (Fleet::new(api), subject::config(size.nodes * MANY, ""));
        let (rates, bursts, last) = (Vec::new(), Vec::new(), None);
        let product = knr_e2e::product::path()?;
        let mut crowd = Self { runtime, fleet, config, product, runs: 0, rates, bursts, last, lab };
        eprintln!("making {} nodes", size.nodes);
        runtime.block_on(crowd.fleet.grow(size.nodes))?;
        Ok(crowd)
    }

    fn start(&self, who: Who, name: &str) -> Result<Subject> {
        match who {
            Who::Baseline => Subject::baseline(&self.lab, name),
            Who::Product => Subject::product(&self.product, &self.lab, &self.config, name),
        }
    }

    /// Measures the other costs of the product: requests and memory. It has just opened all nodes.
    pub(crate) fn measure_thrift(mut self, report: &mut Report) -> Result<()> {
        let _in_runtime = self.runtime.enter();
        let subject = self.last.take().context("no round")?;
        self.report_requests(&subject, report)?;
        report.section("Memory of the product");
        let what = format!("{} nodes, all opened by it", self.fleet.size);
        report_memory(&what, process::memory(subject.program.pid())?, None, report);
        self.report_many(&subject, report)
    }

    fn name(&mut self, what: &str, who: Who) -> String {
        self.runs += 1;
        let who = if who == Who::Baseline { "bare" } else { "product" };
        format!("{what}-{who}-{}", self.runs)
    }

    /// Resets everything to the state in which the nodes joined.
    fn begin(&self) -> Result<()> {
        self.runtime.block_on(self.fleet.reset())
    }

    fn parsed(&self) -> Result<Config> {
        Config::parse(&self.config).map_err(|problems| anyhow::anyhow!("{problems:?}"))
    }

    /// Runs a subject that starts after all workers have ended.
    fn burst(&mut self, who: Who) -> Result<()> {
        drop(self.last.take());
        let name = self.name("burst", who);
        self.begin()?;
        let config = self.parsed()?;
        self.runtime.block_on(async {
            self.fleet.make_workers(&config).await?;
            let pods = self.fleet.running_workers(self.fleet.size).await?;
            self.fleet.end_workers(&pods).await
        })?;
        let subject = self.start(who, &name)?;
        let openings = self.runtime.block_on(self.fleet.openings())?;
        let (first, last) = (openings.values().min().copied(), openings.values().max().copied());
        let took = last.zip(first).map(|(last, first)| last.duration_since(first)).context("no openings")?;
        let burst = Burst {
            openings_per_second: as_f64(openings.len()) / took.as_secs_f64(),
            start_to_ready: subject.start_to_ready,
        };
        eprintln!("{name}: {burst:?}");
        self.bursts.push((who, burst));
        rest(who, &subject)
    }

    /// Runs a subject while workers end one after another. It keeps running afterwards.
    fn rate(&mut self, who: Who) -> Result<()> {
        drop(self.last.take());
        let name = self.name("rate", who);
        self.begin()?;
        if who == Who::Baseline {
            let config = self.parsed()?;
            self.runtime.block_on(self.fleet.make_workers(&config))?;
        }
        let subject = self.start(who, &name)?;
        let pods = self.runtime.block_on(self.fleet.running_workers(self.fleet.size))?;
        rest(who, &subject)?;
        let pid = subject.program.pid();
        let before = process::cpu(pid)?;
        let (ends, openings) = self.runtime.block_on(async {
            let ends = self.fleet.end_workers_at(&pods, PACE).await?;
            anyhow::Ok((ends, self.fleet.openings().await?))
        })?;
        let opened = process::cpu(pid)?;
        if who == Who::Product {
            self.runtime.block_on(self.fleet.until_no_pod())?;
        }
        rest(who, &subject)?;
        let waits = waits(&ends, &openings);
        let cpu_in_all = process::cpu(pid)?;
        let rate = Rate {
            p50: percentile(&waits, 0.5),
            p99: percentile(&waits, 0.99),
            cpu: cpu_in_all.saturating_sub(before),
            cpu_to_open: opened.saturating_sub(before),
            cpu_in_all,
        };
        eprintln!("{name}: {rate:?}");
        self.rates.push((who, rate));
        self.last = Some(subject);
        Ok(())
    }

    fn report_speed(&self, report: &mut Report) {
        let rate = |who, field: fn(&Rate) -> Duration| {
            median(self.rates.iter().filter(|(of, _)| *of == who).map(|(_, rate)| field(rate).as_secs_f64()))
        };
        let nodes = self.fleet.size;
        report.section(&format!(
            "{nodes} simulated nodes, workers finish at 50 a second: from a worker's end to the open gate"
        ));
        for (what, field, limit) in [
            ("p50", (|rate: &Rate| rate.p50) as fn(&Rate) -> Duration, 1.2),
            ("p99", |rate: &Rate| rate.p99, 1.5),
        ] {
            let (bare, product) = (rate(Who::Baseline, field), rate(Who::Product, field));
            report.add(&format!("{what}, baseline"), format!("{:.1} ms", bare * 1e3));
            report.add(&format!("{what}, product"), format!("{:.1} ms", product * 1e3));
            let ratio = ratio(&self.rates, |rate| field(rate).as_secs_f64());
            report.at_most(&format!("{what}, product to baseline"), Unit::Times, ratio, limit);
        }
        for (who, rate) in &self.rates {
            report.note(format!(
                "{who:?}: p50 {:.1} ms, p99 {:.1} ms",
                rate.p50.as_secs_f64() * 1e3,
                rate.p99.as_secs_f64() * 1e3
            ));
        }
        let per_second = |burst: &Burst| burst.openings_per_second;
        let median_of =
            |who| median(self.bursts.iter().filter(|(of, _)| *of == who).map(|(_, burst)| per_second(burst)));
        report.section(&format!("{nodes} simulated nodes, all workers have finished: openings a second"));
        report.add("baseline", format!("{:.0}", median_of(Who::Baseline)));
        report.add("product", format!("{:.0}", median_of(Who::Product)));
        report.at_least("product to baseline", Unit::Times, ratio(&self.bursts, per_second), 0.95);
        for (who, burst) in &self.bursts {
            report.note(format!("{who:?}: {:.0} a second", burst.openings_per_second));
        }
        report.section("Processor time of the product");
        let product = |field| rate(Who::Product, field);
        report.at_most(&format!("{nodes} openings"), Unit::Seconds, product(|rate| rate.cpu), 1.0);
        for (what, field) in [
            ("of this, until the last gate was open", (|rate| rate.cpu_to_open) as fn(&Rate) -> _),
            ("with the start and the making of workers", |rate| rate.cpu_in_all),
        ] {
            report.add(what, format!("{:.2} s", product(field)));
        }
        report.add("baseline", format!("{:.2} s", rate(Who::Baseline, |rate| rate.cpu)));
    }

    fn report_requests(&self, subject: &Subject, report: &mut Report) -> Result<()> {
        let (nodes, pid) = (self.fleet.size, subject.program.pid());
        let traffic = Traffic::of(&self.lab, &subject.agent)?;
        report.section("Requests of the product");
        let writes = traffic.writes();
        let most = traffic.most_patches_of_a_node();
        report.at_most("patches of a node", Unit::Count, as_f64(most), 1.0);
        // The workers end later than ten seconds after their nodes are Ready, so most nodes say first why they wait.
        let conditions = writes.get("patch nodes/status").copied().unwrap_or(0);
        let waiting = conditions.saturating_sub(nodes);
        report.at_most(
            "writes for a node in all, but for conditions of waiting nodes",
            Unit::Count,
            as_f64(writes.values().sum::<usize>() - waiting) / as_f64(nodes),
            5.0,
        );
        report.add("conditions of waiting nodes", waiting.to_string());
        report.at_most("writes that were refused", Unit::Count, as_f64(traffic.failures()), 0.0);
        let reads = traffic.reads();
        report.at_most("reads", Unit::Count, as_f64(reads.values().sum()), 0.0);
        report.note(format!(
            "writes: {}; reads: {}",
            traffic::described(&writes),
            traffic::described(&reads)
        ));
        eprintln!("nothing happens for {} s", IDLE.as_secs());
        let before = process::cpu(pid)?;
        std::thread::sleep(IDLE);
        let idle = Traffic::of(&self.lab, &subject.agent)?.since(&traffic).all();
        let is_lease = idle.keys().all(|kind| kind.ends_with(" leases"));
        report.demand("requests in an idle minute", traffic::described(&idle), "leases alone", is_lease);
        report.add(
            "processor time in that minute",
            format!("{:.2} s", (process::cpu(pid)?.saturating_sub(before)).as_secs_f64()),
        );
        Ok(())
    }

    /// Adds twice as many nodes at once, whose workers do not end.
    fn report_many(&mut self, subject: &Subject, report: &mut Report) -> Result<()> {
        let (few, many) = (self.fleet.size, self.fleet.size * MANY);
        eprintln!("making {} more nodes", many - few);
        self.runtime.block_on(async {
            self.fleet.grow(many).await?;
            self.fleet.running_workers(many - few).await
        })?;
        subject.until_at_rest(subject::PATIENCE)?;
        let what = format!("{many} nodes, of which {} are being verified", many - few);
        report_memory(&what, process::memory(subject.program.pid())?, Some(40.0), report);
        let name = self.name("restart", Who::Product);
        subject.stop()?;
        let again = self.start(Who::Product, &name)?;
        again.until_at_rest(subject::PATIENCE)?;
        report_memory("the same, after a restart", process::memory(again.program.pid())?, Some(40.0), report);
        report.section("From the start of the product until it is ready");
        let starts = self.bursts.iter().filter(|(who, _)| *who == Who::Product);
        let start = median(starts.map(|(_, burst)| burst.start_to_ready.as_secs_f64()));
        report.add(&format!("{few} nodes with finished workers"), format!("{:.0} ms", start * 1e3));
        report.add(&what, format!("{:.0} ms", again.start_to_ready.as_secs_f64() * 1e3));
        Ok(())
    }
}

fn report_memory(what: &str, memory: Memory, limit: Option<f64>, report: &mut Report) {
    let (now, peak) = (mebibytes(memory.now), mebibytes(memory.peak));
    match limit {
        None => report.add(what, format!("{now:.1} MiB")),
        Some(limit) => report.at_most(what, Unit::Mebibytes, now, limit),
    }
    report.add("  at its peak", format!("{peak:.1} MiB"));
}

/// Compares the product with the baseline that was measured just before or after it, because the speed of a machine
/// varies.
fn ratio<T>(runs: &[(Who, T)], value: impl Fn(&T) -> f64) -> f64 {
    median(runs.chunks_exact(2).filter_map(|neighbours| {
        let of = |who| neighbours.iter().find(|(of, _)| *of == who).map(|(_, run)| value(run));
        Some(of(Who::Product)? / of(Who::Baseline)?)
    }))
}

fn waits(ends: &BTreeMap<String, Instant>, openings: &BTreeMap<String, Instant>) -> Vec<Duration> {
    ends.iter().filter_map(|(node, end)| Some(openings.get(node)?.duration_since(*end))).collect()
}

#[allow(clippy::cast_precision_loss)] // counts of nodes
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss)] // far below what a float holds exactly
fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

fn rest(who: Who, subject: &Subject) -> Result<()> {
    match who {
        Who::Product => subject.until_at_rest(subject::PATIENCE),
        Who::Baseline => Ok(()),
    }
}

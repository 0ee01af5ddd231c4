//! Shows what happens to nodes, live: a table that is redrawn on a terminal, a line for each change elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stdout};
use std::thread;
use std::time::{Duration, Instant};

use anstream::{print, println};
use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result, bail};
use knr_core::texts::shortened;
use knr_e2e::{Api, GATE};
use lab::Lab;
use rustix::termios::tcgetwinsize;
use serde_json::Value;

const PAUSE: Duration = Duration::from_millis(200);
/// The width before the text of a line, plus the truncation mark and a last column that stays free.
const BEFORE_TEXT: usize = "   n2  NotReady  closed  ".len() + 2;
/// The width of a terminal that does not report one.
const USUAL_WIDTH: usize = 80;

/// The state of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    is_ready: bool,
    is_open: bool,
    /// The reason why it is closed, in one word.
    pub(crate) reason: String,
    message: String,
    pods: usize,
}

/// When things happened to a node.
#[derive(Debug, Clone, Copy)]
struct Times {
    ready: Option<Instant>,
    fixed: Option<Instant>,
    open: Option<Instant>,
}

/// Watches the new nodes of a cluster until something has happened.
pub(crate) struct Watch {
    api: Api,
    began: Instant,
    nodes: BTreeMap<String, Sight>,
    times: BTreeMap<String, Times>,
    manner: Manner,
}

/// How changes are shown.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Not at all: something else draws on this terminal.
    Silence,
    /// A line for each.
    Lines,
    /// A table in place of the last one, which had this many lines.
    Table(usize),
}

impl Sight {
    /// Returns true if it is open and runs a pod of the waiting workload.
    pub(crate) fn is_at_work(&self) -> bool {
        self.is_open && self.pods > 0
    }

    fn gate(&self) -> (&'static str, Style) {
        match (self.is_open, self.reason.is_empty()) {
            (true, _) => ("open", AnsiColor::Green.on_default()),
            (false, true) => ("closed", AnsiColor::Yellow.on_default()),
            (false, false) => ("closed", AnsiColor::Red.on_default()),
        }
    }

    fn summary(&self) -> &str {
        match (self.is_open, self.pods) {
            (true, 0) => "verified; waiting for its pod",
            (true, _) => "verified; its pod runs",
            (false, _) if self.message.is_empty() => "waiting for the checks",
            (false, _) => self.message.trim_start_matches("closed: "),
        }
    }
}

impl Watch {
    pub(crate) fn begin(lab: &Lab) -> Result<Self> {
        let api = Api::open(&lab.kubeconfig())?;
        let (nodes, times) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { api, began: Instant::now(), nodes, times, manner: Manner::Lines })
    }

    /// Watches while `work` shows its own progress.
    pub(crate) fn during(&mut self, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        self.manner = if stdout().is_terminal() { Manner::Silence } else { Manner::Lines };
        thread::scope(|scope| {
            let work = scope.spawn(work);
            while !work.is_finished() {
                self.look()?;
                thread::sleep(PAUSE);
            }
            work.join().ok().context("a thread panicked")?
        })
    }

    /// Shows changes until `has_happened` returns true.
    pub(crate) fn until(
        &mut self,
        limit: Duration,
        what: &str,
        has_happened: impl Fn(&BTreeMap<String, Sight>) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        if stdout().is_terminal() {
            self.draw(0);
        }
        loop {
            self.look()?;
            if has_happened(&self.nodes) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("this did not happen within {} s: {what}", limit.as_secs());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Records that a node was fixed.
    pub(crate) fn fixed(&mut self, node: &str) {
        if let Some(times) = self.times.get_mut(node) {
            times.fixed = Some(Instant::now());
        }
    }

    /// Prints a table of the times that it took.
    pub(crate) fn summary(&self) {
        println!("   {:<6}{:>18}{:>18}", "NODE", "READY TO OPEN", "FIXED TO OPEN");
        for (name, times) in &self.times {
            let took = |since: Option<Instant>| match (since, times.open) {
                (Some(since), Some(open)) => format!("{:.1} s", open.duration_since(since).as_secs_f64()),
                _ => "-".to_owned(),
            };
            let ready = if times.fixed.is_some() { "-".to_owned() } else { took(times.ready) };
            println!("   {name:<6}{ready:>18}{:>18}", took(times.fixed));
        }
    }

    fn look(&mut self) -> Result<()> {
        let pods = self.api.list("/api/v1/namespaces/default/pods")?;
        let nodes = self.api.list("/api/v1/nodes?labelSelector=example.com/pool=new")?;
        for node in nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let running = |pod: &&Value| {
                pod["spec"]["nodeName"] == name.as_str() && pod["status"]["phase"] == "Running"
            };
            let sight = Sight { pods: pods.iter().filter(running).count(), ..seen(&node) };
            let now = Instant::now();
            let times =
                self.times.entry(name.clone()).or_insert(Times { ready: None, fixed: None, open: None });
            times.ready = times.ready.or(sight.is_ready.then_some(now));
            times.open = times.open.or(sight.is_open.then_some(now));
            if self.nodes.get(&name) != Some(&sight) {
                self.nodes.insert(name.clone(), sight);
                self.show(&name);
            }
        }
        Ok(())
    }

    fn show(&mut self, changed: &str) {
        match (self.manner, self.nodes.get(changed)) {
            (Manner::Table(drawn), _) => self.draw(drawn),
            (Manner::Lines, Some(sight)) => {
                println!(
                    "   {:5.1} s  {}",
                    self.began.elapsed().as_secs_f64(),
                    line(changed, sight, sight.summary())
                );
            }
            (Manner::Lines | Manner::Silence, _) => {}
        }
    }

    /// Draws the table in place of one with this many lines.
    fn draw(&mut self, drawn: usize) {
        if drawn > 0 {
            print!("\x1b[{drawn}A");
        }
        // A wrapped line could not be redrawn.
        let room = terminal_width().saturating_sub(BEFORE_TEXT);
        for (name, sight) in &self.nodes {
            println!("\x1b[2K   {}", line(name, sight, &shortened(sight.summary(), room)));
        }
        self.manner = Manner::Table(self.nodes.len());
        let _ = stdout().flush();
    }
}

fn terminal_width() -> usize {
    let width = tcgetwinsize(stdout()).map_or(0, |size| usize::from(size.ws_col));
    if width == 0 { USUAL_WIDTH } else { width }
}

fn line(name: &str, sight: &Sight, summary: &str) -> String {
    let (gate, style) = sight.gate();
    let ready = if sight.is_ready { "Ready" } else { "NotReady" };
    format!("{name:<4}{ready:<10}{style}{gate:<8}{style:#}{summary}")
}

fn seen(node: &Value) -> Sight {
    let all = |pointer: &str| node.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = GATE.split('=').next().unwrap_or_default();
    let is_open = all("/spec/taints").all(|taint| taint["key"] != key);
    let is_ready = all("/status/conditions").any(|it| it["type"] == "Ready" && it["status"] == "True");
    let verdict = all("/status/conditions").find(|it| it["type"] == "NodeReadyVerified");
    let verdict = verdict.filter(|it| it["status"] == "False");
    let (reason, message) = verdict.map(|it| (text(&it["reason"]), text(&it["message"]))).unwrap_or_default();
    Sight { is_ready, is_open, reason, message, pods: 0 }
}

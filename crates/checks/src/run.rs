//! Runs all checks concurrently, each with its own timeout and retries, under one deadline.

use std::sync::Arc;
use std::time::Duration;

use knr_core::config::{BuiltInCheck, CheckKind, CheckPlan, CheckSpec};
use knr_core::report::{CheckOutcome, CheckResult, Report};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use crate::api::{ApiAccess, HOST_VARIABLE, PORT_VARIABLE};
use crate::check::{Check, Context, Kind, Outcome, Surroundings, Trouble, span};
use crate::checks::{ABOUT, Dns, File, Http, Kubernetes, Mtu, Network, Off, Services, Tcp};

/// The pause before the first retry. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Checks end by themselves at their deadline, and report where they were. One that does not is abandoned after this
/// time.
const GRACE: Duration = Duration::from_millis(100);
/// The part of the time for all checks that is reserved for the report, but no more than a tenth of it.
const KEPT_FOR_THE_REPORT: Duration = Duration::from_secs(1);

/// Runs all checks of a plan. `node` is the name of the node, to distinguish its pods from those on other nodes.
pub async fn run(plan: &CheckPlan, node: Option<&str>, api: ApiAccess) -> Report {
    let host = std::env::var(HOST_VARIABLE).ok();
    let port = std::env::var(PORT_VARIABLE).ok().and_then(|port| port.parse().ok());
    let surroundings =
        Surroundings { node: node.map(str::to_owned), api, kubernetes_service: host.zip(port) };
    Report { checks: run_all(build(plan), plan, Arc::new(surroundings)).await, ..Report::default() }
}

/// Returns the names of the checks in a plan, in the order of the report.
#[must_use]
pub fn names(plan: &CheckPlan) -> Vec<String> {
    build(plan).iter().map(|check| check.name().to_owned()).collect()
}

/// Returns the checks of a plan, in the order of the report.
fn build(plan: &CheckPlan) -> Vec<Arc<dyn Check>> {
    let built_in = BuiltInCheck::ALL.iter().zip(ABOUT).map(|(check, about)| -> Arc<dyn Check> {
        if plan.skip_checks.contains(check) {
            return Arc::new(Off(about));
        }
        match check {
            BuiltInCheck::Dns => Arc::new(Dns::new(plan)),
            BuiltInCheck::Kubernetes => Arc::new(Kubernetes),
            BuiltInCheck::Network => Arc::new(Network::new(plan)),
            BuiltInCheck::Services => Arc::new(Services::new(plan)),
        }
    });
    built_in.chain(plan.checks.iter().flat_map(configured)).collect()
}

fn configured(spec: &CheckSpec) -> impl Iterator<Item = Arc<dyn Check>> {
    spec.kinds().map(|kind| -> Arc<dyn Check> {
        match kind {
            CheckKind::Tcp(tcp) => Arc::new(Tcp::new(&spec.name, tcp)),
            CheckKind::Http(http) => Arc::new(Http::new(&spec.name, http)),
            CheckKind::File(file) => Arc::new(File::new(&spec.name, file)),
            CheckKind::Mtu(mtu) => Arc::new(Mtu::new(&spec.name, mtu)),
        }
    })
}

/// Every check is a separate task, so none can block another or crash it.
async fn run_all(
    checks: Vec<Arc<dyn Check>>,
    plan: &CheckPlan,
    around: Arc<Surroundings>,
) -> Vec<CheckResult> {
    let start = Instant::now();
    let end = start + plan.timeout() - KEPT_FOR_THE_REPORT.min(plan.timeout() / 10);
    let limits = Limits { end, each: plan.check_timeout(), retries: plan.retries };
    let tasks: Vec<_> = checks
        .into_iter()
        .map(|check| {
            let (runs, around) = (check.clone(), around.clone());
            (check, tokio::spawn(async move { log(&*runs, persevere(&*runs, limits, around).await) }))
        })
        .collect();
    let mut results = Vec::new();
    for (check, task) in tasks {
        results.push(match timeout_at(end + GRACE, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(crash)) => log(&*check, Tried::broken(Kind::Crashed, crash.to_string(), start)),
            Err(_) => log(&*check, Tried::too_late(start)),
        });
    }
    results
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    /// When all checks must have ended.
    end: Instant,
    /// The timeout of one attempt.
    each: Duration,
    retries: u32,
}

/// The outcome of an attempt, and how long it took.
#[derive(Debug)]
struct Tried {
    outcome: Outcome,
    took: Duration,
}

impl Tried {
    fn broken(kind: Kind, detail: String, start: Instant) -> Self {
        Self { outcome: Trouble::new(kind, detail).into(), took: start.elapsed() }
    }

    fn too_late(start: Instant) -> Self {
        Self::broken(Kind::Deadline, format!("not done after {}", span(start.elapsed())), start)
    }
}

/// Tries a check until it does not fail, its retries are used up, or there is no time left.
async fn persevere(check: &dyn Check, limits: Limits, surroundings: Arc<Surroundings>) -> Tried {
    let (mut number, mut pause) = (1, FIRST_PAUSE);
    let mut before: Option<Tried> = None;
    loop {
        let whole = Instant::now() + limits.each;
        let cx = Context { deadline: whole.min(limits.end), surroundings: surroundings.clone() };
        let mut tried = attempt(check, &cx).await;
        let Outcome::Fail(trouble) = &mut tried.outcome else { return tried };
        let is_cut_short = cx.deadline < whole && cx.deadline <= Instant::now();
        // A retry that was cut short says less than the attempt before.
        if let Some(before) = before.take_if(|_| is_cut_short) {
            return before;
        }
        if number > 1 {
            trouble.detail = format!("{} (tried {number} times)", trouble.detail);
        }
        if number > limits.retries || Instant::now() + pause >= limits.end {
            return tried;
        }
        let (kind, detail) = (trouble.kind.word(), &trouble.detail);
        info!(check = check.name(), number, kind, detail, "check failed and is tried again");
        before = Some(tried);
        sleep(pause).await;
        number += 1;
        pause *= 2;
    }
}

async fn attempt(check: &dyn Check, cx: &Context) -> Tried {
    let start = Instant::now();
    match timeout_at(cx.deadline + GRACE, check.run(cx)).await {
        Ok(outcome) => Tried { outcome, took: start.elapsed() },
        Err(_) => Tried::too_late(start),
    }
}

/// Logs the outcome of a check, and returns it for the report.
fn log(check: &dyn Check, tried: Tried) -> CheckResult {
    let name = check.name();
    let millis = u64::try_from(tried.took.as_millis()).unwrap_or(u64::MAX);
    let (outcome, note) = match tried.outcome {
        Outcome::Pass(note) => {
            info!(check = name, millis, note, "check passed");
            (CheckOutcome::Pass, note)
        }
        Outcome::Skipped(why) => {
            info!(check = name, why, "check skipped");
            (CheckOutcome::Skipped(why), String::new())
        }
        Outcome::Fail(trouble) => {
            let failure = check.about().failure(trouble);
            let (kind, detail, hint) = (failure.kind.word(), &failure.detail, &failure.hint);
            warn!(check = name, millis, kind, detail, hint, "check failed");
            (CheckOutcome::Fail(failure), String::new())
        }
    };
    CheckResult { name: name.to_owned(), outcome, millis, note }
}

#[cfg(test)]
mod tests;

//! The verdict about a node, derived from how its worker ended.

use crate::fault::{Blame, WorkerFailure, waiting_failure};
use crate::report::{Failure, Report};
use crate::texts::shortened;
use crate::view::Ending;

/// The exit code by which the built-in worker reports that it could not run: a bad configuration, not a bad node.
const COULD_NOT_RUN: i32 = 2;
/// Longer last lines of a worker's output are truncated.
const MAX_WORDS_CHARS: usize = 200;

/// The verdict of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The node is healthy.
    Pass,
    /// The checks failed, and whose fault that is.
    Fail(Fault),
    /// The run says nothing about the node.
    Inconclusive(String),
}

/// Why a node cannot be verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Whose fault it is.
    pub blame: Blame,
    /// One word for the condition: `DnsTimeout`.
    pub cause: String,
    /// A phrase for humans: `dns: no answer from 10.96.0.10 in 5 s`.
    pub reason: String,
}

impl Fault {
    /// A fault, with the blame from the table.
    #[must_use]
    pub fn of(failure: WorkerFailure, reason: impl Into<String>) -> Self {
        Self { blame: failure.blame(), cause: failure.word().to_owned(), reason: reason.into() }
    }
}

/// Judges a worker by how it ended.
#[must_use]
pub fn judge(ending: &Ending) -> Verdict {
    match ending {
        Ending::Killed(why) => Verdict::Inconclusive(format!("the worker was ended from outside: {why}")),
        Ending::CouldNotStart(why) => {
            let failure = waiting_failure(&why.reason).unwrap_or(WorkerFailure::NotStarted);
            Verdict::Fail(Fault::of(failure, format!("the worker cannot be started: {why}")))
        }
        Ending::Exited { code, message } => judge_exit(*code, Report::parse(message), message),
    }
}

/// Any image may be a worker, so a report is optional. If a report contains a failure or an error, an exit code of 0 is
/// not a pass.
fn judge_exit(code: i32, report: Option<Report>, message: &str) -> Verdict {
    if report.as_ref().is_some_and(|report| report.stopped) {
        return Verdict::Inconclusive("the worker was stopped before the checks were done".to_owned());
    }
    let failed = report.as_ref().and_then(failed_checks);
    let words = report.is_none().then(|| last_words(message)).flatten();
    match (code, failed, report.and_then(|report| report.error)) {
        (0, None, None) => Verdict::Pass,
        (_, Some(fault), _) => Verdict::Fail(fault),
        (0 | COULD_NOT_RUN, None, Some(error)) => {
            let reason = format!("the worker could not run: {error}");
            Verdict::Fail(Fault::of(WorkerFailure::Misconfigured, reason))
        }
        (code, None, error) => {
            let said = error.or(words).map_or(String::new(), |said| format!(": {said}"));
            let reason = format!("the worker ended with exit code {code}{said}");
            Verdict::Fail(Fault::of(WorkerFailure::Failed, reason))
        }
    }
}

/// The last line of the termination message of a custom image, where programs usually print their final error.
fn last_words(message: &str) -> Option<String> {
    let line = message.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(shortened(line, MAX_WORDS_CHARS).into_owned())
}

/// Turns all failed checks into one fault, which is that of the check that decides the blame. Where a check names the
/// cluster as the cause, others that may be its consequence are the cluster's fault, too.
fn failed_checks(report: &Report) -> Option<Fault> {
    let mut failed: Vec<(&str, &Failure)> = report.failed().collect();
    failed.sort_by_key(|(_, failure)| failure.kind.blame());
    let ((check, failure), others) = failed.split_first()?;
    let others: Vec<&str> = others.iter().map(|(check, _)| *check).collect();
    let more =
        if others.is_empty() { String::new() } else { format!("; failed, too: {}", others.join(", ")) };
    let cause = format!("{}{}", camel(check), camel(failure.kind.word()));
    let hint = if failure.hint.is_empty() { String::new() } else { format!(" ({})", failure.hint) };
    Some(Fault { blame: failure.kind.blame(), cause, reason: format!("{check}: {failure}{hint}{more}") })
}

/// Condition reasons are CamelCase words.
fn camel(text: &str) -> String {
    let mut camel = String::new();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        let (first, rest) = word.split_at(1);
        camel.push_str(&first.to_ascii_uppercase());
        camel.push_str(rest);
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;
    use crate::view::Waiting;

    fn exit(code: i32, message: &str) -> Verdict {
        judge(&Ending::Exited { code, message: message.to_owned() })
    }

    fn fail(cause: &str, reason: &str) -> Verdict {
        Verdict::Fail(Fault { blame: Blame::Unclear, cause: cause.to_owned(), reason: reason.to_owned() })
    }

    const DNS: &str = r#"{"checks":[{"name":"api","outcome":"pass"},
        {"name":"dns","outcome":{"fail":{"kind":"time-out","detail":"no answer"}}}]}"#;

    #[test]
    fn any_image_that_exits_with_zero_passes() {
        assert_eq!(exit(0, ""), Verdict::Pass);
        assert_eq!(exit(0, "all well"), Verdict::Pass);
        assert_eq!(exit(0, r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#), Verdict::Pass);
        assert_eq!(exit(0, r#"{"checks":[{"name":"dns","outcome":{"skipped":"no"}}]}"#), Verdict::Pass);
    }

    #[test]
    fn a_failed_check_is_a_failure_whatever_the_exit_code_says() {
        assert_eq!(exit(1, DNS), fail("DnsTimeOut", "dns: no answer"));
        assert_eq!(exit(0, DNS), fail("DnsTimeOut", "dns: no answer"));
        assert_eq!(exit(2, DNS), fail("DnsTimeOut", "dns: no answer"));
        let hinted = DNS.replace("no answer\"", "no answer\",\"hint\":\"look at kube-proxy\"");
        assert_eq!(exit(1, &hinted), fail("DnsTimeOut", "dns: no answer (look at kube-proxy)"));
    }

    #[test]
    fn further_failures_are_named() {
        let two = DNS.replace(r#""pass""#, r#"{"fail":{"kind":"refused"}}"#);
        assert_eq!(exit(1, &two), fail("ApiRefused", "api: refused; failed, too: dns"));
        let three = two.replace("]}", r#",{"name":"x","outcome":{"fail":{"kind":"y"}}}]}"#);
        assert_eq!(exit(1, &three), fail("ApiRefused", "api: refused; failed, too: dns, x"));
    }

    #[test]
    fn what_is_clear_decides_the_blame_and_the_installation_comes_last() {
        let report = |kinds: &[&str]| {
            let checks: Vec<String> = kinds
                .iter()
                .map(|kind| format!(r#"{{"name":"{kind}","outcome":{{"fail":{{"kind":"{kind}"}}}}}}"#))
                .collect();
            let Verdict::Fail(fault) = exit(1, &format!(r#"{{"checks":[{}]}}"#, checks.join(","))) else {
                panic!()
            };
            (fault.blame, fault.cause, fault.reason)
        };
        let expected = |blame, cause: &str, reason: &str| (blame, cause.to_owned(), reason.to_owned());
        assert_eq!(
            report(&["forbidden", "busy", "timeout", "no-nameserver"]),
            expected(
                Blame::Node,
                "NoNameserverNoNameserver",
                "no-nameserver: no-nameserver; failed, too: busy, timeout, forbidden"
            )
        );
        assert_eq!(
            report(&["forbidden", "busy"]),
            expected(Blame::Cluster, "BusyBusy", "busy: busy; failed, too: forbidden")
        );
        assert_eq!(
            report(&["forbidden"]),
            expected(Blame::Installation, "ForbiddenForbidden", "forbidden: forbidden")
        );
        assert_eq!(report(&["timeout", "busy"]).0, Blame::Cluster, "an overloaded server times out, too");
        assert_eq!(report(&["forbidden", "gpu-lost"]).0, Blame::Unclear, "a kind that is not known");
    }

    #[test]
    fn the_cause_of_a_failed_check_ends_with_the_name_of_its_kind() {
        for kind in Kind::ALL {
            assert_eq!(camel(kind.word()), kind.name());
        }
    }

    #[test]
    fn a_node_is_not_blamed_for_names_that_nobody_can_resolve() {
        let of = |services: &str, other: &str| {
            let report = format!(
                r#"{{"checks":[{{"name":"dns","outcome":{{"fail":{{"kind":"timeout"}}}}}},
                {{"name":"services","outcome":{{"fail":{{"kind":"{services}"}}}}}},
                {{"name":"web","outcome":{{"fail":{{"kind":"{other}"}}}}}}]}}"#
            );
            let Verdict::Fail(fault) = exit(1, &report) else { panic!() };
            (fault.blame, fault.cause, fault.reason)
        };
        let reason = "services: no-dns-endpoints; failed, too: dns, web".to_owned();
        let expected = (Blame::Cluster, "ServicesNoDnsEndpoints".to_owned(), reason);
        assert_eq!(of("no-dns-endpoints", "resolve"), expected);
        assert_eq!(of("no-dns-endpoints", "no-nameserver").0, Blame::Node, "a failure of the node");
        assert_eq!(of("no-endpoints", "resolve").0, Blame::Cluster, "another Service");
    }

    #[test]
    fn a_worker_that_could_not_run_is_the_fault_of_the_installation() {
        let error = r#"{"error":"no such check: dnss"}"#;
        let fault = Fault::of(WorkerFailure::Misconfigured, "the worker could not run: no such check: dnss");
        assert_eq!((fault.blame, fault.cause.as_str()), (Blame::Installation, "WorkerMisconfigured"));
        assert_eq!(exit(2, error), Verdict::Fail(fault.clone()));
        assert_eq!(exit(0, error), Verdict::Fail(fault));
    }

    #[test]
    fn a_worker_that_cannot_be_started_is_the_fault_of_the_installation() {
        let fault = |reason: &str, message: &str| {
            let why = Waiting { reason: reason.to_owned(), message: message.to_owned() };
            let Verdict::Fail(fault) = judge(&Ending::CouldNotStart(why)) else { panic!() };
            (fault.blame, fault.cause, fault.reason)
        };
        let expected = |cause: &str, reason: &str| (Blame::Installation, cause.to_owned(), reason.to_owned());
        assert_eq!(
            fault("StartError", "no such file"),
            expected("WorkerNotStarted", "the worker cannot be started: StartError: no such file")
        );
        assert_eq!(
            fault("ImagePullBackOff", ""),
            expected("ImagePullFailed", "the worker cannot be started: ImagePullBackOff")
        );
    }

    #[test]
    fn a_worker_that_was_ended_from_outside_says_nothing_about_its_node() {
        let stopped = exit(2, r#"{"error":"told to stop","stopped":true}"#);
        assert!(
            matches!(&stopped, Verdict::Inconclusive(why) if why.contains("was stopped before")),
            "{stopped:?}"
        );
        assert!(
            matches!(judge(&Ending::Killed("Evicted".into())), Verdict::Inconclusive(why) if why.contains("Evicted"))
        );
    }

    #[test]
    fn any_other_end_is_a_failure() {
        assert_eq!(exit(2, ""), fail("WorkerFailed", "the worker ended with exit code 2"));
        assert_eq!(
            exit(7, "{\"error\":\"x\"}"),
            fail("WorkerFailed", "the worker ended with exit code 7: x")
        );
        assert_eq!(
            exit(3, "starting\n  no GPU \n\n"),
            fail("WorkerFailed", "the worker ended with exit code 3: no GPU")
        );
        let Verdict::Fail(long) = exit(3, &"ü".repeat(4000)) else { panic!() };
        assert!(long.reason.chars().count() < 250 && long.reason.ends_with('…'));
    }
}

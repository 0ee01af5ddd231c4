//! What the end of a worker means for its node.

use crate::report::Report;
use crate::texts::shortened;
use crate::view::Ending;

/// The exit code by which our own worker says that it could not run: a bad configuration, not a bad node.
const COULD_NOT_RUN: i32 = 2;
/// Longer last words of a worker are cut.
const MAX_WORDS_CHARS: usize = 200;

/// What came of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The node is fit.
    Pass,
    /// It is not.
    Fail(Fault),
    /// This says nothing about the node.
    Inconclusive(String),
}

/// Why a node is not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// One word for the condition: `DnsTimeout`.
    pub cause: String,
    /// A phrase for people: `dns: no answer from 10.96.0.10 in 5 s`.
    pub reason: String,
}

impl Fault {
    /// A fault from its two parts.
    #[must_use]
    pub fn new(cause: &str, reason: impl Into<String>) -> Self {
        Self { cause: cause.to_owned(), reason: reason.into() }
    }
}

/// Judges a worker by how it ended.
#[must_use]
pub fn judge(ending: &Ending) -> Verdict {
    match ending {
        Ending::Killed(why) => Verdict::Inconclusive(format!("the worker was ended from outside: {why}")),
        Ending::DeadlineExceeded => Verdict::Fail(Fault::new("Timeout", "the worker ran into its deadline")),
        Ending::Exited { code, message } => judge_exit(*code, Report::parse(message), message),
    }
}

/// Any image may be a worker, so a report is welcome but not needed. If there is one, it may not contradict the
/// exit code.
fn judge_exit(code: i32, report: Option<Report>, message: &str) -> Verdict {
    let failed = report.as_ref().and_then(failed_checks);
    let words = report.is_none().then(|| last_words(message)).flatten();
    match (code, failed, report.and_then(|report| report.error)) {
        (0, None, None) => Verdict::Pass,
        (_, Some(fault), _) => Verdict::Fail(fault),
        (0 | COULD_NOT_RUN, None, Some(error)) => {
            Verdict::Inconclusive(format!("the worker could not run: {error}"))
        }
        (code, None, error) => {
            let said = error.or(words).map_or(String::new(), |said| format!(": {said}"));
            Verdict::Fail(Fault::new("WorkerFailed", format!("the worker ended with exit code {code}{said}")))
        }
    }
}

/// The last line of what a foreign image left behind: where programs say what ended them.
fn last_words(message: &str) -> Option<String> {
    let line = message.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(shortened(line, MAX_WORDS_CHARS).into_owned())
}

fn failed_checks(report: &Report) -> Option<Fault> {
    let (check, failure) = report.first_failure()?;
    let others: Vec<&str> = report.failed().skip(1).map(|(check, _)| check).collect();
    let more =
        if others.is_empty() { String::new() } else { format!("; failed, too: {}", others.join(", ")) };
    let cause = format!("{}{}", camel(check), camel(&failure.kind));
    let hint = if failure.hint.is_empty() { String::new() } else { format!(" ({})", failure.hint) };
    Some(Fault { cause, reason: format!("{check}: {failure}{hint}{more}") })
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

    fn exit(code: i32, message: &str) -> Verdict {
        judge(&Ending::Exited { code, message: message.to_owned() })
    }

    fn fail(cause: &str, reason: &str) -> Verdict {
        Verdict::Fail(Fault::new(cause, reason))
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
    fn a_worker_that_could_not_run_says_nothing_about_its_node() {
        let error = r#"{"error":"no such check: dnss"}"#;
        let said = Verdict::Inconclusive("the worker could not run: no such check: dnss".to_owned());
        assert_eq!(exit(2, error), said);
        assert_eq!(exit(0, error), said);
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
        assert_eq!(judge(&Ending::DeadlineExceeded), fail("Timeout", "the worker ran into its deadline"));
    }
}

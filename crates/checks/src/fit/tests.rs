use knr_core::report::{CheckResult, Failure};

use super::*;
use crate::check::{COMMON, Kind, Trouble};
use crate::checks::ABOUT;

fn failed(name: &str, detail: &str, hint: &str) -> CheckResult {
    let failure = Failure { kind: Kind::Timeout.into(), detail: detail.into(), hint: hint.into() };
    CheckResult {
        name: name.into(),
        outcome: CheckOutcome::Fail(failure),
        millis: 10_000,
        note: String::new(),
    }
}

fn passed(name: &str, note: &str) -> CheckResult {
    CheckResult { name: name.into(), outcome: CheckOutcome::Pass, millis: 3, note: note.into() }
}

fn skipped(name: &str, why: &str) -> CheckResult {
    CheckResult { outcome: CheckOutcome::Skipped(why.into()), ..passed(name, "") }
}

fn report(checks: Vec<CheckResult>) -> Report {
    Report { checks, ..Report::default() }
}

fn fitted(report: &Report) -> Report {
    let text = fit(report.clone());
    assert!(text.len() <= MAX_REPORT_BYTES);
    Report::parse(&text).unwrap()
}

#[test]
fn a_short_report_stays_as_it_is() {
    let short =
        report(vec![passed("dns", "seen"), failed("network", "ä\n\"", "hint"), skipped("services", "why")]);
    assert_eq!(fitted(&short), short);
}

#[test]
fn every_check_failing_with_its_longest_hint_fits_in_full() {
    let longest = |about: &&crate::About| {
        about.kinds.iter().map(|(kind, _)| *kind).max_by_key(|kind| about.hint(*kind).len())
    };
    let checks = ABOUT.iter().map(|about| {
        let trouble = Trouble::new(longest(about).unwrap_or(Kind::Crashed), "x".repeat(200));
        CheckResult { outcome: CheckOutcome::Fail(about.failure(trouble)), ..failed(about.name, "", "") }
    });
    let all = report(checks.collect());
    assert_eq!(fitted(&all), all);
    let hints = ABOUT.iter().flat_map(|about| about.kinds).chain(&COMMON).map(|(_, hint)| hint);
    assert!(hints.clone().count() > 50);
    for hint in hints {
        assert!((10..=100).contains(&hint.len()) && !hint.ends_with('.'), "{hint}");
    }
}

#[test]
fn notes_go_first_and_then_hints() {
    let with = |note: usize, detail: usize, hint: usize| {
        report(vec![passed("a", &"n".repeat(note)), failed("b", &"d".repeat(detail), &"h".repeat(hint))])
    };
    assert_eq!(fitted(&with(3900, 100, 200)), with(0, 100, 200));
    assert_eq!(fitted(&with(3000, 2000, 3000)), with(0, 2000, 0));
}

#[test]
fn details_are_shortened_before_any_check_goes() {
    let many = (0..20)
        .map(|index| failed(&format!("check-{index}"), &"ä".repeat(500), "hint"))
        .chain([passed("good", "note"), skipped("left-out", &"w".repeat(500))]);
    let fitted = fitted(&report(many.collect()));
    assert_eq!(fitted.checks.len(), 22);
    let CheckOutcome::Fail(failure) = &fitted.checks[19].outcome else { panic!("{fitted:?}") };
    assert_eq!(failure.kind, Kind::Timeout.into());
    assert!(failure.detail.ends_with('…') && failure.detail.chars().count() > 30, "{failure:?}");
}

#[test]
fn what_passed_goes_before_what_failed() {
    let some = (0..60)
        .flat_map(|index| [passed(&format!("good-{index}"), ""), failed(&format!("bad-{index}"), "d", "")]);
    let left = fitted(&report(some.collect()));
    assert!(left.checks.iter().filter(|check| check.name.starts_with("bad")).count() >= 40);
    assert_eq!(left.checks.iter().filter(|check| check.name.starts_with("good")).count(), 0);
    assert_eq!(left.first_failure().map(|(name, _)| name), Some("bad-0"));
}

#[test]
fn an_error_is_kept_as_far_as_it_goes() {
    let error = |text: String| Report { error: Some(text), ..Report::default() };
    let left = fitted(&error("e".repeat(10_000)));
    assert_eq!(left.error.map(|error| error.len()), Some(400 + '…'.len_utf8()));
}

/// A simple deterministic generator.
fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    }
}

#[test]
fn whatever_comes_it_fits_and_the_first_failure_is_reported() {
    let alphabet = ['a', 'ß', '…', '𝄞', '"', '\\', '\n', '\u{1}', '\u{7f}', '字'];
    for seed in 0..150 {
        let mut number = numbers(seed);
        let mut text = |most: usize| -> String {
            let length = number(most + 1);
            (0..length).map(|_| alphabet[number(alphabet.len())]).collect()
        };
        let most = [10, 300, 2000][usize::try_from(seed % 3).unwrap()];
        let checks = (0..seed).map(|index| {
            let name = format!("{index}-{}", text(20));
            match index % 3 {
                0 => failed(&name, &text(most), &text(most)),
                1 => passed(&name, &text(most)),
                _ => skipped(&name, &text(most)),
            }
        });
        let checks: Vec<CheckResult> = checks.collect();
        let error = (seed % 7 == 0).then(|| text(most));
        let whole = Report { checks, error, ..Report::default() };
        let left = fitted(&whole);
        assert_eq!(
            whole.first_failure().map(|(name, failure)| (name, &failure.kind)),
            left.first_failure().map(|(name, failure)| (name, &failure.kind)),
            "seed {seed}"
        );
        assert!(left.checks.len() >= whole.failures().min(20), "seed {seed}: {}", left.checks.len());
        assert_eq!(whole.error.is_some(), left.error.is_some(), "seed {seed}");
    }
}

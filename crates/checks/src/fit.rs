//! Makes a report fit into a termination message. The least important parts are dropped first. The JSON stays valid.

use std::borrow::Cow;

use knr_core::report::{CheckOutcome, MAX_REPORT_BYTES, Report};
use knr_core::texts::shortened;

/// The numbers of characters to which texts are shortened, step by step.
const LENGTHS: [usize; 7] = [400, 200, 100, 60, 30, 10, 0];

/// Returns the report as JSON of at most [`MAX_REPORT_BYTES`].
///
/// If it is too long, the following parts are dropped, in this order and only as far as needed: the notes of checks
/// that passed, hints, the end of details, checks that passed or were skipped, and finally checks that failed, the last
/// one first.
#[must_use]
pub fn fit(mut report: Report) -> String {
    if let Some(text) = short_enough(&report) {
        return text;
    }
    report.checks.iter_mut().for_each(|check| check.note.clear());
    if let Some(text) = short_enough(&report) {
        return text;
    }
    for failure in report.checks.iter_mut().filter_map(|check| failure(&mut check.outcome)) {
        failure.hint.clear();
    }
    for length in LENGTHS {
        if let Some(text) = short_enough(&report) {
            return text;
        }
        shorten(&mut report, length);
    }
    drop_what_did_not_fail(&mut report);
    loop {
        if let Some(text) = short_enough(&report) {
            return text;
        }
        // An empty report is short enough, so this terminates.
        report.checks.pop();
        report.error = report.error.filter(|_| !report.checks.is_empty());
    }
}

fn short_enough(report: &Report) -> Option<String> {
    // A report consists of texts and numbers, which always serialize.
    serde_json::to_string(report).ok().filter(|text| text.len() <= MAX_REPORT_BYTES)
}

fn failure(outcome: &mut CheckOutcome) -> Option<&mut knr_core::report::Failure> {
    match outcome {
        CheckOutcome::Fail(failure) => Some(failure),
        CheckOutcome::Pass | CheckOutcome::Skipped(_) => None,
    }
}

fn shorten(report: &mut Report, length: usize) {
    for check in &mut report.checks {
        match &mut check.outcome {
            CheckOutcome::Fail(failure) => cut(&mut failure.detail, length),
            CheckOutcome::Skipped(why) => cut(why, length),
            CheckOutcome::Pass => {}
        }
    }
    // An error that kept all checks from running is the only content, so it stays longer.
    if let Some(error) = &mut report.error {
        cut(error, length.max(LENGTHS[2]));
    }
}

fn cut(text: &mut String, length: usize) {
    if let Cow::Owned(shorter) = shortened(text, length) {
        *text = shorter;
    }
}

fn drop_what_did_not_fail(report: &mut Report) {
    while short_enough(report).is_none() {
        let last = report.checks.iter().rposition(|check| !matches!(check.outcome, CheckOutcome::Fail(_)));
        match last {
            Some(index) => drop(report.checks.remove(index)),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests;

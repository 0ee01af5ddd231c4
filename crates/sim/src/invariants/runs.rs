//! All runs of the checks, as they really were.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use knr_core::ids::{BootId, Uid};

/// From when to when the checks ran.
#[derive(Debug, Clone, Copy)]
struct Span {
    began: Timestamp,
    ended: Timestamp,
}

/// All runs of the checks that came to a verdict.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// When each worker was made.
    made: BTreeMap<Uid, Timestamp>,
    /// When each of them began to run.
    began: BTreeMap<Uid, Timestamp>,
    /// Workers that will never end by themselves.
    hanging: BTreeSet<Uid>,
    /// When workers passed.
    passed: BTreeMap<Uid, Timestamp>,
    /// Workers that failed.
    failed: BTreeSet<Uid>,
    /// Runs that passed, and on which node.
    passes: Vec<(Uid, Span)>,
    /// Runs that failed, by node and boot.
    failures: BTreeMap<(Uid, BootId), Vec<Span>>,
}

impl Runs {
    pub(super) fn made(&mut self, worker: &Uid, now: Timestamp) {
        self.made.entry(worker.clone()).or_insert(now);
    }

    pub(super) fn made_at(&self, worker: &Uid) -> Option<Timestamp> {
        self.made.get(worker).copied()
    }

    pub(super) fn began(&mut self, worker: &Uid, now: Timestamp) {
        self.began.insert(worker.clone(), now);
    }

    pub(super) fn hangs(&mut self, worker: &Uid) {
        self.hanging.insert(worker.clone());
    }

    pub(super) fn is_hanging(&self, worker: &Uid) -> bool {
        self.hanging.contains(worker)
    }

    pub(super) fn passed(&mut self, worker: &Uid, node: &Uid, now: Timestamp) {
        self.passed.insert(worker.clone(), now);
        let span = self.span(worker, now);
        self.passes.push((node.clone(), span));
    }

    pub(super) fn passed_at(&self, worker: &Uid) -> Option<Timestamp> {
        self.passed.get(worker).copied()
    }

    pub(super) fn failed(&mut self, worker: &Uid, node: &Uid, boot: &BootId, now: Timestamp) {
        self.failed.insert(worker.clone());
        let span = self.span(worker, now);
        self.failures.entry((node.clone(), boot.clone())).or_default().push(span);
    }

    pub(super) fn has_failed(&self, worker: &Uid) -> bool {
        self.failed.contains(worker)
    }

    /// A worker that could not come to its end was given up.
    pub(super) fn timed_out(&mut self, worker: &Uid, node: &Uid, boot: &BootId, now: Timestamp) {
        if !self.has_failed(worker) {
            self.failed(worker, node, boot, now);
        }
    }

    /// A worker that was to go was still there, for as long since the last failure as is waited for that.
    pub(super) fn not_ended(
        &mut self,
        worker: &Uid,
        node: &Uid,
        boot: &BootId,
        last_failure: Option<Timestamp>,
        now: Timestamp,
    ) {
        let span = self.span(worker, now);
        let span = Span { began: last_failure.map_or(span.began, |at| at.max(span.began)), ..span };
        self.failures.entry((node.clone(), boot.clone())).or_default().push(span);
    }

    fn span(&self, worker: &Uid, ended: Timestamp) -> Span {
        let began = self.began.get(worker).or_else(|| self.made.get(worker));
        Span { began: began.copied().unwrap_or(ended), ended }
    }

    /// In this boot a run of the node failed, then one elsewhere passed, then a further one of the node failed; each began
    /// after the one before had ended, and the first ended after this time.
    ///
    /// If there are such three, then there are with the first failure and the first pass that come into question.
    pub(super) fn is_fair_trial(&self, node: &Uid, boot: &BootId, since: Timestamp) -> bool {
        let Some(first) = self.first_failure(node, boot, since) else { return false };
        let Some(pass) = self.first_pass_elsewhere(node, first.ended) else { return false };
        self.failures(node, boot).iter().any(|failure| failure.began > pass.ended)
    }

    fn failures(&self, node: &Uid, boot: &BootId) -> &[Span] {
        self.failures.get(&(node.clone(), boot.clone())).map_or(&[], Vec::as_slice)
    }

    pub(super) fn has_failed_since(&self, node: &Uid, boot: &BootId, since: Timestamp) -> bool {
        self.failures(node, boot).iter().any(|failure| failure.ended > since)
    }

    fn first_failure(&self, node: &Uid, boot: &BootId, since: Timestamp) -> Option<&Span> {
        let failures = self.failures(node, boot).iter();
        failures.filter(|failure| failure.ended > since).min_by_key(|failure| failure.ended)
    }

    fn first_pass_elsewhere(&self, node: &Uid, after: Timestamp) -> Option<&Span> {
        let elsewhere = self.passes.iter().filter(|(passed, span)| passed != node && span.began > after);
        elsewhere.map(|(_, span)| span).min_by_key(|span| span.ended)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    /// Runs by the node they are on, when they begin and end, and whether they pass.
    fn trial(runs: &[(&str, i64, i64, bool)], since: i64) -> bool {
        let mut log = Runs::default();
        for (index, (node, began, ended, passes)) in runs.iter().enumerate() {
            let worker = Uid::from(format!("w{index}"));
            log.began(&worker, at(*began));
            if *passes {
                log.passed(&worker, &Uid::from(*node), at(*ended));
            } else {
                log.failed(&worker, &Uid::from(*node), &"boot".into(), at(*ended));
            }
        }
        log.is_fair_trial(&"n".into(), &"boot".into(), at(since))
    }

    #[test]
    fn a_fair_trial_is_a_failure_a_pass_elsewhere_and_another_failure_one_after_the_other() {
        let (fails, passes, fails_again) = (("n", 1, 2, false), ("m", 3, 4, true), ("n", 5, 6, false));
        assert!(trial(&[fails, passes, fails_again], 0));
        assert!(!trial(&[fails, passes], 0), "it was not tried again");
        assert!(!trial(&[fails, fails_again], 0), "nobody passed");
        assert!(!trial(&[fails, ("n", 3, 4, true), fails_again], 0), "it passed itself");
        assert!(!trial(&[fails, ("m", 1, 4, true), fails_again], 0), "the pass began before the failure");
        assert!(!trial(&[fails, passes, ("n", 3, 6, false)], 0), "the second failure began before the pass");
        assert!(!trial(&[fails, passes, fails_again], 2), "the first failure was in an outage");
        let later = [("m", 7, 8, true), ("n", 9, 10, false)];
        assert!(
            trial(&[fails, passes, fails_again, later[0], later[1]], 4),
            "the second one counts as the first"
        );
    }
}

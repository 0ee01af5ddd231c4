//! S4: the fair trial before a deletion, as the section "Deleting" of `docs/design.md` describes it.
//!
//! The four steps are looked for among the true runs: the node failed by its own fault; then the same checks passed
//! elsewhere; then the node failed again, which is its next and its last failure; then they passed elsewhere again. Each run began
//! after the one before had ended, all of them checked the same, the failures are of the current boot, and everything
//! happened within minutes.
//!
//! "After the last trouble in the cluster" is demanded as far as the design promises it. Trouble is what a process
//! knows: too many nodes fail at once, or a reference run failed. So the monitor finds out at every turn whether a
//! process must have known of trouble, from the objects that have reached the process and the true results of their
//! runs, and not from what the rules made of them.
//!
//! - The process that recorded the third step learned of the first failure after the last trouble it knew of.
//! - The process that deletes the node learned of the last failure after the last trouble it knew of, and knows of as
//!   many failures since then as there are attempts.
//! - Trouble that only another process saw is not demanded: a new leader continues from what is recorded. Nor is an
//!   outage that no run noticed.
//!
//! Whatever anybody knew, at least one failure of the trial was not the work of an outage ([`Rule::TrialInOutage`]).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use knr_core::engine::Outcome;
use knr_core::ids::{Requires, Uid};
use knr_core::state::Reference;
use knr_core::view::NodeView;

use super::runs::{Failure, Process, Record, Run, Runs, StateKey};
use super::{Monitor, Rule, Write, state_of};
use crate::run::Decided;
use crate::writers::Request;

/// The runs of a trial are at most this far apart, from the first pass to the deletion.
const SAME_TIME: SignedDuration = SignedDuration::from_mins(15);
/// A node is deleted within this time after its last failure is known.
const DECIDED_FOR: SignedDuration = SignedDuration::from_mins(5);
/// The time between a decision and its arrival at the API server: the queue and the request.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(45);

/// What each process has learned.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    processes: BTreeMap<Process, Known>,
    /// Orders that recorded a failed reference run and were not answered yet, each with what the run checked.
    failed_references: BTreeMap<(Process, u64), Option<Requires>>,
}

#[derive(Debug, Default)]
struct Known {
    /// The times at which it knew the cluster to be in trouble, in order.
    troubles: Vec<Timestamp>,
    /// When it learned of each failure.
    failures: BTreeMap<(Uid, StateKey), Timestamp>,
}

fn order_of(request: &Request) -> (Process, u64) {
    ((request.replica, request.life), request.order.ticket)
}

impl Knowledge {
    fn of(&mut self, process: Process) -> &mut Known {
        self.processes.entry(process).or_default()
    }

    /// Returns when a process last knew of trouble, as of this time.
    fn last_trouble(&self, process: Process, by: Timestamp) -> Timestamp {
        let troubles = self.processes.get(&process).map_or(&[][..], |known| &known.troubles);
        let before = &troubles[..troubles.partition_point(|at| *at <= by)];
        before.last().copied().unwrap_or(Timestamp::MIN)
    }

    /// Returns when a process learned of a failure. A record that was replaced before the process could see it is as
    /// good as known from the start.
    fn learned(&self, process: Process, node: &Uid, record: &Record) -> Timestamp {
        let key = (node.clone(), record.state);
        self.processes.get(&process).and_then(|known| known.failures.get(&key)).copied().unwrap_or(record.at)
    }
}

/// A trial that may be fair: the first failure, the pass after it, and the last failure.
struct Trial<'a> {
    first: &'a Failure,
    pass: &'a Run,
    last: &'a Failure,
}

impl Trial<'_> {
    fn checked_the_same(&self) -> bool {
        self.first.run.requires == self.last.run.requires && self.pass.requires == self.last.run.requires
    }
}

/// Returns all trials that end with a failure, each run after the one before. A pass from before any other failure says
/// nothing about the last one.
fn trials<'a>(runs: &'a Runs, failures: &'a [Failure], last: &'a Failure) -> Vec<Trial<'a>> {
    let recorded = failures.iter().filter(|failure| failure.recorded.is_some());
    let Some(first) = recorded.take_while(|failure| !std::ptr::eq(*failure, last)).last() else {
        return Vec::new();
    };
    let between = |run: &&Run| run.began > first.run.ended && run.ended < last.run.began;
    let passes = runs.passes_elsewhere(&first.run.node).filter(between);
    passes.map(|pass| Trial { first, pass, last }).collect()
}

impl Monitor {
    /// Takes note of what a process has learned by now.
    pub(super) fn learned(&mut self, decided: &Decided<'_>, now: Timestamp) {
        if !decided.engine.knows_enough() {
            return;
        }
        let process = (decided.replica, decided.life);
        let is_in_trouble = self.is_in_trouble(decided, now);
        let known = self.knowledge.of(process);
        if is_in_trouble {
            known.troubles.push(now);
        }
        for (_, entry) in decided.engine.world().entries() {
            if let (Some(view), Some(state)) = (&entry.view, &entry.state)
                && state.is_own_failure()
            {
                let key = (view.id.uid.clone(), (state.serial, state.at));
                known.failures.entry(key).or_insert(now);
            }
        }
    }

    /// The result of a reference run is recorded on its node.
    pub(super) fn reference_recorded(&mut self, write: &Write<'_>, before: &NodeView, after: &NodeView) {
        let reference = |node| state_of(node).and_then(|state| state.reference);
        let is_new = reference(before) != reference(after);
        // A run of unknown age, which another process has ordered, is dated with the creation of its node.
        let has_failed = |reference: &Reference| !reference.pass && reference.at != after.created;
        if let Some(failed) = reference(after).filter(|reference| is_new && has_failed(reference)) {
            self.knowledge.failed_references.insert(order_of(write.request), failed.requires);
        }
    }

    /// A process learns from the answer to its own write that a reference run has failed.
    pub(super) fn reference_known(&mut self, request: &Request, outcome: &Outcome, now: Timestamp) {
        let is_done = matches!(outcome, Outcome::Done(_));
        if is_done && let Some(requires) = self.knowledge.failed_references.remove(&order_of(request)) {
            let process = (request.replica, request.life);
            self.knowledge.of(process).troubles.push(now);
            self.closings.reference_failed(process, requires, now);
        }
    }

    /// A failed attempt was recorded.
    pub(super) fn failure_recorded(&mut self, write: &Write<'_>, node: &NodeView, state: StateKey) {
        let by = (write.request.replica, write.request.life);
        let last_trouble = self.knowledge.last_trouble(by, write.request.decided);
        let record = Record { at: write.now, state, by, last_trouble };
        self.runs.recorded(&node.id.uid, &node.boot, &record);
    }

    /// Checks the trial of a node that is deleted.
    pub(super) fn fair_trial(&mut self, write: &Write<'_>, node: &NodeView) {
        if let Some((rule, otherwise)) = self.flaws(write, node) {
            let how = format!("a node was deleted although {otherwise}");
            self.violate(node.id.name.as_str(), rule, how);
        }
    }

    /// Returns what is wrong with the trial of a node, the worst flaw first.
    fn flaws(&self, write: &Write<'_>, node: &NodeView) -> Option<(Rule, &'static str)> {
        let (uid, by) = (&node.id.uid, (write.request.replica, write.request.life));
        let decided = write.request.decided;
        let failures = self.runs.failures(uid, &node.boot);
        let flaw = |otherwise| Some((Rule::FairTrial, otherwise));
        let recorded = failures.iter().filter_map(|failure| Some((failure, failure.recorded.as_ref()?)));
        let Some((last, record)) = recorded.clone().max_by_key(|(_, record)| record.at) else {
            return flaw("it never failed");
        };
        let mut trials = trials(&self.runs, failures, last);
        if trials.is_empty() {
            return flaw("it did not fail again after another node had passed");
        }
        trials.retain(Trial::checked_the_same);
        if trials.is_empty() {
            return flaw("other checks had passed elsewhere");
        }
        let learned = |first: &Failure| {
            let known = first.recorded.as_ref().map(|first| self.knowledge.learned(record.by, uid, first));
            known.is_some_and(|known| known > record.last_trouble)
        };
        trials.retain(|trial| learned(trial.first));
        let since = self.knowledge.last_trouble(by, decided);
        let counts = |record: &Record| self.knowledge.learned(by, uid, record) > since;
        if trials.is_empty() || !counts(record) {
            return flaw("the cluster was in trouble after it had failed");
        }
        let still_passes = |run: &Run| {
            run.began > last.run.ended && run.ended <= decided && run.requires == last.run.requires
        };
        if !self.runs.passes_elsewhere(uid).any(still_passes) {
            return flaw("nobody has found out whether the checks still pass elsewhere");
        }
        let is_recent = self.knowledge.learned(by, uid, record) + DECIDED_FOR + ON_ITS_WAY >= decided;
        trials.retain(|trial| trial.pass.began + SAME_TIME + ON_ITS_WAY >= decided);
        if trials.is_empty() || !is_recent {
            return flaw("its trial was too long ago");
        }
        let attempts = recorded.filter(|(_, record)| counts(record)).count();
        if attempts < write.config().reconciliation.max_retries as usize {
            return Some((Rule::FreshAttempts, "it has attempts left since the last trouble"));
        }
        trials.retain(|trial| !(trial.first.in_outage && trial.last.in_outage));
        if trials.is_empty() {
            return Some((Rule::TrialInOutage, "only outages made it fail"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use knr_core::fault::Blame;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn record(second: i64) -> Record {
        Record { at: at(second), state: (1, at(second)), by: (0, 1), last_trouble: Timestamp::MIN }
    }

    /// Each run is a node, its begin and end, and whether it passes. The last one is a failure of `n`.
    fn is_trial(history: &[(&str, i64, i64, bool)]) -> bool {
        let (mut runs, boot) = (Runs::default(), "boot".into());
        for (index, (node, began, ended, passes)) in history.iter().enumerate() {
            let (worker, node) = (Uid::from(format!("w{index}")), Uid::from(*node));
            runs.began(&worker, at(*began));
            if *passes {
                runs.passed(&worker, &node, at(*ended));
            } else {
                runs.failed(&worker, (&node, &boot), (Blame::Node, false), at(*ended));
                runs.recorded(&node, &boot, &record(*ended));
            }
        }
        let failures = runs.failures(&"n".into(), &boot);
        failures.last().is_some_and(|last| !trials(&runs, failures, last).is_empty())
    }

    #[test]
    fn a_trial_is_a_failure_a_pass_elsewhere_and_another_failure_one_after_the_other() {
        let (fails, passes, fails_again) = (("n", 1, 2, false), ("m", 3, 4, true), ("n", 5, 6, false));
        assert!(is_trial(&[fails, passes, fails_again]));
        assert!(!is_trial(&[fails, passes]), "it was not tried again");
        assert!(!is_trial(&[fails, fails_again]), "nobody passed");
        assert!(!is_trial(&[fails, ("n", 3, 4, true), fails_again]), "it passed itself");
        assert!(!is_trial(&[fails, ("m", 1, 4, true), fails_again]), "the pass began before the failure");
        assert!(!is_trial(&[fails, passes, ("n", 3, 6, false)]), "the second failure began before the pass");
        let in_between = ("n", 5, 6, false);
        assert!(
            !is_trial(&[fails, passes, in_between, ("n", 7, 8, false)]),
            "the pass is older than a failure"
        );
    }

    #[test]
    fn only_a_report_that_blames_the_node_counts_against_it() {
        let (mut runs, node, boot) = (Runs::default(), "n".into(), "boot".into());
        for (worker, blame) in [("a", Blame::Cluster), ("b", Blame::Installation), ("c", Blame::Node)] {
            runs.failed(&worker.into(), (&node, &boot), (blame, false), at(1));
            assert_eq!(runs.blame(&worker.into()), Some(blame));
        }
        assert_eq!(runs.failures(&node, &boot).len(), 1);
    }

    #[test]
    fn each_process_knows_what_has_reached_it_by_then() {
        let mut knowledge = Knowledge::default();
        let node: Uid = "n".into();
        knowledge.of((0, 1)).troubles = vec![at(3), at(5)];
        knowledge.of((0, 1)).failures.insert((node.clone(), (1, at(2))), at(4));
        assert_eq!(
            [2, 3, 4, 9].map(|by| knowledge.last_trouble((0, 1), at(by))),
            [Timestamp::MIN, at(3), at(3), at(5)]
        );
        assert_eq!(knowledge.last_trouble((0, 2), at(9)), Timestamp::MIN, "another life");
        assert_eq!(knowledge.learned((0, 1), &node, &record(2)), at(4));
        assert_eq!(knowledge.learned((0, 2), &node, &record(2)), at(2));
    }
}

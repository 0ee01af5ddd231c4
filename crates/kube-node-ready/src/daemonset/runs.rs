//! Runs of the checks in this process, presented to the rules as workers.

use knr_checks::fit;
use knr_core::action::worker_name;
use knr_core::ids::{NodeName, Version, WorkerRef};
use knr_core::report::Report;
use knr_core::view::{Ending, Stage, Stamp, WorkerView};
use knr_core::world::{Fact, Source};
use tokio::task::AbortHandle;

use crate::exit;

/// The current run, if any, and a count of all changes.
#[derive(Debug, Default)]
pub(super) struct Runs {
    current: Option<Run>,
    /// The number of changes so far. The rules take it for what a resource version is to the API server.
    events: u64,
}

#[derive(Debug)]
struct Run {
    view: WorkerView,
    task: Option<AbortHandle>,
}

impl Runs {
    /// Starts a run. Its end is reported with the returned number, see [`Self::ended`].
    pub(super) fn begin(&mut self, stamp: Stamp) -> (u64, Fact) {
        self.end_current();
        let version = self.next();
        let view = WorkerView {
            id: WorkerRef { name: worker_name(&stamp.node.uid), uid: format!("run-{version}").into() },
            version: Version(version),
            host: Some(stamp.node.name.clone()),
            stamp,
            stage: Stage::Running,
            leaving: false,
        };
        self.current = Some(Run { view: view.clone(), task: None });
        (version, Fact::Worker(view, Source::Answer))
    }

    /// Keeps the task of the current run, so that it can be aborted.
    pub(super) fn carried_out_by(&mut self, task: AbortHandle) {
        if let Some(run) = &mut self.current {
            run.task = Some(task);
        }
    }

    /// Records the end of a run. Returns none if it is no longer the current one.
    pub(super) fn ended(&mut self, number: u64, report: Report) -> Option<Fact> {
        let version = self.next();
        let run = self.current.as_mut().filter(|run| run.view.id.uid.as_str() == format!("run-{number}"))?;
        let code = if report.failures() == 0 { 0 } else { i32::from(exit::FAILED) };
        run.task = None;
        run.view.version = Version(version);
        run.view.stage = Stage::Ended(Ending::Exited { code, message: fit(report) });
        Some(Fact::Worker(run.view.clone(), Source::Watch))
    }

    /// Removes a run that is no longer wanted. If another run has already replaced it, it is reported as gone anyway.
    pub(super) fn remove(&mut self, worker: &WorkerRef, node: &NodeName) -> Fact {
        let run = self.current.take_if(|run| run.view.id == *worker);
        if let Some(task) = run.and_then(|run| run.task) {
            task.abort();
        }
        Fact::WorkerGone(worker.clone(), node.clone(), Version(self.next()), Source::Answer)
    }

    /// The current run, if any, and the version as of which that holds.
    pub(super) fn now(&self) -> (Option<WorkerView>, Version) {
        (self.current.as_ref().map(|run| run.view.clone()), Version(self.events))
    }

    /// Aborts the current run.
    pub(super) fn end_current(&mut self) {
        if let Some(task) = self.current.take().and_then(|run| run.task) {
            task.abort();
        }
    }

    fn next(&mut self) -> u64 {
        self.events += 1;
        self.events
    }
}

#[cfg(test)]
mod tests {
    use knr_core::ids::NodeRef;
    use knr_core::view::Purpose;

    use super::*;

    fn stamp(serial: u32) -> Stamp {
        let node = NodeRef { name: "n1".into(), uid: "u".into() };
        Stamp {
            node,
            boot: "b".into(),
            serial,
            attempt: 1,
            purpose: Purpose::Verify,
            policy: "default".into(),
            requires: "".into(),
        }
    }

    fn view(fact: Fact) -> WorkerView {
        match fact {
            Fact::Worker(view, _) => view,
            other => panic!("{other:?}"),
        }
    }

    fn passed() -> Report {
        Report::default()
    }

    #[test]
    fn a_run_is_a_worker_on_its_own_node_whose_versions_grow() {
        let mut runs = Runs::default();
        let (number, began) = runs.begin(stamp(1));
        let began = view(began);
        assert_eq!((began.stage, began.host), (Stage::Running, Some("n1".into())));
        let ended = view(runs.ended(number, passed()).unwrap());
        assert!(matches!(&ended.stage, Stage::Ended(Ending::Exited { code: 0, .. })), "{ended:?}");
        assert!(ended.id == began.id && ended.version > began.version);
        assert_eq!(runs.now(), (Some(ended.clone()), ended.version));
        let gone = runs.remove(&ended.id, &"n1".into());
        assert!(
            matches!(&gone, Fact::WorkerGone(id, _, version, _) if *id == ended.id && *version > ended.version)
        );
        assert!(runs.now().0.is_none());
    }

    #[test]
    fn a_run_that_gave_way_to_another_is_gone_too() {
        let mut runs = Runs::default();
        let (_, first) = runs.begin(stamp(1));
        let (second, _) = runs.begin(stamp(2));
        let first = view(first).id;
        assert!(matches!(runs.remove(&first, &"n1".into()), Fact::WorkerGone(id, ..) if id == first));
        assert!(runs.ended(second, passed()).is_some(), "the other run goes on");
    }

    #[test]
    fn the_end_of_a_run_that_was_removed_is_of_no_interest() {
        let mut runs = Runs::default();
        let (first, began) = runs.begin(stamp(1));
        runs.remove(&view(began).id, &"n1".into());
        assert_eq!(runs.ended(first, passed()), None);
        let (second, _) = runs.begin(stamp(2));
        assert_eq!(runs.ended(first, passed()), None, "nor is it mistaken for the end of the next");
        assert!(runs.ended(second, passed()).is_some());
    }
}

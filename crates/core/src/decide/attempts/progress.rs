//! The progress of a node's worker.

use jiff::{SignedDuration, Timestamp};

use crate::decide::subject::Subject;
use crate::explain::{Phase, WithoutReport, WorkerStage, later};
use crate::fault::{WorkerFailure, waiting_failure};
use crate::verdict::{Fault, Verdict, judge};
use crate::view::Stage;
use crate::world::SeenWorker;

/// The progress of a worker.
pub(in crate::decide) enum Progress {
    Waiting {
        stage: WorkerStage,
        /// `None`: for as long as it takes.
        until: Option<Timestamp>,
    },
    /// Its time seems to be up, but a watch may have missed its end.
    Unsure,
    Over {
        verdict: Verdict,
        /// When its end was first seen, or its time was up.
        since: Timestamp,
    },
}

/// Judges the progress of a worker. Waiting is measured from when this process first saw the stage, because other
/// clocks may be wrong.
pub(in crate::decide) fn progress(subject: &Subject<'_>, worker: &SeenWorker) -> Progress {
    let settings = &subject.cx.policy.worker;
    let ready = subject.entry.ready_since.filter(|_| subject.view.ready);
    match &worker.view.stage {
        Stage::Ended(ending) => {
            let ran_here = worker.view.host.as_ref() == Some(&subject.view.id.name);
            let elsewhere = || Verdict::Inconclusive(WithoutReport::RanElsewhere.to_string());
            let verdict = if ran_here { judge(ending) } else { elsewhere() };
            Progress::Over { verdict, since: worker.since }
        }
        Stage::Pending(waiting) => {
            // A worker may not start while its node is not Ready. This is not held against the node.
            let Some(ready) = ready else {
                return Progress::Waiting { stage: WorkerStage::NodeNotReady, until: None };
            };
            let known = waiting.as_ref().and_then(|waiting| waiting_failure(&waiting.reason));
            let failure = known.unwrap_or(WorkerFailure::Pending);
            let stage = WorkerStage::Pending { waiting: waiting.clone(), failure };
            let span = Span { from: worker.since.max(ready), limit: settings.pending_timeout() };
            span.judge(subject, stage, failure)
        }
        Stage::Running => {
            // Its end may not be reported while its node is not Ready. This is not held against the node.
            let Some(ready) = ready else {
                return Progress::Waiting { stage: WorkerStage::Running, until: None };
            };
            let span = Span { from: worker.since.max(ready), limit: settings.runs_within() };
            span.judge(subject, WorkerStage::Running, WorkerFailure::Timeout)
        }
    }
}

impl WorkerStage {
    pub(in crate::decide) const fn phase(&self) -> Phase {
        match self {
            Self::NodeNotReady | Self::Pending { .. } => Phase::Pending,
            Self::Running => Phase::InProgress,
        }
    }
}

struct Span {
    from: Timestamp,
    limit: SignedDuration,
}

impl Span {
    fn judge(self, subject: &Subject<'_>, stage: WorkerStage, failure: WorkerFailure) -> Progress {
        let until = later(self.from, self.limit);
        if subject.cx.now < until {
            Progress::Waiting { stage, until: Some(until) }
        } else if subject.entry.reread.is_none_or(|at| at < until) {
            Progress::Unsure
        } else {
            let reason = WithoutReport::TimedOut { stage: &stage, after: self.limit }.to_string();
            Progress::Over { verdict: Verdict::Fail(Fault::of(failure, reason)), since: until }
        }
    }
}

//! How far the worker of a node has come.

use jiff::{SignedDuration, Timestamp};

use crate::decide::subject::Subject;
use crate::explain::{Phase, later, seconds};
use crate::fault::{WorkerFailure, waiting_failure};
use crate::verdict::{Fault, Verdict, judge};
use crate::view::Stage;
use crate::world::SeenWorker;

/// The pod carries the deadline of the checks itself. This is added for the kubelet to act on it.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// How far a worker has come.
pub(in crate::decide) enum Progress {
    Waiting {
        phase: Phase,
        reason: &'static str,
        why: String,
        /// None: for as long as it takes.
        until: Option<Timestamp>,
    },
    /// Its time seems to be over, but its end may not have been heard of.
    Unsure,
    Over(Verdict),
}

/// Looks at a worker. Waiting is measured from when this process first saw it so: other clocks may be wrong.
pub(in crate::decide) fn progress(subject: &Subject<'_>, worker: &SeenWorker) -> Progress {
    let settings = &subject.cx.config.worker;
    match &worker.view.stage {
        Stage::Ended(_) if worker.view.host.as_ref() != Some(&subject.view.id.name) => {
            Progress::Over(Verdict::Inconclusive("the worker did not run on this node".to_owned()))
        }
        Stage::Ended(ending) => Progress::Over(judge(ending)),
        Stage::Pending(waiting) => {
            let told = waiting.as_ref().map_or(String::new(), |told| format!(": {told}"));
            let why = format!("the worker is not running yet{told}");
            // A kubelet whose node is not ready starts no pods, and that is not held against the node.
            let Some(ready) = subject.entry.ready_since.filter(|_| subject.view.ready) else {
                let (phase, reason) = (Phase::Pending, "WaitingForReady");
                return Progress::Waiting {
                    phase,
                    reason,
                    why: "waiting for the node to be Ready".to_owned(),
                    until: None,
                };
            };
            let known = waiting.as_ref().and_then(|waiting| waiting_failure(&waiting.reason));
            let span = Span { from: worker.since.max(ready), limit: settings.pending_timeout() };
            span.judge(subject, Phase::Pending, why, known.unwrap_or(WorkerFailure::Pending))
        }
        Stage::Running => {
            let span = Span { from: worker.since, limit: settings.timeout() + GRACE };
            let why = "the worker runs the checks".to_owned();
            span.judge(subject, Phase::InProgress, why, WorkerFailure::Timeout)
        }
    }
}

struct Span {
    from: Timestamp,
    limit: SignedDuration,
}

impl Span {
    fn judge(self, subject: &Subject<'_>, phase: Phase, why: String, failure: WorkerFailure) -> Progress {
        let until = later(self.from, self.limit);
        if subject.cx.now < until {
            let reason = if phase == Phase::Pending { failure.word() } else { "Verifying" };
            Progress::Waiting { phase, reason, why, until: Some(until) }
        } else if subject.entry.reread.is_none_or(|at| at < until) {
            Progress::Unsure
        } else {
            let reason = format!("after {} {why}", seconds(self.limit));
            Progress::Over(Verdict::Fail(Fault::of(failure, reason)))
        }
    }
}

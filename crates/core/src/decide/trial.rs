//! A node that has to prove itself: closed until it does, or open on probation until it fails.

use jiff::{SignedDuration, Timestamp};

use super::scope::MayClose;
use super::subject::{Subject, phase_of};
use super::{Decision, Seat, Want, deletion, scope, startup, tidy, verification};
use crate::action::{Action, Closing, Headline, News, Recorded, Removal};
use crate::explain::{Door, Phase, later, seconds};
use crate::names;
use crate::patch::PatchBuilder;
use crate::state::{NodeState, StatePhase};
use crate::verdict::{Fault, Verdict, judge};
use crate::view::{Purpose, Stage};
use crate::world::SeenWorker;

/// The pod carries the deadline of the checks itself. This is added for the kubelet to act on it.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// How far a worker has come.
pub(super) enum Progress {
    Waiting {
        phase: Phase,
        why: String,
        until: Timestamp,
    },
    /// It looks as if its time were over, but that may be because nothing was heard of it.
    Unsure,
    Over(Verdict),
}

/// Looks at a worker. All waiting is measured from when we first saw it so: other clocks are not ours to trust.
pub(super) fn progress(subject: &Subject<'_>, worker: &SeenWorker) -> Progress {
    let settings = &subject.cx.config.worker;
    let (phase, limit, why, cause) = match &worker.view.stage {
        Stage::Ended(_) if worker.view.host.as_ref() != Some(&subject.view.id.name) => {
            return Progress::Over(Verdict::Inconclusive("the worker did not run on this node".to_owned()));
        }
        Stage::Ended(ending) => return Progress::Over(judge(ending)),
        Stage::Pending(told) => {
            let told = told.as_ref().map_or(String::new(), |told| format!(": {told}"));
            let why = format!("the worker is not running yet{told}");
            (Phase::Pending, settings.pending_timeout(), why, "WorkerPending")
        }
        Stage::Running => (
            Phase::InProgress,
            settings.timeout() + GRACE,
            "the worker runs the checks".to_owned(),
            "Timeout",
        ),
    };
    let until = worker.since + limit;
    if subject.cx.now < until {
        Progress::Waiting { phase, why, until }
    } else if subject.entry.reread.is_none_or(|at| at < until) {
        Progress::Unsure
    } else {
        Progress::Over(Verdict::Fail(Fault::new(cause, format!("after {} {why}", seconds(limit)))))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) subject: &'a Subject<'a>,
    /// The node is open, and has to be proven again.
    pub(super) probation: Option<Probation>,
}

/// An open node that has to be proven.
#[derive(Clone, Copy)]
pub(super) struct Probation {
    pub(super) why: &'static str,
    pub(super) if_it_fails: IfItFails,
}

/// What becomes of an open node that fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfItFails {
    Close,
    StayOpen,
}

impl<'a> Trial<'a> {
    pub(super) fn consider(self) -> Decision {
        let subject = self.subject;
        match subject.worker() {
            Some(worker) if worker.view.leaving => self.wait_for_the_end(worker),
            Some(worker) if subject.is_current(&worker.view.stamp, Purpose::Verify) => {
                self.follow(worker).keeps_worker()
            }
            Some(worker) => self
                .waiting("an earlier worker is removed first")
                .acts(tidy::remove(&worker.view, Removal::Outdated)),
            None if self.lost_its_worker() => self.record_inconclusive("the worker vanished"),
            None => self.try_next(),
        }
    }

    fn waiting(self, why: &str) -> Decision {
        let why = match self.probation {
            Some(Probation { why: probation, .. }) => format!("{probation}; {why}"),
            None => why.to_owned(),
        };
        Decision::new(self.subject.explain(phase_of(self.so_far()), why))
    }

    fn lost_its_worker(self) -> bool {
        self.subject
            .entry
            .vanished
            .as_ref()
            .is_some_and(|stamp| self.subject.is_current(stamp, Purpose::Verify))
    }

    /// What has been recorded of this trial so far. A restart of the node begins a new one.
    fn so_far(self) -> Option<&'a NodeState> {
        match self.probation {
            Some(_) => self.subject.state,
            None => self.subject.state_of_this_boot().filter(|state| state.phase != StatePhase::Verified),
        }
    }

    /// Runs without a verdict since the node was last restarted.
    fn runs_so_far(self) -> u32 {
        let in_this_boot =
            |state: &&NodeState| state.run_boot.as_ref().is_none_or(|boot| *boot == self.subject.view.boot);
        self.so_far().filter(in_this_boot).map_or(0, |state| state.inconclusive)
    }

    /// The attempt which the next worker is. The first one that fails on probation closes the node.
    fn attempt(self) -> u32 {
        if self.probation.is_some() && !self.has_failed_open() {
            return 1;
        }
        let most = self.subject.cx.config.reconciliation.max_retries;
        let most = match self.subject.cx.seat {
            Seat::Controller => most,
            Seat::Node => most.saturating_add(1),
        };
        self.so_far().map_or(0, |state| state.attempt).saturating_add(1).min(most)
    }

    /// It failed and is open all the same, so it goes on from there.
    fn has_failed_open(self) -> bool {
        self.probation.is_some() && self.so_far().is_some_and(|state| state.phase == StatePhase::Failed)
    }

    fn try_next(self) -> Decision {
        let subject = self.subject;
        let mut due = subject.view.created;
        let is_under_way = self.probation.is_none() || self.runs_so_far() > 0 || self.has_failed_open();
        if let Some(state) = self.so_far().filter(|_| is_under_way) {
            if subject.is_exhausted(state) {
                return self.end_of_the_line(state);
            }
            if let Some(next_try) = state.next_try {
                // If the clock that wrote this was ahead of ours, the span still holds.
                let span = next_try.duration_since(state.at).max(SignedDuration::ZERO);
                due = next_try.min(later(subject.entry.state_seen, span));
                if subject.cx.now < due {
                    return self.pausing(state, due);
                }
            } else if self.probation.is_some() {
                due = subject.entry.state_seen;
            }
        }
        let stamp = subject.next_stamp(Purpose::Verify, self.attempt());
        self.waiting("waiting for a free verification slot").wants(Want::Worker { stamp, due })
    }

    fn pausing(self, state: &NodeState, due: Timestamp) -> Decision {
        let told = if self.probation.is_none() || self.has_failed_open() {
            self.subject.account(state)
        } else {
            let told = format!("run {} gave no verdict: {}", state.inconclusive, state.why());
            self.waiting(&told).explanation
        };
        Decision::new(told.then("next try", due)).wakes(due)
    }

    fn end_of_the_line(self, state: &NodeState) -> Decision {
        match self.probation {
            None => deletion::consider(self.subject, state),
            Some(Probation { why: probation, .. }) => {
                let (runs, reason) = (state.inconclusive, state.why());
                let why = format!("{probation}, and there was no verdict in {runs} runs: {reason}");
                Decision::new(self.subject.explain(Phase::Verified, why))
            }
        }
    }

    fn follow(self, worker: &SeenWorker) -> Decision {
        let subject = self.subject;
        match progress(subject, worker) {
            Progress::Over(Verdict::Pass) => self.open(worker),
            Progress::Waiting { phase, why, until } => {
                let attempt = subject.attempt_of(worker.view.stamp.attempt);
                let mut decision = self.waiting(&format!("{attempt}: {why}")).wakes(until);
                decision.explanation.phase = phase;
                decision
            }
            Progress::Unsure => self
                .waiting("the worker has had its time; a last look is taken")
                .wants(Want::Reread(subject.view.id.clone())),
            Progress::Over(Verdict::Fail(fault)) => self.fail(worker.view.stamp.attempt, &fault),
            Progress::Over(Verdict::Inconclusive(why)) => self.record_inconclusive(&why),
        }
    }

    /// A worker that is being deleted may have ended because it was told to, so nothing follows from how it ended. If
    /// it never goes, its kubelet is not working.
    fn wait_for_the_end(self, worker: &SeenWorker) -> Decision {
        let subject = self.subject;
        if let Some(state) = self.so_far().filter(|state| subject.is_exhausted(state)) {
            return self.end_of_the_line(state);
        }
        let limit = subject.cx.config.worker.pending_timeout();
        let until = later(worker.since.max(subject.entry.state_seen), limit);
        let waiting = self.waiting("a worker that is being deleted has to be gone first");
        if subject.cx.now < until {
            return waiting.wakes(until);
        }
        // An open node is not closed for this: nothing was checked.
        if self.probation.is_some() {
            return waiting;
        }
        if subject.entry.reread.is_none_or(|at| at < until) {
            return waiting.wants(Want::Reread(subject.view.id.clone()));
        }
        let reason = format!("for {} the kubelet has not ended a worker that was deleted", seconds(limit));
        self.fail(self.attempt(), &Fault::new("WorkerNotEnded", reason))
    }

    fn open(self, worker: &SeenWorker) -> Decision {
        let subject = self.subject;
        let settings = &subject.cx.config.node_management;
        if scope::awaits_karpenter(subject) {
            return self.waiting("the checks passed; Karpenter has not registered the node yet");
        }
        if let Some(gate) = startup::first_closed(subject, settings.after.iter().map(String::as_str)) {
            return self.waiting(&format!("the checks passed; gate {gate} has to open first"));
        }
        let state = NodeState {
            phase: StatePhase::Verified,
            attempt: worker.view.stamp.attempt,
            // Opening may have had to wait: what counts is when the evidence was made, not when it was used.
            at: subject.made_at(worker),
            ..subject.next_state()
        };
        let decision = self.waiting("the checks passed; the gate opens");
        if let Some(first) = self.to_be_shown_first(&state) {
            return decision.acts(first);
        }
        let told = subject.account(&state);
        let patch = PatchBuilder::new(subject.view)
            .take_off(subject.taints())
            .label(&settings.verified_label)
            .state(&state)
            .build();
        let (node, gate) = (subject.view.id.clone(), names::VERIFICATION_GATE.to_owned());
        let news = News { headline: Headline::Verified, message: told.to_string(), warning: false };
        decision.acts(Action::OpenGate { node, gate, patch, news })
    }

    /// With the label our pod goes from its node. Who is killed then has nobody to show the verdict later.
    fn to_be_shown_first(self, state: &NodeState) -> Option<Action> {
        match self.subject.cx.seat {
            Seat::Controller => None,
            Seat::Node => tidy::condition(self.subject, state),
        }
    }

    fn fail(self, attempt: u32, fault: &Fault) -> Decision {
        let subject = self.subject;
        let settings = &subject.cx.config.reconciliation;
        let suspicion = subject.cx.census.suspicion(&subject.cx.config.limits.deletion);
        let reason = match &suspicion {
            Some(suspicion) => format!("{}; {suspicion}", fault.reason),
            None => fault.reason.clone(),
        };
        if suspicion.is_some() && self.probation.is_some() {
            return self.record_inconclusive(&reason);
        }
        let stays_open = match (self.probation, scope::may_close(subject, subject.taints().iter())) {
            (None, _) | (Some(Probation { if_it_fails: IfItFails::Close, .. }), MayClose::Yes) => None,
            (Some(_), MayClose::No(why)) => Some(why),
            (Some(Probation { why, if_it_fails: IfItFails::StayOpen }), _) => Some(why.to_owned()),
            // What is recorded now would stand when it is known.
            (Some(Probation { if_it_fails: IfItFails::Close, .. }), MayClose::NotYetKnown(_)) => {
                return self.waiting(
                    "the checks failed; whether the node may be closed is known once its NodePool is",
                );
            }
        };
        let closes = self.probation.is_some() && stays_open.is_none();
        let goes_on = attempt < settings.max_retries && stays_open.is_none();
        let delay = match subject.cx.seat {
            Seat::Node if attempt <= settings.max_retries => Some(settings.delay_after(attempt)),
            Seat::Node => Some(settings.delay_after(u32::MAX)),
            // A node that is open and cannot be closed is left to people.
            Seat::Controller if goes_on => Some(settings.delay_after(attempt)),
            Seat::Controller => suspicion.map(|_| settings.delay_after(u32::MAX)),
        };
        let next_try = delay.map(|delay| subject.cx.now + delay);
        let reason = match stays_open {
            Some(why) => format!("{reason}; it stays open: {why}"),
            None => reason,
        };
        let state = NodeState { phase: StatePhase::Failed, attempt, next_try, ..subject.next_state() }
            .because(&fault.cause, &reason);
        let mut told = subject.account(&state);
        if closes {
            told.door = Door::Closed;
        }
        let news = News { headline: Headline::VerificationFailed, message: told.to_string(), warning: true };
        let action = if closes {
            verification::close(subject, &state, Closing::FailedAgain, news)
        } else {
            self.record(&state, Recorded::Failure, Some(news))
        };
        Decision::new(told).acts(action)
    }

    /// Says nothing about the node, so it costs no attempt; but it cannot go on for ever.
    fn record_inconclusive(self, why: &str) -> Decision {
        let subject = self.subject;
        let settings = &subject.cx.config.reconciliation;
        let so_far = self.so_far();
        let inconclusive = self.runs_so_far().saturating_add(1);
        let is_last = subject.cx.seat == Seat::Controller && inconclusive >= settings.max_inconclusive_runs;
        let before = so_far.map_or(StatePhase::Unverified, |state| state.phase);
        let state = NodeState {
            phase: if is_last && self.probation.is_none() { StatePhase::Failed } else { before },
            boot: so_far.map_or_else(|| subject.view.boot.clone(), |state| state.boot.clone()),
            attempt: so_far.map_or(0, |state| state.attempt),
            inconclusive,
            run_boot: Some(subject.view.boot.clone()),
            next_try: (!is_last).then(|| subject.cx.now + settings.delay_after(inconclusive)),
            ..subject.next_state()
        }
        .because("NoVerdict", why);
        let told = subject.account(&state);
        let news =
            is_last.then(|| News { headline: Headline::NoVerdict, message: told.to_string(), warning: true });
        Decision::new(told).acts(self.record(&state, Recorded::NoVerdict, news))
    }

    fn record(self, state: &NodeState, what: Recorded, news: Option<News>) -> Action {
        let patch = PatchBuilder::new(self.subject.view).state(state);
        let patch = match state.phase {
            StatePhase::Failed => patch.unlabel(&self.subject.cx.config.node_management.verified_label),
            StatePhase::Verified | StatePhase::Unverified => patch,
        };
        let patch = patch.build();
        Action::Record { node: self.subject.view.id.clone(), what, patch, news }
    }
}

//! Startup gates: opened by init pods on the node becoming ready.

use jiff::{SignedDuration, Timestamp};

use super::scope::MayClose;
use super::subject::Subject;
use super::{scope, verification};
use crate::action::{Action, Closing, Headline, News};
use crate::config::StartupGate;
use crate::names;
use crate::patch::PatchBuilder;
use crate::view::InitPodView;
use crate::world::SeenInitPod;

/// Longer than the node controller takes to find out that a kubelet is gone, and that its pods are not ready.
const AFTER_SWEEP: SignedDuration = SignedDuration::from_secs(30);

/// What the startup gates of a node ask for.
#[derive(Default)]
pub(super) struct Startup {
    pub(super) actions: Vec<Action>,
    pub(super) wake: Option<Timestamp>,
    /// What each closed gate waits for.
    pub(super) waiting: Vec<String>,
}

pub(super) fn consider(subject: &Subject<'_>) -> Startup {
    let mut startup = Startup::default();
    for gate in &subject.cx.config.gates {
        if subject.view.position(&gate.taint).is_some() {
            closed(subject, gate, &mut startup);
        } else if let Some(action) = backfill(subject, gate) {
            startup.actions.push(action);
        }
    }
    startup
}

impl Startup {
    fn wakes(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// Until when what the pods show could still be from before a restart of the node: the kubelet tells of the restart
/// first and of its pods later. By the next sweep it has.
fn doubtful_until(subject: &Subject<'_>, gate: &StartupGate) -> Option<Timestamp> {
    let settled = subject.entry.doubt?.since + subject.cx.config.reconciliation.interval() + AFTER_SWEEP;
    let mut pods = subject.entry.init_pods.values().filter(|pod| counts(subject, gate, &pod.view));
    (subject.cx.now < settled && pods.any(|pod| !pod.restarted)).then_some(settled)
}

fn closed(subject: &Subject<'_>, gate: &StartupGate, startup: &mut Startup) {
    let held_until = subject.entry.seen + gate.minimum_hold();
    let obstacle = if let Some(obstacle) = first_obstacle(subject, gate) {
        obstacle
    } else if subject.cx.now < held_until {
        startup.wakes(held_until);
        "is held for its minimum time".to_owned()
    } else if let Some(settled) = doubtful_until(subject, gate) {
        startup.wakes(settled);
        "waits to be sure that its pods were started after the last restart of the node".to_owned()
    } else {
        startup.actions.push(open(subject, gate));
        "opens".to_owned()
    };
    startup.waiting.push(format!("gate {} {obstacle}", gate.name));
}

/// What keeps the gate closed, the passing of time apart.
fn first_obstacle(subject: &Subject<'_>, gate: &StartupGate) -> Option<String> {
    let before = subject.cx.config.opens_after(&gate.name);
    if let Some(earlier) = first_closed(subject, before.into_iter()) {
        return Some(format!("waits for gate {earlier} to open"));
    }
    if scope::awaits_karpenter(subject) {
        return Some("waits for Karpenter to register the node".to_owned());
    }
    let mut seen_one = false;
    for pod in subject.entry.init_pods.values().filter(|pod| counts(subject, gate, &pod.view)) {
        seen_one = true;
        if !is_done(gate, pod) {
            return Some(format!("waits for pod {}/{} to be ready", pod.view.namespace, pod.view.name));
        }
    }
    // All of nothing is never a pass.
    (!seen_one).then(|| format!("waits for an init pod ({}) on the node", gate.pod_selector))
}

/// A pod that is older than the node ran on an earlier node of this name.
fn counts(subject: &Subject<'_>, gate: &StartupGate, pod: &InitPodView) -> bool {
    !pod.leaving
        && pod.created >= subject.view.created
        && gate.namespaces.contains(&pod.namespace)
        && gate.pod_selector.matches(&pod.labels)
}

fn is_done(gate: &StartupGate, pod: &SeenInitPod) -> bool {
    let key = &gate.ready_annotation;
    let says_so = pod.view.annotations.get(key).is_some_and(|value| value == "true");
    // What we found may be old, but not if the pod is ready after all doubt about that.
    let said_it_before = pod.outlived.contains_key(key) || (pod.found.contains_key(key) && !pod.view.ready);
    (says_so && !said_it_before) || (pod.view.ready && !gate.annotation_only)
}

/// The first of these gates that is closed on the node.
pub(super) fn first_closed<'g>(
    subject: &Subject<'_>,
    mut gates: impl Iterator<Item = &'g str>,
) -> Option<&'g str> {
    gates.find(|name| match *name {
        names::VERIFICATION_GATE => subject.is_tainted(),
        name => {
            let gate = subject.cx.config.gates.iter().find(|gate| gate.name == name);
            gate.is_some_and(|gate| subject.view.position(&gate.taint).is_some())
        }
    })
}

fn open(subject: &Subject<'_>, gate: &StartupGate) -> Action {
    let completed = subject.cx.now.as_second().to_string();
    let patch = PatchBuilder::new(subject.view)
        .take_off([&gate.taint])
        .annotate(&gate.completed_annotation, completed)
        .build();
    let message = format!("gate {} opens: all its init pods are ready", gate.name);
    let news = News { headline: Headline::StartupCompleted, message, warning: false };
    Action::OpenGate { node: subject.view.id.clone(), gate: gate.name.clone(), patch, news }
}

/// A node that never had the gate is closed only if that was asked for and it is idle.
fn backfill(subject: &Subject<'_>, gate: &StartupGate) -> Option<Action> {
    let had_it = subject.view.annotations.contains_key(&gate.completed_annotation);
    let verified = subject.state.is_some() || subject.is_labelled();
    let is_idle = verification::is_idle(subject);
    let safe = matches!(scope::may_close(subject, std::iter::once(&gate.taint)), MayClose::Yes);
    let wanted = subject.cx.config.node_management.backfill;
    (wanted && !had_it && !verified && is_idle && safe).then(|| {
        let message = format!("gate {} is closed: the node never had it and is idle", gate.name);
        Action::CloseGate {
            node: subject.view.id.clone(),
            gate: gate.name.clone(),
            because: Closing::Backfill,
            patch: PatchBuilder::new(subject.view)
                .put_on([&gate.taint])
                .unchanged(&gate.completed_annotation)
                .unchanged(names::STATE_ANNOTATION)
                .same_label(&subject.cx.config.node_management.verified_label)
                .build(),
            news: News { headline: Headline::Backfilled, message, warning: false },
        }
    })
}

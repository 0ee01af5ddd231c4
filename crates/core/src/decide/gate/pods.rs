//! Gates that open when pods on the node are ready.

use jiff::{SignedDuration, Timestamp};

use super::{Evaluation, Evidence};
use crate::decide::subject::Subject;
use crate::explain::GateWait;
use crate::policy::PodRequirement;
use crate::world::SeenInitPod;

/// Longer than the node controller takes to notice that a kubelet is gone and to mark its pods as not ready.
const AFTER_SWEEP: SignedDuration = SignedDuration::from_secs(30);

pub(super) fn evaluate<'a>(subject: &Subject<'a>, required: &'a PodRequirement) -> Evaluation<'a> {
    let mut pods = counting(subject, required).peekable();
    // An empty set of pods never passes.
    if pods.peek().is_none() {
        return Evaluation::Unmet(GateWait::AnyPod(required.selector.to_string()));
    }
    if let Some(pod) = pods.find(|pod| !is_done(required, pod)) {
        let (namespace, name) = (pod.view.namespace.clone(), pod.view.name.clone());
        return Evaluation::Unmet(GateWait::Pod { namespace, name });
    }
    let held_until = subject.entry.seen + required.minimum_hold;
    if subject.cx.now < held_until {
        return Evaluation::NotBefore(held_until, GateWait::MinimumHold);
    }
    match doubtful_until(subject, required) {
        Some(settled) => Evaluation::NotBefore(settled, GateWait::RestartedPods),
        None => Evaluation::Met(Evidence::Pods(required)),
    }
}

/// The pods that count. A pod that is older than the node ran on an earlier node of the same name.
fn counting<'a>(
    subject: &Subject<'a>,
    required: &'a PodRequirement,
) -> impl Iterator<Item = &'a SeenInitPod> + use<'a> {
    let created = subject.view.created;
    subject.entry.init_pods.values().filter(move |pod| {
        let pod = &pod.view;
        !pod.leaving && pod.created >= created && required.selects(&pod.namespace, &pod.labels)
    })
}

/// Until when the status of the pods may predate a restart of the node. The kubelet reports the restart first and the
/// status of its pods later, but before the next sweep.
fn doubtful_until(subject: &Subject<'_>, required: &PodRequirement) -> Option<Timestamp> {
    let settled = subject.entry.doubt?.since + subject.cx.interval + AFTER_SWEEP;
    let is_doubtful = counting(subject, required).any(|pod| !pod.restarted);
    (subject.cx.now < settled && is_doubtful).then_some(settled)
}

fn is_done(required: &PodRequirement, pod: &SeenInitPod) -> bool {
    let key = &required.ready_annotation;
    let says_so = pod.view.annotations.get(key).is_some_and(|value| value == "true");
    // An annotation that the controller found on the pod may predate a restart. Once the pod is Ready beyond doubt, the
    // annotation counts.
    let said_it_before = pod.outlived.contains_key(key) || (pod.found.contains_key(key) && !pod.view.ready);
    (says_so && !said_it_before) || (pod.view.ready && !required.annotation_only)
}

//! Worker pods: their stamp and their stage.

use knr_core::action::worker_name;
use knr_core::fault::waiting_failure;
use knr_core::ids::{NodeRef, WorkerRef};
use knr_core::names;
use knr_core::report::Report;
use knr_core::texts::shortened;
use knr_core::view::{Ending, Purpose, Stage, Stamp, Waiting, WorkerView};
use serde::{Deserialize, Deserializer};

use super::condition::{SlimCondition, of_type};
use super::{ContainerStatus, Meta, Terminated, WaitingState};

/// Messages of a kubelet or a user are truncated to this many characters, because operators get to see them.
const MAX_TOLD_CHARS: usize = 200;
/// The kernel's error for a program for another architecture.
const EXEC_FORMAT_ERROR: &str = "exec format error";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimWorker {
    pub(crate) metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    reason: String,
    message: String,
    #[serde(rename = "conditions", deserialize_with = "scheduling")]
    scheduling: Option<SlimCondition>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

fn scheduling<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SlimCondition>, D::Error> {
    of_type("PodScheduled", deserializer)
}

impl SlimWorker {
    /// Returns the worker, if this pod is one. A pod with the labels of a worker but without a stamp, or with another
    /// name than the stamp requires, belongs to somebody else.
    pub(crate) fn view(self) -> Option<WorkerView> {
        let (id, stamp) = self.identity()?;
        let host = Some(self.spec.node_name).filter(|name| !name.is_empty());
        Some(WorkerView {
            id,
            version: self.metadata.version(),
            stamp,
            host: host.map(Into::into),
            stage: self.status.stage(),
            leaving: self.metadata.deletion_timestamp.is_some(),
        })
    }

    /// Returns the stage of the pod, whether it has a stamp or not.
    pub(crate) fn stage(&self) -> Stage {
        self.status.stage()
    }

    /// Returns the identity of the worker.
    pub(crate) fn identity(&self) -> Option<(WorkerRef, Stamp)> {
        let stamp = self.stamp().filter(|stamp| worker_name(&stamp.node.uid) == self.metadata.name)?;
        let id = WorkerRef { name: self.metadata.name.clone(), uid: self.metadata.uid.as_str().into() };
        Some((id, stamp))
    }

    fn stamp(&self) -> Option<Stamp> {
        let text = |key| self.metadata.annotation(key);
        let number = |key| text(key)?.parse().ok();
        Some(Stamp {
            node: NodeRef {
                name: text(names::WORKER_NODE_ANNOTATION)?.into(),
                uid: text(names::WORKER_NODE_UID_ANNOTATION)?.into(),
            },
            boot: text(names::WORKER_BOOT_ANNOTATION)?.into(),
            serial: number(names::WORKER_SERIAL_ANNOTATION)?,
            attempt: number(names::WORKER_ATTEMPT_ANNOTATION)?,
            purpose: purpose(text(names::WORKER_PURPOSE_ANNOTATION)?)?,
            policy: text(names::WORKER_POLICY_ANNOTATION).unwrap_or_default().into(),
            requires: text(names::WORKER_REQUIRES_ANNOTATION).unwrap_or_default().into(),
        })
    }
}

/// Returns the word for a purpose in the stamp of a worker.
pub(crate) const fn purpose_word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Verify => "verify",
        Purpose::Reference => "reference",
    }
}

fn purpose(word: &str) -> Option<Purpose> {
    [Purpose::Verify, Purpose::Reference].into_iter().find(|purpose| purpose_word(*purpose) == word)
}

impl Status {
    /// The kubelet reports how containers ended about a second before it sets the phase of the pod, and only the phase
    /// tells whether the kubelet itself ended them, for example by an eviction. A report is believed at once: it is
    /// written at the end of the checks. An exit code alone does not tell who ended the container.
    fn stage(&self) -> Stage {
        let is_over = matches!(self.phase.as_str(), "Succeeded" | "Failed");
        if self.phase == "Failed" && !self.reason.is_empty() {
            return Stage::Ended(self.ended_from_outside());
        }
        let failed = |status: &&ContainerStatus| terminated(status).is_some_and(|it| it.exit_code != 0);
        if self.phase == "Failed"
            && let Some((failed, how)) =
                self.init_containers().find(failed).and_then(|it| Some((it, terminated(it)?)))
        {
            return Stage::Ended(own_check(failed, how));
        }
        if let Some(terminated) = self.worker().and_then(terminated).filter(|it| is_over || has_reported(it))
        {
            return Stage::Ended(ending(terminated));
        }
        match self.phase.as_str() {
            "Succeeded" | "Failed" => {
                Stage::Ended(Ending::Killed("the kubelet does not say how it ended".to_owned()))
            }
            _ if self.is_running() => Stage::Running,
            _ => Stage::Pending(self.waiting()),
        }
    }

    /// A failed pod with a reason was not ended by its own containers.
    fn ended_from_outside(&self) -> Ending {
        match self.reason.as_str() {
            "DeadlineExceeded" => match self.waiting().filter(|why| waiting_failure(&why.reason).is_some()) {
                Some(why) => Ending::CouldNotStart(why),
                // The deadline counts from when the kubelet saw the pod, however late it was started, so it proves
                // nothing. The rules detect a worker that hangs by their own timeout.
                None => Ending::Killed("the deadline of its pod passed".to_owned()),
            },
            reason => Ending::Killed(waiting(reason, &self.message).to_string()),
        }
    }

    fn init_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.init_container_statuses.iter().flatten()
    }

    fn worker(&self) -> Option<&ContainerStatus> {
        self.container_statuses.iter().flatten().find(|status| status.name == names::WORKER_CONTAINER)
    }

    /// Returns whether the run has begun. The user's own checks, which run first, are part of it.
    fn is_running(&self) -> bool {
        let has_begun = |status: &ContainerStatus| {
            status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        };
        self.init_containers().chain(self.worker()).any(has_begun)
    }

    /// Returns why the pod is not running yet, as the kubelet reports for a container or the scheduler for the pod.
    fn waiting(&self) -> Option<Waiting> {
        let is_unusual = |state: &&WaitingState| {
            !matches!(state.reason.as_str(), "" | "ContainerCreating" | "PodInitializing")
        };
        let container = self
            .init_containers()
            .chain(self.worker())
            .filter_map(|status| status.state.as_ref()?.waiting.as_ref())
            .find(is_unusual);
        if let Some(state) = container {
            return Some(waiting(&state.reason, &state.message));
        }
        let unscheduled = self.scheduling.as_ref().filter(|scheduling| scheduling.status == "False")?;
        Some(waiting(&unscheduled.reason, &unscheduled.message))
    }
}

fn terminated(status: &ContainerStatus) -> Option<&Terminated> {
    status.state.as_ref()?.terminated.as_ref()
}

fn has_reported(terminated: &Terminated) -> bool {
    Report::parse(&terminated.message)
        .is_some_and(|report| !report.checks.is_empty() || report.error.is_some())
}

fn ending(terminated: &Terminated) -> Ending {
    let Terminated { exit_code, reason, message } = terminated;
    match reason.as_str() {
        // The kubelet lost track of the container. It is unknown how it ended.
        "ContainerStatusUnknown" => Ending::Killed(waiting(reason, message).to_string()),
        // The reasons of containerd and Docker for a program that could not be executed at all.
        "StartError" | "ContainerCannotRun" => Ending::CouldNotStart(waiting(reason, message)),
        _ if *exit_code != 0 && is_of_another_architecture(message) => {
            Ending::CouldNotStart(waiting("ExecFormatError", last_line(message)))
        }
        _ => Ending::Exited { code: *exit_code, message: message.clone() },
    }
}

/// Some container runtimes start a program for another architecture, which then ends with one of several exit codes and
/// this error in its log.
fn is_of_another_architecture(message: &str) -> bool {
    last_line(message).to_ascii_lowercase().contains(EXEC_FORMAT_ERROR) && Report::parse(message).is_none()
}

fn last_line(message: &str) -> &str {
    message.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default()
}

/// Returns the ending of a user's own check that failed. Only its last line is kept, after its name.
fn own_check(container: &ContainerStatus, how: &Terminated) -> Ending {
    match ending(how) {
        Ending::Exited { code, message } => {
            let words = Some(last_line(&message)).filter(|line| !line.is_empty()).unwrap_or("it failed");
            let message = shortened(&format!("init container {}: {words}", container.name), MAX_TOLD_CHARS)
                .into_owned();
            Ending::Exited { code, message }
        }
        Ending::CouldNotStart(Waiting { reason, message }) => {
            let message = format!("init container {}: {message}", container.name);
            Ending::CouldNotStart(waiting(&reason, &message))
        }
        other @ Ending::Killed(_) => other,
    }
}

fn waiting(reason: &str, message: &str) -> Waiting {
    Waiting { reason: short(reason), message: short(message) }
}

fn short(text: &str) -> String {
    shortened(text, MAX_TOLD_CHARS).into_owned()
}

#[cfg(test)]
mod tests;

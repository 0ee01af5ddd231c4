//! Checks that a worker runs on a node and reports: one is created, awaited and deleted again. It is invisible to the
//! controller, and the node is not changed.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::time::Duration;

use knr_core::fault::Blame;
use knr_core::ids::NodeRef;
use knr_core::names;
use knr_core::policy::{self, Policy};
use knr_core::report::Report;
use knr_core::verdict::{Fault, Verdict, judge};
use knr_core::view::{Ending, Purpose, Stage, Stamp};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::{Doctor, Finding, OwnPod, PAUSE, Trouble};
use crate::act::BY_US;
use crate::api::{Body, Failed, Target};
use crate::calls::Call;
use crate::objects;
use crate::observe::SlimWorker;
use crate::read::{List, by_name};

/// A kubelet ends a pod in a second or two, and the grace period of this process is no longer than half a minute.
const REMOVAL: Duration = Duration::from_secs(20);
/// The margin by which this process is done before the pod's own deadline, which ends the pod if this process is gone.
const SPARE: Duration = Duration::from_secs(30);
/// The advice for a problem of the node.
const OTHER_NODE: &str = "--node chooses another one (test.node of the chart)";

/// The course of a worker.
#[derive(Debug)]
enum Course {
    Ended(Ending),
    /// It was not created.
    Refused(Failed),
    /// It was still there when the time was over.
    Overdue(Stage),
    /// Somebody else deleted it.
    Lost,
    /// This process received the stop signal.
    Stopped,
}

impl Doctor {
    pub(super) async fn worker(&self, stop: impl Future<Output = ()>) -> Result<Finding, Trouble> {
        let mut stop = pin!(stop);
        let Some(node) = self.in_time(self.chosen_node(), stop.as_mut()).await? else {
            return Ok(self.no_node());
        };
        let name = format!("{}{:016x}", names::TRIAL_PREFIX, RandomState::new().build_hasher().finish());
        // The creation is not interrupted: then it would be unknown whether there is a pod.
        let course = if let Err(failed) = self.create(&name, &node).await {
            Course::Refused(failed)
        } else {
            tokio::select! {
                biased;
                () = stop => Course::Stopped,
                course = self.course(&name) => course,
            }
        };
        let removed = self.remove(&name).await;
        let found = self.judged(&node, course);
        Ok(match removed {
            Ok(()) => found,
            Err(why) => self.left_behind(found, &name, &why),
        })
    }

    fn no_node(&self) -> Finding {
        match &self.installation.node {
            Some(name) => Finding::failed(format!("there is no node {name}")).next(OTHER_NODE),
            None => Finding::failed("there is no Ready Linux node that is not excluded")
                .next("add a node, or choose one with --node (test.node of the chart)"),
        }
    }

    async fn create(&self, name: &str, node: &NodeRef) -> Result<(), Failed> {
        let pod = self.pod(name, node);
        let sent =
            self.api.send(Call::CreateWorker, Target::query(BY_US), Body::Json(&pod), self.soon()).await;
        sent.map(|_: IgnoredAny| ())
    }

    /// Returns the pod that the controller would create, but under another name and without the controller's labels and
    /// annotations.
    pub(super) fn pod(&self, name: &str, node: &NodeRef) -> Value {
        let stamp = Stamp {
            node: node.clone(),
            boot: "".into(),
            serial: 0,
            attempt: 0,
            purpose: Purpose::Verify,
            policy: policy::DEFAULT.into(),
            requires: "".into(),
        };
        let mut pod = objects::worker(&stamp, &Policy::from(self.config()));
        let namespaces = self.api.namespaces();
        let owner = match &self.installation.own_pod {
            Some(OwnPod { name, uid }) if namespaces.own == namespaces.workers => {
                json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid })
            }
            Some(_) | None => pod["metadata"]["ownerReferences"][0].take(),
        };
        pod["metadata"] = json!({
            "name": name,
            "namespace": namespaces.workers,
            "labels": Map::from_iter(names::TRIAL_LABELS.map(|(key, value)| (key.to_owned(), json!(value)))),
            "ownerReferences": [owner],
        });
        let left = (self.deadline.saturating_duration_since(Instant::now()) + SPARE).as_secs();
        let own = pod["spec"]["activeDeadlineSeconds"].as_u64().unwrap_or(left);
        pod["spec"]["activeDeadlineSeconds"] = json!(own.min(left));
        pod
    }

    /// Polls until the worker has ended, or has been pending for too long. A read that fails is repeated.
    async fn course(&self, name: &str) -> Course {
        let settings = &self.config().worker;
        let begin_until = Instant::now() + Duration::from_secs(settings.pending_timeout_seconds.into());
        let mut stage = Stage::Pending(None);
        loop {
            match self.look(name).await {
                Ok(None) => return Course::Lost,
                Ok(Some(Stage::Ended(ending))) => return Course::Ended(ending),
                Ok(Some(now)) => stage = now,
                Err(_) => {}
            }
            let until = match stage {
                Stage::Pending(_) => begin_until.min(self.deadline),
                Stage::Running | Stage::Ended(_) => self.deadline,
            };
            if Instant::now() >= until {
                return Course::Overdue(stage);
            }
            sleep(PAUSE).await;
        }
    }

    async fn look(&self, name: &str) -> Result<Option<Stage>, Failed> {
        let query = by_name(name);
        let list: List<SlimWorker> =
            self.api.read(Call::ListWorkers, Target::query(&query), self.soon()).await?;
        Ok(list.items.first().map(SlimWorker::stage))
    }

    /// Requests its deletion until it is gone.
    async fn remove(&self, name: &str) -> Result<(), String> {
        let until = Instant::now() + REMOVAL;
        loop {
            let deadline = until.min(Instant::now() + self.limit());
            let sent = self.api.send(Call::DeleteWorker, Target::named(name), Body::<()>::Nothing, deadline);
            let why = match sent.await.map(|_: IgnoredAny| ()) {
                Err(failed) if failed.code() == Some(404) => return Ok(()),
                Err(failed) => failed.to_string(),
                Ok(()) => "it was deleted and does not go".to_owned(),
            };
            if Instant::now() + PAUSE >= until {
                return Err(why);
            }
            sleep(PAUSE).await;
        }
    }

    fn left_behind(&self, found: Finding, name: &str, why: &str) -> Finding {
        let namespace = &self.api.namespaces().workers;
        let mut lines = found.lines;
        lines.extend(found.next);
        Finding::failed(format!("{}; pod {namespace}/{name} is left behind: {why}", found.detail))
            .lines(lines)
            .next(format!("kubectl -n {namespace} delete pod {name}"))
            .reporting(found.report)
    }

    fn judged(&self, node: &NodeRef, course: Course) -> Finding {
        let (node, namespace) = (&node.name, &self.api.namespaces().workers);
        match course {
            Course::Ended(ending) => ended(node.as_str(), &ending),
            Course::Refused(failed) => Finding::failed(format!("it cannot be made: {failed}")).next(format!(
                "no node is verified as long as this is so; look at the account, at quotas and at the admission \
                 policies of namespace {namespace}"
            )),
            Course::Overdue(Stage::Pending(why)) => {
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                Finding::failed(format!("it did not start on {node} in time{why}")).next(format!(
                    "look whether the node can pull {} and is Ready; {OTHER_NODE}",
                    self.config().worker.image.repository
                ))
            }
            Course::Overdue(Stage::Running | Stage::Ended(_)) => {
                Finding::failed(format!("it started on {node} and was not done in time"))
                    .next(format!("give it more time with --timeout (test.timeout of the chart); {OTHER_NODE}"))
            }
            Course::Lost => Finding::failed(format!("somebody deleted it on {node} before it was done"))
                .next(format!("try again; {OTHER_NODE}")),
            Course::Stopped => {
                Finding::failed(format!("stopped before it was done on {node}")).next("try again")
            }
        }
    }
}

/// Judges the ending of a worker as the controller does.
fn ended(node: &str, ending: &Ending) -> Finding {
    let report = match ending {
        Ending::Exited { message, .. } => Report::parse(message),
        Ending::CouldNotStart(_) | Ending::Killed(_) => None,
    };
    let failures = report.as_ref().map_or(0, Report::failures);
    let found = match judge(ending) {
        Verdict::Pass => Finding::good(match &report {
            Some(_) => format!("it ran on {node} and reported; the node is fit and was not changed"),
            None => format!("it ran on {node} and passed without a report; the node was not changed"),
        }),
        Verdict::Fail(Fault { blame: Blame::Cluster, reason, .. }) => {
            Finding::failed(format!("it ran on {node} and reported; the cluster is at fault: {reason}"))
                .next("no node is verified as long as this is so")
        }
        Verdict::Fail(Fault { blame: Blame::Installation, reason, .. }) => {
            Finding::failed(format!("the installation is at fault, not {node}: {reason}"))
                .next("no node is verified as long as this is so; look at the image, the configuration and the permissions of the worker")
        }
        Verdict::Fail(fault) if failures > 0 => {
            Finding::failed(format!("it ran on {node} and reported; the node is not fit: {}", fault.reason))
                .next(format!("it is the node, or what the configuration asks of all nodes; {OTHER_NODE}"))
        }
        Verdict::Fail(fault) => Finding::failed(format!("it ran on {node} and failed: {}", fault.reason))
            .next("look at the image and the command of the worker, and at checks of your own"),
        Verdict::Inconclusive(why) => {
            Finding::failed(format!("it says nothing about {node}: {why}")).next("try again")
        }
    };
    found.reporting(report)
}

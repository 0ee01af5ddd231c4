//! Tests an installation in its cluster, and leaves nothing behind.
//!
//! ```text
//!   permissions --> controller --> leader --> worker: created, awaited, read, deleted
//! ```
//!
//! Each step yields one finding. None of them changes a node.

mod finding;
mod leader;
mod nodes;
mod permissions;
mod pods;
#[cfg(test)]
mod tests;
mod trial;

use std::time::Duration;

use knr_core::config::{Config, Selector};
use tokio::time::{Instant, sleep_until};

use crate::access::{self, Missing, Subject};
use crate::api::{Api, Failed, Namespaces};
use crate::calls::Who;

pub use finding::Finding;

/// The time between two reads of something that is expected to change.
const PAUSE: Duration = Duration::from_secs(1);

/// The mode of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A controller, which creates workers.
    Controller,
    /// A pod on each node that runs the checks itself.
    Daemonset,
}

/// One step of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Whether the service accounts have all permissions that they need.
    Permissions,
    /// Whether the pods of the installation are ready.
    Pods,
    /// Whether one of the controllers leads.
    Leader,
    /// Whether a worker runs on a node and reports.
    Worker,
}

/// The pod that runs this process.
#[derive(Debug, Clone)]
pub struct OwnPod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// The installation under test.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Its mode.
    pub mode: Mode,
    /// Its namespace.
    pub namespace: String,
    /// The service account of the controller or of the `DaemonSet`.
    pub account: String,
    /// Selects the pods of the controller or of the `DaemonSet`.
    pub selector: Selector,
    /// Its configuration.
    pub config: Config,
    /// The node for a worker; `None` for any.
    pub node: Option<String>,
    /// The pod that runs this process, if any. In the namespace of the workers it owns what this process creates, which
    /// is then removed along with it.
    pub own_pod: Option<OwnPod>,
}

/// Tests an installation.
pub struct Doctor {
    api: Api,
    installation: Installation,
    deadline: Instant,
}

/// Why a step has no finding of its own.
#[derive(Debug)]
enum Trouble {
    Failed(Failed),
    Late,
    Stopped,
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl Doctor {
    /// Creates a doctor that is done by the deadline, except for the removal of what it created.
    #[must_use]
    pub fn new(client: kube::Client, mut installation: Installation, deadline: Instant) -> Self {
        let Installation { mode, namespace, account, config, .. } = &mut installation;
        match mode {
            Mode::Controller => {}
            // Its pods check their nodes themselves, and there is no leader.
            Mode::Daemonset => {
                config.worker.namespace.clone_from(namespace);
                config.worker.service_account_name.clone_from(account);
                config.leader_election.enabled = false;
            }
        }
        let namespaces = Namespaces::of(config, namespace);
        Self { api: Api::new(client, namespaces), installation, deadline }
    }

    /// Returns the permissions that this process needs for the test and does not have.
    pub async fn lacks(&self) -> Result<Vec<Missing>, Failed> {
        access::missing_of(&self.api, self.config(), Who::Doctor, &Subject::Ourselves, self.limit()).await
    }

    /// Returns the steps for this installation.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let leader = self.config().leader_election.enabled.then_some(Step::Leader);
        [Some(Step::Permissions), Some(Step::Pods), leader, Some(Step::Worker)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns the name of a step.
    #[must_use]
    pub fn name(&self, step: Step) -> &'static str {
        match (step, self.installation.mode) {
            (Step::Permissions, _) => "permissions",
            (Step::Pods, Mode::Controller) => "controller",
            (Step::Pods, Mode::Daemonset) => "daemonset",
            (Step::Leader, _) => "leader",
            (Step::Worker, _) => "worker",
        }
    }

    /// Takes a step. Once `ended` is ready, it only removes what it created.
    pub async fn take(&self, step: Step, ended: impl Future<Output = ()>) -> Finding {
        let taken = match step {
            Step::Permissions => self.in_time(self.permissions(), ended).await,
            Step::Pods => self.in_time(self.pods(), ended).await,
            Step::Leader => self.in_time(self.leader(), ended).await,
            Step::Worker => self.worker(ended).await,
        };
        let found = taken.unwrap_or_else(|trouble| match trouble {
            Trouble::Failed(failed) => Finding::failed(failed.to_string())
                .next("look whether the API server can be reached, then try again"),
            Trouble::Late => Finding::failed("there was no time left")
                .next("give it more with --timeout (test.timeout of the chart)"),
            Trouble::Stopped => Finding::failed("stopped before it was known").next("try again"),
        });
        found.named(self.name(step))
    }

    fn config(&self) -> &Config {
        &self.installation.config
    }

    /// Returns the maximum time for one request.
    fn limit(&self) -> Duration {
        self.config().kubernetes.request_timeout()
    }

    /// Returns the deadline of a request that is sent now.
    fn soon(&self) -> Instant {
        self.deadline.min(Instant::now() + self.limit())
    }

    async fn in_time<T>(
        &self,
        step: impl Future<Output = Result<T, Failed>>,
        ended: impl Future<Output = ()>,
    ) -> Result<T, Trouble> {
        tokio::select! {
            biased;
            () = ended => Err(Trouble::Stopped),
            () = sleep_until(self.deadline) => Err(Trouble::Late),
            taken = step => Ok(taken?),
        }
    }
}

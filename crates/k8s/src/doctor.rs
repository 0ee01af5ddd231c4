//! Tries an installation on the cluster where it is, and leaves nothing behind.
//!
//! ```text
//!   rights --> controller --> leader --> worker: made, awaited, read, deleted
//! ```
//!
//! Each step is one finding. None of them changes a node.

mod finding;
mod leader;
mod nodes;
mod pods;
mod rights;
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

/// Between two looks at something that is to change.
const PAUSE: Duration = Duration::from_secs(1);

/// How it is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A controller, which makes workers.
    Controller,
    /// A pod on each node that does all by itself.
    Daemonset,
}

/// One thing that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Whether the accounts may do all they have to.
    Rights,
    /// Whether the pods of the installation are ready.
    Pods,
    /// Whether one of them leads.
    Leader,
    /// Whether a worker runs on a node and reports.
    Worker,
}

/// The pod we run in.
#[derive(Debug, Clone)]
pub struct OwnPod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// What is to be tried.
#[derive(Debug, Clone)]
pub struct Installation {
    /// How it is installed.
    pub mode: Mode,
    /// In which namespace.
    pub namespace: String,
    /// The service account of the controller or of the `DaemonSet`.
    pub account: String,
    /// Which pods are the controller or the `DaemonSet`.
    pub selector: Selector,
    /// Its configuration.
    pub config: Config,
    /// The node for a worker; none for any.
    pub node: Option<String>,
    /// The pod we run in, if we do: what we make goes when it goes.
    pub own_pod: Option<OwnPod>,
}

/// Tries an installation.
pub struct Doctor {
    api: Api,
    installation: Installation,
    deadline: Instant,
}

/// Why a step came to no finding of its own.
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
    /// A doctor who is done by the deadline, but for removing what was made.
    #[must_use]
    pub fn new(client: kube::Client, mut installation: Installation, deadline: Instant) -> Self {
        let Installation { mode, namespace, account, config, .. } = &mut installation;
        match mode {
            Mode::Controller => {}
            // Its pods check their nodes themselves, and nobody leads.
            Mode::Daemonset => {
                config.worker.namespace.clone_from(namespace);
                config.worker.service_account_name.clone_from(account);
                config.leader_election.enabled = false;
            }
        }
        let namespaces = Namespaces::of(config, namespace);
        Self { api: Api::new(client, namespaces), installation, deadline }
    }

    /// What we lack ourselves to be of any use.
    pub async fn lacks(&self) -> Result<Vec<Missing>, Failed> {
        access::missing_of(&self.api, self.config(), Who::Doctor, &Subject::Ourselves, self.limit()).await
    }

    /// The steps that this installation asks for.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let leader = self.config().leader_election.enabled.then_some(Step::Leader);
        [Some(Step::Rights), Some(Step::Pods), leader, Some(Step::Worker)].into_iter().flatten().collect()
    }

    /// The name of a step.
    #[must_use]
    pub fn name(&self, step: Step) -> &'static str {
        match (step, self.installation.mode) {
            (Step::Rights, _) => "rights",
            (Step::Pods, Mode::Controller) => "controller",
            (Step::Pods, Mode::Daemonset) => "daemonset",
            (Step::Leader, _) => "leader",
            (Step::Worker, _) => "worker",
        }
    }

    /// Takes a step. Once `ended` is ready, only that is done which removes what was made.
    pub async fn take(&self, step: Step, ended: impl Future<Output = ()>) -> Finding {
        let taken = match step {
            Step::Rights => self.in_time(self.rights(), ended).await,
            Step::Pods => self.in_time(self.pods(), ended).await,
            Step::Leader => self.in_time(self.leader(), ended).await,
            Step::Worker => self.worker(ended).await,
        };
        let found = taken.unwrap_or_else(|trouble| match trouble {
            Trouble::Failed(failed) => Finding::failed(failed.to_string())
                .next("look whether the API server can be reached, then try again"),
            Trouble::Late => Finding::failed("there was no time left")
                .next("give it more with --timeout (test.timeout of the chart)"),
            Trouble::Stopped => Finding::failed("told to stop before it was known").next("try again"),
        });
        found.named(self.name(step))
    }

    fn config(&self) -> &Config {
        &self.installation.config
    }

    /// How long one request may take.
    fn limit(&self) -> Duration {
        self.config().kubernetes.request_timeout()
    }

    /// When a request that is sent now is given up.
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

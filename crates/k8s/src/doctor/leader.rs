//! Checks that one of the controllers leads.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::{Instant, sleep};

use super::finding::Failure;
use super::{Doctor, Finding, PAUSE};
use crate::api::{Failed, Target};
use crate::calls::Call;

/// The time by which a renewal may be late.
const SPARE: Duration = Duration::from_secs(2);

/// The lease as it was read.
enum Sight {
    None,
    Free,
    /// Held by a process that is none of the pods.
    Foreign(String),
    /// Held by this pod.
    Held(String),
}

impl Doctor {
    /// A lease that is renewed changes. The times in it come from another clock and are only compared with each other.
    pub(super) async fn leader(&self) -> Result<Finding, Failed> {
        let term = self.config().leader_election.lease_duration() + SPARE;
        let until = self.deadline.min(Instant::now() + term);
        let mut before: Option<MicroTime> = None;
        loop {
            let lease = self.lease().await?;
            let renewed = lease.as_ref().and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
            let sight = self.sight(lease.as_ref()).await?;
            match sight {
                Sight::Held(pod) if before.is_some() && renewed != before => {
                    return Ok(Finding::good(format!("{pod} leads and renews its lease")));
                }
                sight if Instant::now() + PAUSE >= until => return Ok(self.no_leader(&sight)),
                Sight::None | Sight::Free | Sight::Foreign(_) | Sight::Held(_) => {}
            }
            before = before.or(renewed);
            sleep(PAUSE).await;
        }
    }

    async fn lease(&self) -> Result<Option<Lease>, Failed> {
        let name = &self.config().leader_election.lease_name;
        match self.api.read(Call::GetLease, Target::named(name), self.soon()).await {
            Err(failed) if failed.code() == Some(404) => Ok(None),
            read => read.map(Some),
        }
    }

    /// The identity of a holder is the name of its pod and a number.
    async fn sight(&self, lease: Option<&Lease>) -> Result<Sight, Failed> {
        let Some(lease) = lease else {
            return Ok(Sight::None);
        };
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder.is_empty() {
            return Ok(Sight::Free);
        }
        let pod = holder.rsplit_once('_').map_or(holder, |(pod, _)| pod);
        let is_ours = self.own_pods().await?.iter().any(|own| own.metadata.name == pod);
        Ok(if is_ours { Sight::Held(pod.to_owned()) } else { Sight::Foreign(holder.to_owned()) })
    }

    fn no_leader(&self, sight: &Sight) -> Finding {
        let name = &self.config().leader_election.lease_name;
        let namespace = &self.api.namespaces().lease;
        let failed =
            |what: String| -> Failure { Finding::failed(format!("lease {namespace}/{name} {what}")) };
        let logs = "look into the logs of the controller for trouble with the lease";
        match sight {
            Sight::None => failed("does not exist".to_owned()).next(logs),
            Sight::Free => failed("has no holder".to_owned()).next(logs),
            Sight::Held(pod) => failed(format!("is held by {pod}, which does not renew it")).next(logs),
            Sight::Foreign(holder) => {
                failed(format!("is held by {holder}, which is no pod of this installation")).next(
                    "if another controller runs in this cluster, remove it or give this one another \
                     leaderElection.leaseName; if not, wait until the lease has expired",
                )
            }
        }
    }
}

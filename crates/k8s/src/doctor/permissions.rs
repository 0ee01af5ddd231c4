//! Checks that the service accounts of an installation have all permissions that they need.

use super::{Doctor, Finding, Mode};
use crate::access::{self, Subject};
use crate::api::Failed;
use crate::calls::{Call, Who};

impl Doctor {
    pub(super) async fn permissions(&self) -> Result<Finding, Failed> {
        let (mut asked, mut lines) = (0, Vec::new());
        for (who, account) in self.accounts() {
            asked += Call::needed(who, self.config()).count();
            let missing = access::missing_of(&self.api, self.config(), who, &account, self.limit()).await?;
            lines.extend(missing.iter().map(|missing| format!("{account} may not {missing}")));
        }
        if lines.is_empty() {
            return Ok(Finding::good(format!("all {asked} that this configuration needs are there")));
        }
        let found = Finding::failed(format!("{} of {asked} are missing", lines.len()));
        Ok(found.lines(lines).next(
            "set rbac.create, or give the account these permissions by a role of your own; \
             `kube-node-ready manifests rbac` prints all that are needed",
        ))
    }

    fn accounts(&self) -> Vec<(Who, Subject)> {
        let account = |namespace: &str, name: &str| Subject::Account {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let main = account(&self.installation.namespace, &self.installation.account);
        let worker = &self.config().worker;
        match self.installation.mode {
            Mode::Controller => vec![
                (Who::Controller, main),
                (Who::Worker, account(&worker.namespace, &worker.service_account_name)),
            ],
            Mode::Daemonset => vec![(Who::Daemonset, main)],
        }
    }
}

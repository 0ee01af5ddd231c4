//! A cluster that refuses to create workers.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};
use crate::fakes::sample_worker;

/// The name of every refusing object, whatever its kind.
const NAME: &str = "no-workers-today";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// The reason why workers are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A `ResourceQuota` of the workers' namespace that allows no pod.
    Quota,
    /// A `ValidatingAdmissionPolicy` that rejects pods with the name of a worker.
    Policy,
}

impl Refusal {
    /// Parts of the API server's answer: who refused, and why.
    #[must_use]
    pub fn answer(self) -> [&'static str; 2] {
        match self {
            Self::Quota => [NAME, "exceeded quota"],
            Self::Policy => [NAME, "workers wait until the change window"],
        }
    }

    /// The objects to create, and the list path of each.
    fn objects(self) -> Vec<(String, Value)> {
        match self {
            Self::Quota => vec![(
                format!("/api/v1/namespaces/{NAMESPACE}/resourcequotas"),
                json!({ "metadata": { "name": NAME }, "spec": { "hard": { "pods": "0" } } }),
            )],
            Self::Policy => vec![
                (format!("{ADMISSION}/validatingadmissionpolicies"), policy()),
                (
                    format!("{ADMISSION}/validatingadmissionpolicybindings"),
                    json!({ "metadata": { "name": NAME }, "spec": { "policyName": NAME, "validationActions": ["Deny"] } }),
                ),
            ],
        }
    }
}

fn policy() -> Value {
    let pods =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    let worker = "has(object.metadata.name) && object.metadata.name.startsWith('node-ready-worker-')";
    json!({
        "metadata": { "name": NAME },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [pods] },
            "matchConditions": [{ "name": "worker", "expression": worker }],
            "validations": [{ "expression": "false", "message": Refusal::Policy.answer()[1] }],
        },
    })
}

impl Cluster {
    /// Makes the API server refuse every worker, and waits until it does.
    pub fn refuse_workers(&self, refusal: Refusal) -> Result<()> {
        for (list, object) in refusal.objects() {
            self.api().create(&list, &object)?;
        }
        self.eventually("workers to be refused", || {
            let answer = self.try_worker().err().map(|err| format!("{err:#}")).unwrap_or_default();
            Ok(refusal.answer().iter().all(|part| answer.contains(part)))
        })
    }

    /// Makes it accept them again, and waits until it does.
    pub fn allow_workers(&self, refusal: Refusal) -> Result<()> {
        for (list, _) in refusal.objects() {
            self.api().delete(&format!("{list}/{NAME}"))?;
        }
        self.eventually("workers to be accepted", || Ok(self.try_worker().is_ok()))
    }

    fn try_worker(&self) -> Result<Value> {
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All");
        self.api().create(&pods, &sample_worker())
    }
}

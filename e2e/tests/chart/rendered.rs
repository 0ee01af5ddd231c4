//! The rendered chart, validated by a real API server.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use knr_e2e::{Cluster, NAMESPACE, RELEASE, chart};
use lab::{Home, Tool};
use serde_json::json;

/// Each is a mode or an optional feature.
const VARIANTS: &[&[&str]] = &[
    &[],
    &["uninstall=keep"],
    &["networkPolicy.enabled=true"],
    &["networkPolicy.enabled=true", "networkPolicy.checksEgress[0].ports[0].port=53"],
    &["serviceMonitor.enabled=true"],
    &["podDisruptionBudget.enabled=false"],
    &["controller.config.leaderElection.enabled=false", "controller.replicas=1"],
    &["controller.config.nodeManagement.deleteFailedNodes=true"],
    &["controller.config.nodeManagement.backfill=true"],
    &["controller.config.gates[0].name=a", "controller.config.gates[1].name=b"],
    &["controller.config.metrics.enabled=false"],
    &["controller.config.metrics.port=9090"],
    &["config.taintKey=example.com/new", "config.metricsPort=9000", "config.maxRetries=10"],
    &["image.pullSecrets[0]=registry", "commonLabels.team=a", "controller.podLabels.tier=b"],
    &["rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=default"],
    &["deploymentMode=daemonset"],
    &["deploymentMode=daemonset", "daemonset.monitoring.enabled=true"],
    &["deploymentMode=daemonset", "daemonset.admissionPolicy=never"],
    &[
        "deploymentMode=daemonset",
        "controller.config.worker.initContainers[0].name=own",
        "controller.config.worker.initContainers[0].image=own:1",
        "controller.config.worker.volumes[0].name=data",
    ],
    &["deploymentMode=daemonset", "daemonset.admissionPolicy=always", "networkPolicy.enabled=true"],
];
/// A wrong value, and the word that Helm's error must contain.
const WRONG: &[(&str, &str)] = &[
    ("controler.replicas=1", "controler"),
    ("controller.config.worker.timeoutSecond=1", "timeoutSecond"),
    ("deploymentMode=daemon", "deploymentMode"),
    ("controller.config.reconciliation.retryBackoff=quadratic", "retryBackoff"),
    ("uninstall=maybe", "uninstall"),
    ("controller.config.leaderElection.enabled=false", "leaderElection"),
];

#[test]
fn whatever_is_asked_for_is_accepted_and_typos_are_not() -> Result<()> {
    let cluster = Cluster::start_bare("rendered", |lab| lab.nodes(0))?;
    cluster.apply(&service_monitors())?;
    let linted = helm(&cluster, &["lint", "--strict"], &[])?;
    ensure!(linted.status.success(), "{}", said(&linted));
    for variant in VARIANTS {
        let rendered = helm(&cluster, &["template", RELEASE], variant)?;
        ensure!(rendered.status.success(), "{variant:?}: {}", said(&rendered));
        let manifest = without_pods(&String::from_utf8(rendered.stdout)?);
        cluster.would_accept(&manifest).with_context(|| format!("{variant:?}"))?;
    }
    for example in ["minimal", "karpenter", "deletion", "init-pod", "daemonset"] {
        let file = chart().join(format!("../../../examples/values-{example}.yaml"));
        let rendered = helm(&cluster, &["template", RELEASE, "--values", &file.to_string_lossy()], &[])?;
        ensure!(rendered.status.success(), "{example}: {}", said(&rendered));
        let manifest = without_pods(&String::from_utf8(rendered.stdout)?);
        cluster.would_accept(&manifest).with_context(|| example.to_owned())?;
    }
    for (value, named) in WRONG {
        let refused = helm(&cluster, &["template", RELEASE], &[value])?;
        ensure!(!refused.status.success(), "{value} is taken");
        ensure!(said(&refused).contains(named), "{value}: {}", said(&refused));
    }
    Ok(())
}

/// Runs Helm on the chart with these values, against the cluster's API server.
fn helm(cluster: &Cluster, verb: &[&str], values: &[&str]) -> Result<Output> {
    let helm = Tool::helm()?;
    lab::build(&Home::from_env()?, &[helm])?;
    let mut helm = cluster.client(helm);
    helm.args(verb).arg(chart()).args(["--namespace", NAMESPACE]);
    if verb[0] == "template" {
        helm.args(["--validate", "--is-upgrade"]);
    }
    for value in values {
        helm.args(["--set", value]);
    }
    helm.output().context("helm cannot be run")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A bare pod is refused if its service account does not exist. In `helm test` the account is created first.
fn without_pods(manifest: &str) -> String {
    let documents = manifest.split("\n---\n").filter(|document| !document.contains("\nkind: Pod\n"));
    documents.collect::<Vec<_>>().join("\n---\n")
}

/// The part of the Prometheus operator that is needed to accept a `ServiceMonitor`.
fn service_monitors() -> String {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "servicemonitors.monitoring.coreos.com" },
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": { "plural": "servicemonitors", "singular": "servicemonitor", "kind": "ServiceMonitor" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": anything } }],
        },
    })
    .to_string()
}

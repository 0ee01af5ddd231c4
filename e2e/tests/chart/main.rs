//! The Helm chart on a real cluster: installed, tested, upgraded and uninstalled with real Helm.

mod rendered;

use std::thread;

use anyhow::{Context, Result, ensure};
use knr_e2e::{Cluster, LONG_GRACE, NAMESPACE, Node, Release, pods_of, product, values};
use knr_k8s::calls::Who;
use lab::{Fault, Tool};
use serde_json::{Value, json};

const PASSED: &str = r#"{"checks":[{"name":"dns","outcome":"pass"}]}"#;
const FOREIGN: &str = "others.example/dedicated=batch:NoSchedule";

#[test]
fn an_installation_does_its_work_and_leaves_as_configured() -> Result<()> {
    let cluster =
        Cluster::start_bare("chart", |lab| lab.nodes(2).flag(Tool::KubeControllerManager, LONG_GRACE))?;
    let release = Release::install(&cluster, &values())?;
    two_replicas_are_ready(&cluster)?;
    let node = cluster.join("n3")?;
    node.wait_until_open()?;
    assert!(node.is_verified()?);
    cluster.permissions_are_those_listed("kube-node-ready-controller", Who::Controller)?;
    cluster.permissions_are_those_listed("kube-node-ready-worker", Who::Worker)?;
    its_own_test_changes_nothing(&cluster, &release, &node)?;
    its_own_test_names_a_right_that_is_missing(&cluster, &release)?;
    what_a_failed_upgrade_has_left_is_taken_back(&cluster, &release)?;
    an_upgrade_loses_no_verification(&cluster, &release)?;
    let broken =
        cluster.add_node("broken").taint(knr_e2e::GATE.parse()?).taint(FOREIGN.parse()?).switch_on()?;
    broken.inject(Fault::Dns)?;
    let broken = cluster.wait_for("node broken", || Ok(cluster.node("broken").ok()))?;
    opens_what_is_closed(&cluster, release, &broken)?;
    keeps_what_is_closed(&cluster, &broken)
}

fn two_replicas_are_ready(cluster: &Cluster) -> Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/kube-node-ready-controller");
    assert_eq!(cluster.api().get(&path)?["status"]["readyReplicas"], 2, "helm waits for them");
    Ok(())
}

/// The parts of a node that the product could change. Heartbeats are left out.
fn marks(node: &Node<'_>) -> Result<Value> {
    let object = node.object()?;
    Ok(json!([
        object["metadata"]["labels"],
        object["metadata"]["annotations"],
        object["spec"],
        node.condition()?.map(|it| it.reason)
    ]))
}

fn its_own_test_changes_nothing(cluster: &Cluster, release: &Release<'_>, node: &Node<'_>) -> Result<()> {
    let (before, objects) = (marks(node)?, cluster.objects_of_release()?);
    let said = release.test()?;
    ensure!(said.contains("Phase:          Succeeded"), "{said}");
    assert_eq!(marks(node)?, before);
    assert_eq!(cluster.objects_of_release()?, objects, "nothing is left of it");
    let pods = cluster.api().list(&format!("/api/v1/namespaces/{NAMESPACE}/pods"))?;
    assert_eq!(pods.len(), 2, "only the replicas are left");
    Ok(())
}

fn its_own_test_names_a_right_that_is_missing(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kube-node-ready-controller";
    let mut role = cluster.api().get(path)?;
    let all = role["rules"].clone();
    let rules = role["rules"].as_array_mut().context("no rules")?;
    rules.retain(|rule| rule["resources"] != json!(["nodes/status"]));
    cluster.api().patch(path, &json!({ "rules": rules }))?;
    let said = release.test().err().context("it passed without a right")?.to_string();
    ensure!(said.contains("patch nodes/status"), "{said}");
    // Helm 4 would not revert a change that somebody else made.
    cluster.api().patch(path, &json!({ "rules": all }))?;
    // Helm leaves the pod of a test that failed, for its log.
    release.upgrade(&values())?;
    release.test().map(drop)
}

/// To Helm, a key that is in neither the old nor the new manifest belongs to somebody else.
fn what_a_failed_upgrade_has_left_is_taken_back(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/kube-node-ready-config");
    let taint_key = || Ok::<_, anyhow::Error>(cluster.api().get(&path)?["data"]["TAINT_KEY"].clone());
    let mut wrong = values();
    wrong["config"] = json!({ "taintKey": "example.com/other" });
    wrong["image"]["tag"] = json!("none");
    ensure!(release.upgrade_within("5s", &wrong).is_err(), "there is no such image");
    assert_eq!(taint_key()?, "example.com/other");
    release.upgrade(&values())?;
    assert_eq!(taint_key()?, "");
    Ok(())
}

fn an_upgrade_loses_no_verification(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
    cluster.fake_workers_end(0, PASSED)?;
    let mut changed = values();
    changed["controller"]["podAnnotations"] = json!({ "example.com/change": "1" });
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| release.upgrade(&changed));
        let nodes = cluster.fakes("during", 20)?;
        for node in &nodes {
            node.wait_until_open()?;
            assert!(node.is_verified()?, "{}", node.name());
            assert_eq!(node.state()?["attempt"], 1, "{}: no attempt was lost", node.name());
        }
        upgrade.join().ok().context("the upgrade panicked")??;
        for node in nodes {
            node.delete()?;
        }
        Ok(())
    })
}

fn opens_what_is_closed(cluster: &Cluster, release: Release<'_>, broken: &Node<'_>) -> Result<()> {
    cluster.eventually("node broken to fail", || {
        Ok(broken.condition()?.is_some_and(|condition| condition.reason == "DnsTimeout"))
    })?;
    says_what_would_be_opened(cluster)?;
    assert!(!broken.is_open()?);
    release.uninstall()?;
    assert_eq!(broken.taints()?, [FOREIGN], "the gate is gone, and nothing else");
    assert!(!broken.is_verified()?, "it has not passed");
    let condition = broken.condition()?.context("no condition")?;
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("Unknown", "Released"));
    nothing_is_left(cluster)
}

/// For an operator who wants to know in advance.
fn says_what_would_be_opened(cluster: &Cluster) -> Result<()> {
    let kubeconfig = cluster.kubeconfig().to_string_lossy().into_owned();
    let pods = pods_of("controller");
    let who = ["--kubeconfig", &kubeconfig, "--namespace", NAMESPACE, "--selector", &pods];
    let said = product::run(["release", "--dry-run"].into_iter().chain(who))?;
    for line in [
        "this is a dry run, nothing was changed",
        "would wait until these pods are gone: kube-node-ready-controller-",
        "would open  broken  without node-ready/unverified",
    ] {
        ensure!(said.contains(line), "{said}");
    }
    Ok(())
}

fn keeps_what_is_closed(cluster: &Cluster, broken: &Node<'_>) -> Result<()> {
    let mut keep = values();
    keep["uninstall"] = json!("keep");
    let release = Release::install(cluster, &keep)?;
    broken.close()?;
    release.uninstall()?;
    assert!(!broken.is_open()?);
    // A worker may still exist for the broken node, as the page on uninstalling says.
    cluster.kubectl(["-n", NAMESPACE, "delete", "pods", "--selector", &pods_of("worker")])?;
    nothing_is_left(cluster)
}

fn nothing_is_left(cluster: &Cluster) -> Result<()> {
    cluster.wait_for("everything to be gone", || {
        let objects = cluster.objects_of_release()?;
        ensure!(objects.is_empty(), "there are still {objects:?}");
        let pods = cluster.api().list(&format!("/api/v1/namespaces/{NAMESPACE}/pods"))?;
        ensure!(pods.is_empty(), "there are still {} pods", pods.len());
        Ok(Some(()))
    })
}

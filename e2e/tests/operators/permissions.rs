//! The permissions that the product prints are sufficient and minimal, and every missing one is named.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use knr_e2e::{ACCOUNT, Api, Cluster, Config, Controller, NAMESPACE, PATIENCE};
use lab::Tool;
use serde_json::{Value, json};

use crate::process;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const OURS: &str = "labelSelector=app.kubernetes.io/name=kube-node-ready";
const FORBIDDEN: i32 = 3;

pub(crate) fn exactly_what_is_missing_is_named(cluster: &Cluster) -> Result<()> {
    what_is_printed_is_the_least(cluster)?;
    let config = Config::new()
        .set("nodeManagement.deleteFailedNodes", true)
        .set("gates", json!([{ "name": "startup", "namespaces": ["kube-system"] }]));
    let mut controller = Controller::start(cluster, &config, "permissions")?;
    controller.kill()?;

    let mut taken_so_far = 0;
    for role in roles(cluster)? {
        for rule in 0..role.rules.len() {
            let mut left = role.rules.clone();
            let taken = role.right(&left.remove(rule));
            taken_so_far += taken.len();
            role.set(cluster, &left)?;
            assert_eq!(names_missing(cluster, &mut controller, &taken)?, taken.into_iter().collect());
            role.set(cluster, &role.rules)?;
        }
    }
    ensure!(taken_so_far >= 20, "these cannot be all: {taken_so_far}");
    all_at_once_if_it_has_none(cluster, &mut controller, &config)?;
    an_unknown_user_is_reported(&mut controller)
}

/// Asks with kubectl, as an operator would.
fn what_is_printed_is_the_least(cluster: &Cluster) -> Result<()> {
    let worker = "kube-node-ready-worker";
    let questions = [
        ("yes", ACCOUNT, "patch", "nodes", "default"),
        ("yes", ACCOUNT, "create", "pods", NAMESPACE),
        ("no", ACCOUNT, "delete", "nodes", "default"),
        ("no", ACCOUNT, "get", "secrets", NAMESPACE),
        ("no", ACCOUNT, "create", "pods", "kube-system"),
        ("no", ACCOUNT, "patch", "deployments.apps", "default"),
        ("yes", worker, "get", "services", "kube-system"),
        ("no", worker, "patch", "nodes", "default"),
    ];
    for (answer, account, verb, resource, namespace) in questions {
        let who = format!("--as=system:serviceaccount:{NAMESPACE}:{account}");
        let mut kubectl = cluster.client(Tool::Kubectl);
        let said = kubectl.args(["auth", "can-i", verb, resource, "-n", namespace, &who]).output()?;
        let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        assert_eq!(said, answer, "{account}: {verb} {resource} in {namespace}");
    }
    nothing_else_is_allowed(cluster, ACCOUNT, &["nodes", "nodes/status", "nodepools"])?;
    nothing_else_is_allowed(cluster, worker, &["services", "endpointslices"])
}

/// Checks a namespace that the product does not use. Every account may ask for its own permissions and name.
fn nothing_else_is_allowed(cluster: &Cluster, account: &str, expected: &[&str]) -> Result<()> {
    let mut kubeconfig: Value = serde_json::from_str(&fs::read_to_string(cluster.kubeconfig())?)?;
    kubeconfig["users"][0]["user"] = json!({ "token": cluster.api().token(NAMESPACE, account)? });
    let api = Api::open(&process::file(cluster, &format!("{account}.kubeconfig"), &kubeconfig.to_string())?)?;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": "kube-public" },
    });
    let answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review)?;
    let rules = answer["status"]["resourceRules"].as_array().context("there are no rules")?;
    let resources = rules.iter().flat_map(|rule| texts(&rule["resources"]));
    let allowed: BTreeSet<_> = resources.filter(|resource| !resource.starts_with("selfsubject")).collect();
    assert_eq!(allowed, expected.iter().map(|&resource| resource.to_owned()).collect());
    Ok(())
}

fn all_at_once_if_it_has_none(cluster: &Cluster, controller: &mut Controller, config: &Config) -> Result<()> {
    controller.reconfigure(&config.clone().set("nodeManagement.backfill", true))?;
    let roles = roles(cluster)?;
    let all: Vec<_> =
        roles.iter().flat_map(|role| role.rules.iter().flat_map(|rule| role.right(rule))).collect();
    roles.iter().try_for_each(|role| role.set(cluster, &[]))?;
    let missing = names_missing(cluster, controller, &all)?;
    assert_eq!(missing, all.iter().cloned().collect());
    assert!(missing.contains("list pods in the whole cluster") && missing.len() >= 20, "{missing:#?}");
    roles.iter().try_for_each(|role| role.set(cluster, &role.rules))
}

fn an_unknown_user_is_reported(controller: &mut Controller) -> Result<()> {
    let good = fs::read_to_string(controller.kubeconfig())?;
    let mut bad: Value = serde_json::from_str(&good)?;
    bad["users"][0]["user"]["token"] = json!("not-a-token");
    fs::write(controller.kubeconfig(), bad.to_string())?;
    let before = controller.log()?.len();
    controller.restart()?;
    assert_eq!(controller.program().wait(PATIENCE)?.code(), Some(FORBIDDEN));
    let log = controller.log()?.split_off(before);
    let says_so =
        |line: &Value| line["msg"].as_str().is_some_and(|text| text.contains("does not accept who we are"));
    assert!(log.iter().any(says_so), "{log:#?}");
    Ok(())
}

/// Waits until the API server no longer grants these permissions, starts the controller, and returns the permissions
/// that it reports as missing before it exits.
fn names_missing(
    cluster: &Cluster,
    controller: &mut Controller,
    taken: &[String],
) -> Result<BTreeSet<String>> {
    cluster.eventually("the API server to take note", || {
        Ok(!taken.iter().map(|right| is_allowed(cluster, right)).collect::<Result<Vec<_>>>()?.contains(&true))
    })?;
    let before = controller.log()?.len();
    controller.restart()?;
    let end = controller.program().wait(PATIENCE)?;
    assert_eq!(end.code(), Some(FORBIDDEN), "without {taken:?}");
    let log = controller.log()?.split_off(before);
    let errors: Vec<_> = log.iter().filter(|line| line["level"] == "error").collect();
    let hint = errors.last().and_then(|line| line["msg"].as_str()).unwrap_or_default();
    assert!(hint.contains("kube-node-ready manifests rbac"), "{errors:#?}");
    Ok(errors.iter().filter_map(|line| line["permission"].as_str().map(str::to_owned)).collect())
}

/// Asks about a permission as [`Role::right`] writes it.
fn is_allowed(cluster: &Cluster, right: &str) -> Result<bool> {
    let (what, place) = right.split_once(" in ").context("a right has a place")?;
    let (verb, resource) = what.split_once(' ').context("a right has a verb")?;
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let name = if verb == "create" { "" } else { name_of(resource) };
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"),
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": part, "name": name,
                "namespace": place.strip_prefix("namespace ").unwrap_or_default(),
            },
        },
    });
    let answer = cluster.api().create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)?;
    Ok(answer["status"]["allowed"] == true)
}

/// The name of the object, for permissions on a single object.
fn name_of(resource: &str) -> &'static str {
    match resource {
        "leases" => "kube-node-ready-controller",
        "configmaps" => "kube-node-ready-deletions",
        _ => "",
    }
}

/// A role of the controller as the product printed it.
#[derive(Debug)]
struct Role {
    path: String,
    namespace: Option<String>,
    rules: Vec<Value>,
}

fn roles(cluster: &Cluster) -> Result<Vec<Role>> {
    let mut roles = cluster.api().list(&format!("{RBAC}/clusterroles?{OURS}"))?;
    roles.extend(cluster.api().list(&format!("{RBAC}/roles?{OURS}"))?);
    roles.retain(|role| role["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(ACCOUNT)));
    let role = |role: &Value| {
        let name = role["metadata"]["name"].as_str()?;
        let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
        let path = match &namespace {
            Some(namespace) => format!("{RBAC}/namespaces/{namespace}/roles/{name}"),
            None => format!("{RBAC}/clusterroles/{name}"),
        };
        Some(Role { path, namespace, rules: role["rules"].as_array()?.clone() })
    };
    roles.iter().map(|object| role(object).with_context(|| object.to_string())).collect()
}

impl Role {
    fn set(&self, cluster: &Cluster, rules: &[Value]) -> Result<()> {
        cluster.api().patch(&self.path, &json!({ "rules": rules }))?;
        Ok(())
    }

    /// The permissions that a rule of this role grants, in the words of the product.
    fn right(&self, rule: &Value) -> Vec<String> {
        let place = match &self.namespace {
            Some(namespace) => format!("namespace {namespace}"),
            None => "the whole cluster".to_owned(),
        };
        let group = rule["apiGroups"][0].as_str().filter(|group| !group.is_empty());
        let resource = rule["resources"][0].as_str().unwrap_or_default();
        let (plural, part) =
            resource.split_once('/').map_or((resource, String::new()), |(a, b)| (a, format!("/{b}")));
        let group = group.map(|group| format!(".{group}")).unwrap_or_default();
        texts(&rule["verbs"]).iter().map(|verb| format!("{verb} {plural}{group}{part} in {place}")).collect()
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

//! Permissions as Kubernetes objects, generated from the list of calls.

#[cfg(test)]
mod chart;

use std::collections::{BTreeMap, BTreeSet};

use knr_core::config::Config;
use knr_core::names;
use serde_json::{Value, json};

use crate::api::Namespaces;
use crate::calls::{Call, Rule, When, Who};
use crate::scope::{self, Scope};

const RBAC: &str = "rbac.authorization.k8s.io";
const VERSION: &str = "rbac.authorization.k8s.io/v1";

/// Returns the service accounts of the controller and the workers, with exactly the roles and bindings that a
/// configuration needs.
#[must_use]
pub fn manifests(config: &Config, namespaces: &Namespaces) -> Vec<Value> {
    let account =
        |name: &str, namespace: &str| Account { name: name.to_owned(), namespace: namespace.to_owned() };
    let accounts = [
        (Who::Controller, account(names::CONTROLLER_ACCOUNT, &namespaces.own)),
        (Who::Worker, account(&config.worker.service_account_name, &namespaces.workers)),
    ];
    let mut objects: Vec<Value> = accounts.iter().map(|(_, account)| account.object()).collect();
    for (who, account) in &accounts {
        for (role, rules) in roles(*who, config, namespaces) {
            objects.extend(role.objects(&rules, account));
        }
    }
    objects
}

/// A service account.
struct Account {
    name: String,
    namespace: String,
}

/// One role of a service account: the rules for one namespace that the same setting requires.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Role {
    when: When,
    namespace: Option<String>,
}

/// Verbs by group, resource and names.
type Rules = BTreeMap<(&'static str, &'static str, Option<String>), BTreeSet<&'static str>>;

fn roles(who: Who, config: &Config, namespaces: &Namespaces) -> BTreeMap<Role, Rules> {
    let mut roles: BTreeMap<Role, Rules> = BTreeMap::new();
    for call in Call::needed(who, config) {
        let Rule { verb, group, resource, when, .. } = call.rule();
        for Scope { namespace, name } in scope::of(call, config, namespaces) {
            let role = roles.entry(Role { when: together(when), namespace }).or_default();
            role.entry((group, resource, name)).or_default().insert(verb.as_str());
        }
    }
    roles
}

/// Permissions for an optional feature get a role of their own, so that they are visible and can be withheld.
fn together(when: When) -> When {
    match when {
        When::Always | When::LeaderElection => When::Always,
        When::Deletion | When::Backfill | When::StartupGates => when,
    }
}

impl Role {
    fn objects(&self, rules: &Rules, account: &Account) -> [Value; 2] {
        let Account { name: account, namespace: home } = account;
        let name = match self.when {
            When::Always | When::LeaderElection => account.clone(),
            When::Deletion => format!("{account}-deletion"),
            When::Backfill => format!("{account}-backfill"),
            When::StartupGates => format!("{account}-gates"),
        };
        let kind = if self.namespace.is_some() { "Role" } else { "ClusterRole" };
        let metadata = match &self.namespace {
            Some(namespace) => json!({ "name": name, "namespace": namespace, "labels": labels() }),
            None => json!({ "name": name, "labels": labels() }),
        };
        let subject = json!({ "kind": "ServiceAccount", "name": account, "namespace": home });
        [
            json!({
                "apiVersion": VERSION, "kind": kind, "metadata": metadata,
                "rules": rules.iter().map(rule).collect::<Vec<_>>(),
            }),
            json!({
                "apiVersion": VERSION, "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": { "apiGroup": RBAC, "kind": kind, "name": name },
                "subjects": [subject],
            }),
        ]
    }
}

impl Account {
    fn object(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": self.name, "namespace": self.namespace, "labels": labels() },
        })
    }
}

fn rule(
    ((group, resource, name), verbs): (
        &(&'static str, &'static str, Option<String>),
        &BTreeSet<&'static str>,
    ),
) -> Value {
    let mut rule = json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
    if let Some(name) = name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "kube-node-ready" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(yaml: &str) -> Vec<Value> {
        let namespaces = Namespaces { own: "own".into(), workers: "workers".into(), lease: "own".into() };
        manifests(&Config::parse(yaml).unwrap(), &namespaces)
    }

    fn permissions(objects: &[Value], kind: &str, name: &str, namespace: Option<&str>) -> Vec<String> {
        let role = objects.iter().find(|object| {
            object["kind"] == kind
                && object["metadata"]["name"] == name
                && object["metadata"]["namespace"].as_str() == namespace
        });
        let rules = role.unwrap_or_else(|| panic!("no {kind} {name}"))["rules"].as_array().unwrap();
        let line = |rule: &Value| {
            let verbs: Vec<_> = rule["verbs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let names = rule.get("resourceNames").map_or(String::new(), |names| format!(" {names}"));
            format!(
                "{}/{}{names}: {}",
                rule["apiGroups"][0].as_str().unwrap(),
                rule["resources"][0].as_str().unwrap(),
                verbs.join(" ")
            )
        };
        rules.iter().map(line).collect()
    }

    #[test]
    fn the_controller_may_do_what_it_does_and_no_more() {
        let objects = of("");
        assert_eq!(
            permissions(&objects, "ClusterRole", "kube-node-ready-controller", None),
            ["/nodes: list patch watch", "/nodes/status: patch", "karpenter.sh/nodepools: list watch"]
        );
        assert_eq!(
            permissions(&objects, "Role", "kube-node-ready-controller", Some("workers")),
            ["/pods: create delete list watch"]
        );
        assert_eq!(
            permissions(&objects, "Role", "kube-node-ready-controller", Some("own")),
            [
                "coordination.k8s.io/leases: create",
                r#"coordination.k8s.io/leases ["kube-node-ready-controller"]: get update watch"#
            ]
        );
        assert_eq!(
            permissions(&objects, "Role", "kube-node-ready-controller", Some("default")),
            ["events.k8s.io/events: create"]
        );
        assert_eq!(
            permissions(&objects, "ClusterRole", "kube-node-ready-worker", None),
            ["/services: get", "discovery.k8s.io/endpointslices: list"]
        );
        assert_eq!(objects.iter().filter(|object| object["kind"] == "ServiceAccount").count(), 2);
    }

    #[test]
    fn what_is_asked_for_by_a_switch_is_a_role_of_its_own() {
        let objects = of("nodeManagement: {deleteFailedNodes: true, backfill: true}\ngates: [{name: a}]");
        assert_eq!(
            permissions(&objects, "ClusterRole", "kube-node-ready-controller-deletion", None),
            ["/nodes: delete", "karpenter.sh/nodeclaims: delete get"]
        );
        assert_eq!(
            permissions(&objects, "Role", "kube-node-ready-controller-deletion", Some("own")),
            ["/configmaps: create", r#"/configmaps ["kube-node-ready-deletions"]: get update"#]
        );
        assert_eq!(
            permissions(&objects, "ClusterRole", "kube-node-ready-controller-backfill", None),
            ["/pods: list"]
        );
        assert_eq!(
            permissions(&objects, "Role", "kube-node-ready-controller-gates", Some("kube-system")),
            ["/pods: list watch"]
        );
    }

    #[test]
    fn gates_in_several_namespaces_ask_for_a_role_in_each() {
        let objects = of("gates: [{name: a, namespaces: [one, two]}]");
        for namespace in ["one", "two"] {
            assert_eq!(
                permissions(&objects, "Role", "kube-node-ready-controller-gates", Some(namespace)),
                ["/pods: list watch"]
            );
        }
        let pods_everywhere = objects.iter().any(|object| {
            object["kind"] == "ClusterRole" && object["rules"].to_string().contains("\"pods\"")
        });
        assert!(!pods_everywhere, "{objects:#?}");
    }

    #[test]
    fn every_role_is_bound_to_its_account() {
        let objects = of("nodeManagement: {deleteFailedNodes: true}");
        let count = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).count();
        assert_eq!(
            (count("Role"), count("ClusterRole")),
            (count("RoleBinding"), count("ClusterRoleBinding"))
        );
        for binding in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Binding")) {
            assert_eq!(binding["roleRef"]["name"], binding["metadata"]["name"]);
            let namespace = binding["subjects"][0]["namespace"].as_str().unwrap();
            assert!(["own", "workers"].contains(&namespace));
        }
    }
}

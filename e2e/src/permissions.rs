//! The permissions of an installation's service accounts: everything that is listed, and nothing else.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::thread;

use anyhow::{Context, Result, ensure};
use knr_core::config::Config;
use knr_k8s::calls::{Call, Place, Who};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// Empty for the whole cluster. `elsewhere` stands for every other namespace.
const NAMESPACES: [&str; 4] = ["", NAMESPACE, "default", "elsewhere"];
/// The prefix of resources that every account may use, by a role of Kubernetes itself.
const FOR_EVERYBODY: &str = "selfsubject";
const AT_ONCE: usize = 8;

/// A permission: verb, group, resource and namespace.
type Right = (String, String, String, String);

impl Cluster {
    /// Asks the API server about every resource that it serves: this account may do what is listed for it, and nothing
    /// else.
    pub fn permissions_are_those_listed(&self, account: &str, who: Who) -> Result<()> {
        let resources = resources(self)?;
        let all: Vec<Right> = VERBS
            .iter()
            .flat_map(|verb| resources.iter().map(move |resource| (verb, resource)))
            .flat_map(|(verb, (group, resource))| {
                NAMESPACES.map(|namespace| (*verb, group.clone(), resource.clone(), namespace.to_owned()))
            })
            .map(|(verb, group, resource, namespace)| (verb.to_owned(), group, resource, namespace))
            .collect();
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let parts: Vec<Result<Vec<Right>>> = thread::scope(|scope| {
            let asked = all.chunks(all.len().div_ceil(AT_ONCE)).map(|part| {
                let user = &user;
                scope.spawn(move || {
                    part.iter().filter_map(|right| allowed(self, user, right).transpose()).collect()
                })
            });
            let threads: Vec<_> = asked.collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let mut found = BTreeSet::new();
        for part in parts {
            found.extend(part?);
        }
        let listed = listed(who);
        ensure!(found == listed, "{account} may do {found:?}, but listed is {listed:?}");
        Ok(())
    }
}

/// The permissions in the program's own list. A permission in the whole cluster holds in every namespace. A permission
/// on single objects does not show in a review about all of them.
fn listed(who: Who) -> BTreeSet<Right> {
    let mut permissions = BTreeSet::new();
    for call in Call::needed(who, &Config::default()) {
        let rule = call.rule();
        if matches!(call, Call::GetLease | Call::UpdateLease | Call::WatchLease) {
            continue;
        }
        let namespaces: &[&str] = match rule.place {
            Place::Cluster | Place::Gates => &NAMESPACES,
            Place::Workers | Place::Own | Place::Lease => &[NAMESPACE],
            Place::NodeEvents => &["default"],
        };
        for namespace in namespaces {
            let right = (rule.verb.as_str(), rule.group, rule.resource, *namespace);
            permissions.insert((
                right.0.to_owned(),
                right.1.to_owned(),
                right.2.to_owned(),
                right.3.to_owned(),
            ));
        }
    }
    permissions
}

/// Every resource that the API server serves, with subresources, and those that Karpenter would add.
fn resources(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = vec![
        ("karpenter.sh".to_owned(), "nodepools".to_owned()),
        ("karpenter.sh".to_owned(), "nodeclaims".to_owned()),
    ];
    let mut groups = vec![(String::new(), "/api/v1".to_owned())];
    let known = cluster.api().get("/apis")?;
    for group in known["groups"].as_array().context("no groups")? {
        groups.push((
            text(&group["name"]),
            format!("/apis/{}", text(&group["preferredVersion"]["groupVersion"])),
        ));
    }
    for (group, path) in groups {
        let list = cluster.api().get(&path)?;
        for resource in list["resources"].as_array().into_iter().flatten() {
            let name = text(&resource["name"]);
            if !name.starts_with(FOR_EVERYBODY) {
                found.push((group.clone(), name));
            }
        }
    }
    Ok(found)
}

fn allowed(cluster: &Cluster, user: &str, right: &Right) -> Result<Option<Right>> {
    let (verb, group, resource, namespace) = right;
    let (plural, part) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{NAMESPACE}"), "system:authenticated"],
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": plural, "subresource": part, "namespace": namespace,
            },
        },
    });
    let answer = cluster.api().create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)?;
    Ok((answer["status"]["allowed"] == true).then(|| right.clone()))
}

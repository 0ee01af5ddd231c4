//! The permissions in the Helm chart, generated from the list of calls: one role for each `Who`, `When` and
//! `Place`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use knr_core::config::Config;

use super::Rules;
use crate::api::NODE_EVENTS;
use crate::calls::{Call, Place, Rule, When, Who};
use crate::scope;

const INTRODUCTION: &str = r#"{{- /*
Generated from crates/k8s/src/calls.rs, the list of all requests that are ever sent. Run `make generate` after a change there.
Every right, and nothing that is not asked for.
*/}}
{{- if .Values.rbac.create }}
{{- $config := include "kube-node-ready.config" . | fromYaml }}
{{- /* Who. */}}
{{- $controller := eq .Values.deploymentMode "controller" }}
{{- $worker := $controller }}
{{- $daemonset := eq .Values.deploymentMode "daemonset" }}
{{- $release := eq (include "kube-node-ready.releases" .) "true" }}
{{- $doctor := true }}
{{- /* When. */}}
{{- $leaderElection := and $controller $config.leaderElection.enabled }}
{{- $deletion := $config.nodeManagement.deleteFailedNodes }}
{{- $backfill := $config.nodeManagement.backfill }}
{{- $startupGates := not (empty $config.gates) }}
{{- /* Where; empty is the whole cluster. */}}
{{- $own := .Release.Namespace }}
{{- $workers := $config.worker.namespace }}
{{- $lease := $config.leaderElection.leaseNamespace | default $own }}
{{- $gates := list }}
{{- range $config.gates }}{{ $gates = concat $gates (.namespaces | default (list "kube-system")) | uniq }}{{ end }}
"#;

/// The name of the lease, as a template expression.
const LEASE_NAME: &str = "{{ $config.leaderElection.leaseName | quote }}";

fn template() -> String {
    let mut text = INTRODUCTION.to_owned();
    for who in [Who::Controller, Who::Worker, Who::Daemonset, Who::Release, Who::Doctor] {
        let _ = write!(text, "\n{{{{- if ${} }}}}\n", word(who));
        for ((when, place), rules) in roles(who) {
            let role = everywhere(place, role(who, when, place, &rules));
            let _ = match condition(when) {
                None => write!(text, "{role}"),
                Some(condition) => write!(text, "{{{{- if {condition} }}}}\n{role}{{{{- end }}}}\n"),
            };
        }
        text.push_str("{{- end }}\n");
    }
    text + "{{- end }}\n"
}

fn roles(who: Who) -> BTreeMap<(When, Place), Rules> {
    let mut config = Config::default();
    LEASE_NAME.clone_into(&mut config.leader_election.lease_name);
    let mut roles: BTreeMap<(When, Place), Rules> = BTreeMap::new();
    for call in Call::ALL.iter().filter(|call| call.rule().who.contains(&who)) {
        let Rule { verb, group, resource, place, when, .. } = call.rule();
        let name = scope::name(*call, &config);
        let role = roles.entry((when, place)).or_default();
        role.entry((group, resource, name)).or_default().insert(verb.as_str());
    }
    roles
}

/// Repeats a role for each namespace, where there can be several.
fn everywhere(place: Place, role: String) -> String {
    match place {
        Place::Gates => format!("{{{{- range $namespace := $gates }}}}\n{role}{{{{- end }}}}\n"),
        Place::Cluster | Place::Workers | Place::Own | Place::Lease | Place::NodeEvents => role,
    }
}

fn role(who: Who, when: When, place: Place, rules: &Rules) -> String {
    let (who, name, namespace) = (word(who), suffix(when, place), namespace(place));
    let mut text = format!(
        "{{{{ include \"kube-node-ready.role\" (dict \"root\" $ \"who\" \"{who}\" \"name\" \"{name}\" \
         \"namespace\" {namespace}) }}}}\nrules:\n"
    );
    for ((group, resource, name), verbs) in rules {
        let group = if group.is_empty() { "\"\"" } else { group };
        let _ = writeln!(text, "  - apiGroups: [{group}]\n    resources: [{resource}]");
        if let Some(name) = name {
            let _ = writeln!(text, "    resourceNames: [{name}]");
        }
        let verbs: Vec<&str> = verbs.iter().copied().collect();
        let _ = writeln!(text, "    verbs: [{}]", verbs.join(", "));
    }
    text
}

/// Returns the template variable, which is also part of the names of service accounts and roles.
fn word(who: Who) -> &'static str {
    match who {
        Who::Controller => "controller",
        Who::Worker => "worker",
        Who::Daemonset => "daemonset",
        Who::Release => "release",
        Who::Doctor => "doctor",
    }
}

fn condition(when: When) -> Option<&'static str> {
    match when {
        When::Always => None,
        When::LeaderElection => Some("$leaderElection"),
        When::Deletion => Some("$deletion"),
        When::Backfill => Some("$backfill"),
        When::StartupGates => Some("$startupGates"),
    }
}

/// Returns the suffix of a role's name after the service account. Several places may be the same namespace, so each has
/// its own suffix.
fn suffix(when: When, place: Place) -> &'static str {
    match when {
        When::Always => match place {
            Place::Cluster => "",
            Place::Workers => "-workers",
            Place::Own => "-own",
            Place::Lease => "-lease",
            Place::NodeEvents => "-events",
            Place::Gates => "-gates",
        },
        When::LeaderElection => "-lease",
        When::Deletion => "-deletion",
        When::Backfill => "-backfill",
        When::StartupGates => "-gates",
    }
}

fn namespace(place: Place) -> String {
    match place {
        Place::Cluster => "\"\"".to_owned(),
        Place::Workers => "$workers".to_owned(),
        Place::Own => "$own".to_owned(),
        Place::Lease => "$lease".to_owned(),
        Place::NodeEvents => format!("{NODE_EVENTS:?}"),
        Place::Gates => "$namespace".to_owned(),
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/helm/kube-node-ready/templates/rbac.generated.yaml")
}

#[test]
fn the_permissions_in_the_chart_are_up_to_date() {
    let text = template();
    // `make generate` sets this variable.
    if std::env::var_os("GENERATE").is_some() {
        return std::fs::write(file(), text).unwrap();
    }
    let committed = std::fs::read_to_string(file()).unwrap_or_default();
    assert!(committed == text, "{} is not up to date: run `make generate` and commit it", file().display());
}

#[test]
fn no_two_roles_of_one_kind_have_the_same_name() {
    for who in [Who::Controller, Who::Worker, Who::Daemonset, Who::Release, Who::Doctor] {
        let mut names: Vec<_> = roles(who)
            .into_keys()
            .map(|(when, place)| (suffix(when, place), place == Place::Cluster))
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{who:?}: {names:?}");
    }
}

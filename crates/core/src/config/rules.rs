//! The rules that the schema cannot express, most of them about several keys at once.

use std::collections::{BTreeMap, BTreeSet};

use super::format::quantity;
use super::path::Path;
use super::problem::Finding;
use super::worker::{RawObject, Toleration, TolerationOperator};
use super::{BuiltInCheck, CheckSpec, Config, Effect, Taint};
use crate::names;

/// Prefixes of taints that Kubernetes and cloud providers add and remove by their own rules.
const FOREIGN_TAINTS: [&str; 3] =
    ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/"];

/// Returns all violations of the rules by a configuration.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    timeouts(config, &mut found);
    leader_election(config, &mut found);
    worker_pod(config, &mut found);
    checks(config, &mut found);
    taints(config, &mut found);
    gate_names(config, &mut found);
    annotations(config, &mut found);
    order(config, &mut found);
    found
}

fn timeouts(config: &Config, found: &mut Vec<Finding>) {
    let worker = Path::of(&["worker"]);
    let (check, whole) = (config.worker.check_timeout_seconds, config.worker.timeout_seconds);
    if check > whole {
        let message = format!(
            "worker.checkTimeoutSeconds is {check} and worker.timeoutSeconds is {whole}; \
             expected one check to take no longer than the whole run"
        );
        found.push(
            Finding::new(worker.key("checkTimeoutSeconds"), message).related([worker.key("timeoutSeconds")]),
        );
    }
    let section = Path::of(&["reconciliation"]);
    let (first, most) =
        (config.reconciliation.retry_delay_seconds, config.reconciliation.max_retry_delay_seconds);
    if first > most {
        let message = format!(
            "reconciliation.retryDelaySeconds is {first} and reconciliation.maxRetryDelaySeconds is {most}; \
             expected the first delay to be no longer than the longest"
        );
        found.push(
            Finding::new(section.key("retryDelaySeconds"), message)
                .related([section.key("maxRetryDelaySeconds")]),
        );
    }
}

fn leader_election(config: &Config, found: &mut Vec<Finding>) {
    let section = Path::of(&["leaderElection"]);
    let times = [
        ("retryPeriodSeconds", config.leader_election.retry_period_seconds),
        ("renewDeadlineSeconds", config.leader_election.renew_deadline_seconds),
        ("leaseDurationSeconds", config.leader_election.lease_duration_seconds),
    ];
    for pair in times.windows(2) {
        let [(shorter, short), (longer, long)] = pair else { continue };
        if short >= long {
            let message = format!(
                "leaderElection.{shorter} is {short} and leaderElection.{longer} is {long}; \
                 expected the first to be less than the second"
            );
            found.push(Finding::new(section.key(shorter), message).related([section.key(longer)]));
        }
    }
}

fn worker_pod(config: &Config, found: &mut Vec<Finding>) {
    let section = Path::of(&["worker"]);
    unique_names(&config.worker.init_containers, &section.key("initContainers"), found);
    unique_names(&config.worker.volumes, &section.key("volumes"), found);
    mounted_volumes(config, found);
    let resources = section.key("resources");
    for (name, request) in &config.worker.resources.requests {
        let Some(limit) = config.worker.resources.limits.get(name) else { continue };
        if quantity(request) > quantity(limit) {
            let message = format!("the request of {request} is more than the limit of {limit}");
            let finding = Finding::new(resources.key("requests").key(name), message);
            found.push(finding.related([resources.key("limits").key(name)]));
        }
    }
    for (index, toleration) in config.worker.tolerations.iter().enumerate() {
        let at = section.key("tolerations").index(index);
        found.extend(toleration_problems(toleration).map(|message| Finding::new(at.clone(), message)));
    }
}

fn unique_names(objects: &[RawObject], list: &Path, found: &mut Vec<Finding>) {
    let name = |object: &RawObject| object.get("name").and_then(|name| name.as_str()).map(str::to_owned);
    repeated(objects.iter().map(name), |index, first, name| {
        let message = format!("the name {name:?} is already that of {}", list.index(first));
        found.push(Finding::new(list.index(index).key("name"), message));
    });
}

fn mounted_volumes(config: &Config, found: &mut Vec<Finding>) {
    let section = Path::of(&["worker"]);
    let name = |object: &RawObject| object.get("name").cloned();
    let known: Vec<_> = config.worker.volumes.iter().filter_map(name).collect();
    for (index, mount) in config.worker.volume_mounts.iter().enumerate() {
        let Some(name) = name(mount).filter(|name| !known.contains(name)) else { continue };
        let at = section.key("volumeMounts").index(index).key("name");
        let message = format!("there is no volume {name} in worker.volumes");
        found.push(Finding::new(at, message).related([section.key("volumes")]));
    }
}

/// Each check must have a unique name and exactly one kind.
fn checks(config: &Config, found: &mut Vec<Finding>) {
    let list = Path::of(&["worker", "checks"]);
    for (index, spec) in config.worker.checks.iter().enumerate() {
        let at = list.index(index);
        if BuiltInCheck::ALL.iter().any(|check| check.name() == spec.name) {
            let message = format!("{:?} is the name of a built-in check; expected another", spec.name);
            found.push(Finding::new(at.key("name"), message));
        }
        let kinds = spec.kinds().count();
        if kinds != 1 {
            let message =
                format!("{kinds} kinds are given; expected exactly one of {}", CheckSpec::KINDS.join(", "));
            found.push(Finding::new(at.clone(), message).related(CheckSpec::KINDS.map(|kind| at.key(kind))));
        }
    }
    repeated(config.worker.checks.iter().map(|spec| Some(spec.name.clone())), |index, first, name| {
        let message = format!("{name:?} is already the name of {}; expected another", list.index(first));
        found.push(Finding::new(list.index(index).key("name"), message));
    });
}

/// The problems for which the API server would reject a toleration.
fn toleration_problems(toleration: &Toleration) -> impl Iterator<Item = &'static str> {
    let exists = toleration.operator == Some(TolerationOperator::Exists);
    let valued = toleration.value.as_ref().is_some_and(|value| !value.is_empty());
    [
        (exists && valued, "the operator Exists takes no value; remove the value or use Equal"),
        (!exists && toleration.key.is_none(), "without a key the operator must be Exists"),
        (
            toleration.toleration_seconds.is_some() && toleration.effect != Some(Effect::NoExecute),
            "tolerationSeconds needs the effect NoExecute",
        ),
    ]
    .into_iter()
    .filter_map(|(wrong, message)| wrong.then_some(message))
}

fn taints(config: &Config, found: &mut Vec<Finding>) {
    let verification = config.node_management.taints.iter().enumerate();
    let list = Path::of(&["nodeManagement", "taints"]);
    let gates = config.gates.iter().enumerate();
    let all: Vec<(Path, &Taint)> = verification
        .map(|(index, taint)| (list.index(index), taint))
        .chain(gates.map(|(index, gate)| (Path::of(&["gates"]).index(index).key("taint"), &gate.taint)))
        .collect();
    let identity = |(_, taint): &(Path, &Taint)| Some((taint.key.clone(), taint.effect));
    repeated(all.iter().map(identity), |index, first, (key, effect)| {
        let (first, at) = (&all[first].0, all[index].0.clone());
        let message =
            format!("{key}:{effect} is already the taint of {first}; expected another key or effect");
        found.push(Finding::new(at, message).related([first.clone()]));
    });
    for (at, taint) in &all {
        if config.node_management.backfill && taint.effect == Effect::NoExecute {
            let message = "with nodeManagement.backfill a NoExecute taint evicts pods that were scheduled a moment ago; \
                           expected NoSchedule or PreferNoSchedule, or no backfill";
            let backfill = Path::of(&["nodeManagement", "backfill"]);
            found.push(Finding::new(at.key("effect"), message).related([backfill]));
        }
        if FOREIGN_TAINTS.iter().any(|prefix| taint.key.starts_with(prefix)) {
            let message = format!(
                "{} belongs to Kubernetes, which sets and removes it by its own rules; expected a key of your own",
                taint.key
            );
            found.push(Finding::new(at.key("key"), message));
        }
    }
}

fn gate_names(config: &Config, found: &mut Vec<Finding>) {
    let gates = Path::of(&["gates"]);
    for (index, gate) in config.gates.iter().enumerate() {
        if gate.name == names::VERIFICATION_GATE {
            let message = format!("{:?} is the name of the built-in gate; expected another", gate.name);
            found.push(Finding::new(gates.index(index).key("name"), message));
        }
    }
    repeated(config.gates.iter().map(|gate| Some(gate.name.clone())), |index, first, name| {
        let message = format!("{name:?} is already the name of gates[{first}]; expected another");
        found.push(Finding::new(gates.index(index).key("name"), message));
    });
}

fn annotations(config: &Config, found: &mut Vec<Finding>) {
    let at = |index| Path::of(&["gates"]).index(index).key("completedAnnotation");
    repeated(config.gates.iter().map(|gate| Some(gate.completed_annotation.clone())), |index, first, key| {
        let message = format!("gates[{first}] already writes the annotation {key}; expected another");
        found.push(Finding::new(at(index), message));
    });
    for (index, gate) in config.gates.iter().enumerate() {
        if [names::STATE_ANNOTATION, names::PAUSED_ANNOTATION].contains(&gate.completed_annotation.as_str()) {
            let message = format!("{} has a meaning of its own; expected another", gate.completed_annotation);
            found.push(Finding::new(at(index), message));
        }
    }
}

/// `after` must name existing gates, and no gate may wait for itself, directly or indirectly.
fn order(config: &Config, found: &mut Vec<Finding>) {
    let gates = Path::of(&["gates"]);
    let known: BTreeSet<&str> =
        config.gates.iter().map(|gate| gate.name.as_str()).chain([names::VERIFICATION_GATE]).collect();
    let written = config.gates.iter().enumerate().filter_map(|(index, gate)| {
        Some((gate.name.as_str(), gates.index(index).key("after"), gate.after.as_ref()?))
    });
    let verification = Path::of(&["nodeManagement", "after"]);
    let all = written.chain([(names::VERIFICATION_GATE, verification, &config.node_management.after)]);
    let mut reported: BTreeSet<&str> = BTreeSet::new();
    for (gate, list, after) in all {
        for (index, name) in after.iter().enumerate() {
            if !known.contains(name.as_str()) {
                let known = known.iter().copied().filter(|&other| other != gate).collect::<Vec<_>>();
                let message = if known.is_empty() {
                    format!("there is no gate {name:?}; the list gates is empty")
                } else {
                    format!("there is no gate {name:?}; expected one of {}", known.join(", "))
                };
                found.push(Finding::new(list.index(index), message).related([gates.clone()]));
            }
        }
        let Some(circle) = circle(config, gate) else { continue };
        // A cycle is reported once, not for every gate on it.
        if !reported.contains(gate) {
            let message =
                format!("{}; expected no circle: these gates could never open", circle.join(" waits for "));
            found.push(Finding::new(list, message).related([gates.clone()]));
        }
        reported.extend(circle);
    }
}

/// The shortest cycle through a gate, if there is one.
fn circle<'a>(config: &'a Config, gate: &'a str) -> Option<Vec<&'a str>> {
    let mut reached_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut frontier = vec![gate];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for from in frontier {
            for to in config.opens_after(from) {
                if to == gate {
                    return Some(way_back(gate, from, &reached_from));
                }
                if !reached_from.contains_key(to) {
                    reached_from.insert(to, from);
                    next.push(to);
                }
            }
        }
        frontier = next;
    }
    None
}

fn way_back<'a>(gate: &'a str, last: &'a str, reached_from: &BTreeMap<&'a str, &'a str>) -> Vec<&'a str> {
    let mut way = vec![gate, last];
    while let Some(&before) = way.last().and_then(|step| reached_from.get(step)) {
        way.push(before);
    }
    way.reverse();
    way
}

/// Calls `report` for every duplicate item, with its index, the index of the first occurrence, and the item.
fn repeated<T: Ord + Clone>(items: impl Iterator<Item = Option<T>>, mut report: impl FnMut(usize, usize, T)) {
    let mut first_at: BTreeMap<T, usize> = BTreeMap::new();
    for (index, item) in items.enumerate() {
        let Some(item) = item else { continue };
        match first_at.get(&item) {
            Some(&first) => report(index, first, item),
            None => drop(first_at.insert(item, index)),
        }
    }
}

#[cfg(test)]
mod tests;

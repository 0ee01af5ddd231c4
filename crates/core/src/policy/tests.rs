use super::*;
use crate::names;

fn policy(yaml: &str) -> Policy {
    Policy::from(&Config::parse(yaml).unwrap())
}

const TWO_GATES: &str = "gates: [{name: a, minimumHoldSeconds: 7}, \
    {name: b, podSelector: x=y, namespaces: [other], taint: {key: b, effect: NoSchedule}, completedAnnotation: c}]";

#[test]
fn the_gate_with_the_checks_comes_first_and_each_waits_for_the_one_before_it() {
    let policy = policy(TWO_GATES);
    let gates: Vec<(&str, &[String])> =
        policy.gates.iter().map(|gate| (gate.name.as_str(), gate.after.as_slice())).collect();
    let after_a = ["a".to_owned()];
    assert_eq!(gates, [(names::VERIFICATION_GATE, &[][..]), ("a", &[]), ("b", &after_a)]);
    assert_eq!(policy.checks_gate().map(|gate| gate.name.as_str()), Some(names::VERIFICATION_GATE));
    let keys: Vec<&str> = policy.taints().map(|taint| taint.key.as_str()).collect();
    assert_eq!(keys, [names::UNVERIFIED_TAINT, names::STARTUP_TAINT, "b"]);
}

#[test]
fn a_gate_selects_pods_by_namespace_and_labels() {
    let policy = policy(TWO_GATES);
    let [first, second] = policy.pod_requirements().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!(first.minimum_hold.as_secs(), 7);
    let labels = |key: &str, value: &str| Texts::from_iter([(key.to_owned(), value.to_owned())]);
    assert!(second.selects("other", &labels("x", "y")));
    assert!(!second.selects("kube-system", &labels("x", "y")));
    assert!(!second.selects("other", &labels("x", "z")));
}

#[test]
fn only_what_workers_check_changes_the_fingerprint() {
    let requires = |yaml: &str| policy(yaml).requires;
    for same in [
        "reconciliation: {maxRetries: 2}",
        "worker: {resources: {requests: {cpu: 10m}}}",
        "worker: {priorityClassName: high}",
        "worker: {pendingTimeoutSeconds: 60}",
        "worker: {tolerations: [{operator: Exists}]}",
    ] {
        assert_eq!(requires(""), requires(same), "{same}");
    }
    assert_ne!(requires(""), requires("worker: {image: {tag: other}}"));
    assert_ne!(requires(""), requires("worker: {command: [other]}"));
    assert_ne!(requires(""), requires("worker: {dnsTestDomains: [example.com]}"));
}

#[test]
fn policies_are_found_by_name() {
    let policies = Policies::from(&Config::default());
    assert!(policies.named(&DEFAULT.into()).is_some());
    assert!(policies.named(&"gpu".into()).is_none());
}

use super::*;

/// The problems of a file, each as path and message.
fn said(text: &str) -> Vec<String> {
    let problems = Config::parse(text).expect_err(text);
    problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
}

#[test]
fn one_check_fits_into_the_whole_run() {
    assert!(Config::parse("worker: {timeoutSeconds: 10}").is_ok());
    assert_eq!(
        said("worker: {timeoutSeconds: 100, checkTimeoutSeconds: 101}"),
        ["worker.checkTimeoutSeconds: worker.checkTimeoutSeconds is 101 and worker.timeoutSeconds is 100; \
          expected one check to take no longer than the whole run"]
    );
    // The problem is shown at the key that is in the file.
    assert!(said("worker: {timeoutSeconds: 9}")[0].starts_with("worker.timeoutSeconds: "));
}

#[test]
fn the_first_delay_fits_under_the_longest() {
    assert!(Config::parse("reconciliation: {retryDelaySeconds: 300}").is_ok());
    assert_eq!(
        said("reconciliation: {retryDelaySeconds: 301}"),
        ["reconciliation.retryDelaySeconds: reconciliation.retryDelaySeconds is 301 and \
          reconciliation.maxRetryDelaySeconds is 300; expected the first delay to be no longer than the longest"]
    );
}

#[test]
fn the_times_of_the_leader_are_in_order() {
    assert!(Config::parse("leaderElection: {retryPeriodSeconds: 9, leaseDurationSeconds: 11}").is_ok());
    assert_eq!(
        said("leaderElection: {renewDeadlineSeconds: 15}"),
        ["leaderElection.renewDeadlineSeconds: leaderElection.renewDeadlineSeconds is 15 and \
          leaderElection.leaseDurationSeconds is 15; expected the first to be less than the second"]
    );
    assert_eq!(said("leaderElection: {retryPeriodSeconds: 9, renewDeadlineSeconds: 9}").len(), 1);
    assert_eq!(said("leaderElection: {retryPeriodSeconds: 30, renewDeadlineSeconds: 20}").len(), 2);
}

#[test]
fn names_in_the_worker_pod_are_unique() {
    assert_eq!(
        said("worker: {volumes: [{name: a}, {name: b}, {name: a}]}"),
        [r#"worker.volumes[2].name: the name "a" is already that of worker.volumes[0]"#]
    );
    assert_eq!(
        said("worker: {initContainers: [{name: a, image: x}, {name: a, image: y}]}"),
        [r#"worker.initContainers[1].name: the name "a" is already that of worker.initContainers[0]"#]
    );
}

#[test]
fn raw_objects_have_what_kubernetes_needs() {
    assert_eq!(
        said("worker: {initContainers: [{name: a}, {image: b}, {name: c, image: ''}, d]}"),
        [
            r#"worker.initContainers[0]: the key "image" is missing"#,
            r#"worker.initContainers[1]: the key "name" is missing"#,
            "worker.initContainers[2].image: the text is empty",
            r#"worker.initContainers[3]: expected a mapping, found the text "d""#,
        ]
    );
    assert_eq!(
        said("worker: {volumes: [{emptyDir: {}}]}"),
        [r#"worker.volumes[0]: the key "name" is missing"#]
    );
}

#[test]
fn mounts_name_volumes() {
    let mount = |name: &str| {
        format!("worker: {{volumes: [{{name: a}}], volumeMounts: [{{name: {name}, mountPath: /x}}]}}")
    };
    assert!(Config::parse(&mount("a")).is_ok());
    assert_eq!(
        said(&mount("b")),
        [r#"worker.volumeMounts[0].name: there is no volume "b" in worker.volumes"#]
    );
    assert_eq!(
        said("worker: {volumes: [{name: a}], volumeMounts: [{name: a}, {name: a, mountPath: x}]}"),
        [
            r#"worker.volumeMounts[0]: the key "mountPath" is missing"#,
            r#"worker.volumeMounts[1].mountPath: "x" is not valid; expected a path that starts with /"#,
        ]
    );
}

#[test]
fn checks_have_names_of_their_own() {
    assert_eq!(
        said("worker: {checks: [{name: dns, mtu: {}}, {name: a, mtu: {}}, {name: a, file: {path: /a}}]}"),
        [
            r#"worker.checks[0].name: "dns" is the name of a built-in check; expected another"#,
            r#"worker.checks[2].name: "a" is already the name of worker.checks[1]; expected another"#,
        ]
    );
    assert_eq!(said("worker: {checks: [{mtu: {}}]}"), [r#"worker.checks[0]: the key "name" is missing"#]);
}

#[test]
fn a_check_is_of_one_kind() {
    let none = "worker.checks[0]: 0 kinds are given; expected exactly one of tcp, http, file, mtu";
    assert_eq!(said("worker: {checks: [{name: a}]}"), [none]);
    // An empty value counts as no value.
    assert!(
        said("worker: {checks: [{name: a, mtu: }]}")[0]
            .ends_with("expected exactly one of tcp, http, file, mtu")
    );
    assert_eq!(
        said("worker: {checks: [{name: a, mtu: {}, file: {path: /a}}]}"),
        ["worker.checks[0]: 2 kinds are given; expected exactly one of tcp, http, file, mtu"]
    );
    assert_eq!(
        said("worker: {checks: [{name: a, ping: {}}]}"),
        [none, "worker.checks[0].ping: unknown key; expected one of name, tcp, http, file, mtu"]
    );
}

#[test]
fn what_is_checked_has_its_form() {
    assert_eq!(
        said(
            "worker: {services: [kube-dns], skipChecks: [dsn], checks: [{name: a, tcp: {address: a}}, \
             {name: b, http: {url: a, status: 99}}, {name: c, http: {}}, {name: d, mtu: {url: 5}}]}"
        ),
        [
            r#"worker.services[0]: "kube-dns" is not valid; expected a namespace and a name, such as kube-system/kube-dns"#,
            r#"worker.skipChecks[0]: "dsn" is not a built in check; expected one of dns, kubernetes, network, services; did you mean dns?"#,
            r#"worker.checks[0].tcp.address: "a" is not valid; expected a host and a port, such as example.com:443 or [2001:db8::1]:443"#,
            r#"worker.checks[1].http.url: "a" is not valid; expected an address that starts with http:// or https://, without a user and with special characters escaped"#,
            "worker.checks[1].http.status: 99 is out of range; expected 100 to 599",
            r#"worker.checks[2].http: the key "url" is missing"#,
            "worker.checks[3].mtu.url: expected text, found the number 5: put it in quotes",
        ]
    );
}

#[test]
fn a_request_fits_under_its_limit() {
    assert!(Config::parse("worker: {resources: {requests: {cpu: '1'}, limits: {cpu: 1000m}}}").is_ok());
    assert_eq!(
        said("worker: {resources: {requests: {memory: 129Mi}}}"),
        ["worker.resources.requests.memory: the request of 129Mi is more than the limit of 128Mi"]
    );
    assert_eq!(
        said("worker: {resources: {limits: {memory: 64 MB}}}"),
        [
            r#"worker.resources.limits.memory: "64 MB" is not valid; expected a Kubernetes quantity, such as 50m, 1.5 or 64Mi"#
        ]
    );
}

#[test]
fn tolerations_are_such_as_the_api_server_takes() {
    assert!(
        Config::parse("worker: {tolerations: [{operator: Exists}, {key: a, value: b}, {key: a}]}").is_ok()
    );
    assert_eq!(
        said(
            "worker: {tolerations: [{}, {key: a, operator: Exists, value: b}, {key: a, tolerationSeconds: 1}, \
             {key: a, effect: NoExecute, tolerationSeconds: 1}]}"
        ),
        [
            "worker.tolerations[0]: without a key the operator must be Exists",
            "worker.tolerations[1]: the operator Exists takes no value; remove the value or use Equal",
            "worker.tolerations[2]: tolerationSeconds needs the effect NoExecute",
        ]
    );
}

#[test]
fn the_verification_gate_has_a_taint() {
    assert_eq!(
        said("nodeManagement: {taints: []}"),
        ["nodeManagement.taints: the list is empty; expected at least one item"]
    );
}

#[test]
fn no_two_gates_share_a_taint() {
    let other_effect =
        "nodeManagement: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoExecute}]}";
    assert!(Config::parse(other_effect).is_ok());
    assert_eq!(
        said(
            "nodeManagement: {taints: [{key: a, effect: NoExecute}, {key: a, value: b, effect: NoExecute}]}"
        ),
        ["nodeManagement.taints[1]: a:NoExecute is already the taint of nodeManagement.taints[0]; \
          expected another key or effect"]
    );
    assert_eq!(
        said("gates: [{taint: {key: node-ready/unverified, effect: NoSchedule}}]"),
        [
            "gates[0].taint: node-ready/unverified:NoSchedule is already the taint of nodeManagement.taints[0]; \
          expected another key or effect"
        ]
    );
    assert_eq!(
        said("gates: [{}, {name: b, completedAnnotation: b}]"),
        ["gates[1].taint: startup.k8s.io/initializing:NoSchedule is already the taint of gates[0].taint; \
          expected another key or effect"]
    );
}

#[test]
fn backfill_never_evicts() {
    let no_schedule = "nodeManagement: {backfill: true}\ngates: [{}]";
    assert!(Config::parse(no_schedule).is_ok());
    assert!(Config::parse("nodeManagement: {taints: [{key: a, effect: NoExecute}]}").is_ok());
    let remedy = "with nodeManagement.backfill a NoExecute taint evicts pods that were scheduled a moment ago; \
                  expected NoSchedule or PreferNoSchedule, or no backfill";
    assert_eq!(
        said(
            "nodeManagement: {backfill: true, taints: [{key: a, effect: NoSchedule}, {key: b, effect: NoExecute}]}"
        ),
        [format!("nodeManagement.taints[1].effect: {remedy}")]
    );
    assert_eq!(
        said("nodeManagement: {backfill: true}\ngates: [{taint: {key: c, effect: NoExecute}}]"),
        [format!("gates[0].taint.effect: {remedy}")]
    );
}

#[test]
fn taints_of_kubernetes_are_not_ours() {
    assert_eq!(
        said("gates: [{taint: {key: node.kubernetes.io/not-ready, effect: NoSchedule}}]"),
        [
            "gates[0].taint.key: node.kubernetes.io/not-ready belongs to Kubernetes, which sets and removes it by its \
          own rules; expected a key of your own"
        ]
    );
    for key in ["node-role.kubernetes.io/control-plane", "node.cloudprovider.kubernetes.io/uninitialized"] {
        assert_eq!(
            said(&format!("nodeManagement: {{taints: [{{key: {key}, effect: NoSchedule}}]}}")).len(),
            1
        );
    }
}

#[test]
fn gates_have_names_of_their_own() {
    assert_eq!(
        said("gates: [{name: verification}]"),
        [r#"gates[0].name: "verification" is the name of the built-in gate; expected another"#]
    );
    assert_eq!(
        said("gates: [{}, {taint: {key: b, effect: NoSchedule}, completedAnnotation: b, after: []}]"),
        [r#"gates[1].name: "startup" is already the name of gates[0]; expected another"#]
    );
    assert_eq!(said("gates: [{name: A.b}]").len(), 1);
    assert_eq!(
        said("gates: [{namespaces: []}]"),
        ["gates[0].namespaces: the list is empty; expected at least one item"]
    );
}

#[test]
fn gates_write_annotations_of_their_own() {
    assert_eq!(
        said("gates: [{}, {name: b, taint: {key: b, effect: NoSchedule}}]"),
        [
            "gates[1].completedAnnotation: gates[0] already writes the annotation startup.k8s.io/completedAt; expected another"
        ]
    );
    assert_eq!(
        said("gates: [{completedAnnotation: node-ready/state}]"),
        ["gates[0].completedAnnotation: node-ready/state has a meaning of its own; expected another"]
    );
}

#[test]
fn after_names_gates() {
    assert_eq!(
        said("nodeManagement: {after: [x]}"),
        [r#"nodeManagement.after[0]: there is no gate "x"; the list gates is empty"#]
    );
    assert_eq!(
        said("nodeManagement: {after: [startup, x]}\ngates: [{after: [y]}]"),
        [
            r#"nodeManagement.after[1]: there is no gate "x"; expected one of startup"#,
            r#"gates[0].after[0]: there is no gate "y"; expected one of verification"#,
        ]
    );
}

#[test]
fn gates_do_not_wait_in_a_circle() {
    assert_eq!(
        said("nodeManagement: {after: [verification]}"),
        [
            "nodeManagement.after: verification waits for verification; expected no circle: these gates could never open"
        ]
    );
    let gate = |name: &str, after: &str| {
        format!(
            "- {{name: {name}, taint: {{key: {name}, effect: NoSchedule}}, completedAnnotation: {name}{after}}}\n"
        )
    };
    let gates = |list: &[(&str, &str)]| {
        let list: String = list.iter().map(|(name, after)| gate(name, after)).collect();
        format!("gates:\n{list}")
    };
    assert_eq!(
        said(&gates(&[("a", ", after: [c]"), ("b", ""), ("c", "")])),
        [
            "gates[0].after: a waits for c waits for b waits for a; expected no circle: these gates could never open"
        ]
    );
    let with_verification = gates(&[("a", ", after: [verification]")]);
    assert_eq!(
        said(&format!("nodeManagement: {{after: [a]}}\n{with_verification}")),
        [
            "gates[0].after: a waits for verification waits for a; expected no circle: these gates could never open"
        ]
    );
    // A gate that waits for a cycle is not part of it, and a diamond is not a cycle.
    assert_eq!(said(&gates(&[("a", ", after: [a]"), ("b", "")])).len(), 1);
    assert!(
        Config::parse(&gates(&[("a", ""), ("b", ""), ("c", ", after: [a]"), ("d", ", after: [b, c]")]))
            .is_ok()
    );
}

#[test]
fn selectors_are_checked() {
    assert_eq!(
        said("nodeManagement: {exclude: [a in b]}\ngates: [{podSelector: ''}]"),
        [
            "nodeManagement.exclude[0]: \"a in b\" is not a label selector: \"a in b\" is not the key of a label; \
             expected a form such as a=b,c!=d,e in (f,g),!h",
            "gates[0].podSelector: \"\" is not a label selector: an empty selector would match everything; \
             expected a form such as a=b,c!=d,e in (f,g),!h",
        ]
    );
}

//! The problems that parsing a file reports, with their locations.

use serde_json::Value as Json;

use super::*;

fn said(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn an_empty_file_is_the_default() {
    for text in ["", "\n", "# nothing\n", "---\n", "{}\n", "worker:\nnodeManagement:\n  verifiedLabel:\n"] {
        assert_eq!(Config::parse(text), Ok(Config::default()), "{text:?}");
    }
}

#[test]
fn the_default_keeps_its_own_rules() {
    let json = serde_json::to_string_pretty(&Config::default()).unwrap();
    assert_eq!(Config::parse(&json), Ok(Config::default()));
}

#[test]
fn a_file_with_everything_survives_a_round_trip() {
    let config = Config::parse(include_str!("tests/full.yaml")).unwrap();
    assert_eq!(config.worker.image.tag, "1.10");
    assert_eq!(config.worker.init_containers[0]["args"][0], "--deep");
    assert_eq!(config.worker.tolerations[0].toleration_seconds, Some(60));
    assert_eq!(config.worker.checks[1].http.as_ref().and_then(|http| http.status), Some(204));
    assert_eq!(config.worker.check_plan().skip_checks, [BuiltInCheck::Network, BuiltInCheck::Services]);
    assert_eq!(config.node_management.on_reboot, OnReboot::Close);
    assert_eq!(config.node_management.taints[1].to_string(), "example.com/new=:NoExecute");
    assert_eq!(config.opens_after("startup"), [""; 0]);
    assert_eq!(config.opens_after("storage"), ["startup"]);
    assert_eq!(config.opens_after("late"), ["verification", "startup"]);
    assert_eq!(config.opens_after(names::VERIFICATION_GATE), ["startup"]);
    assert_eq!(config.opens_after("unknown"), [""; 0]);
    let again = Config::parse(&serde_json::to_string(&config).unwrap());
    assert_eq!(again, Ok(config));
}

#[test]
fn everything_wrong_is_reported_at_once_in_file_order() {
    let problems = Config::parse(include_str!("tests/broken.yaml")).unwrap_err();
    assert_eq!(problems.to_string(), include_str!("tests/broken.txt").trim_end());
    assert!((&problems).into_iter().eq(problems.iter()) && problems.iter().len() > 1);
}

#[test]
fn syntax_errors_have_a_place() {
    let cases = [
        ("worker:\n  timeoutSeconds: [1\n", "line 2, column 19: not valid YAML: unclosed bracket '['"),
        ("a: b: c\n", "line 1, column 5: not valid YAML: mapping values are not allowed in this context"),
        ("worker: *nobody\n", "line 1, column 9: not valid YAML: reference to unknown value"),
        ("worker: {<<: {}}\n", "line 1, column 10: not valid YAML: merge key not allowed here"),
        ("worker: {image: \"a\n", "line 1, column 17: not valid YAML: unclosed quote"),
        ("worker: {image: .inf}\n", "line 1, column 17: not valid YAML: value `.inf` is not a finite number"),
        (
            "metrics: {}\n---\nhealth: {}\n",
            "line 3, column 1: not valid YAML: only single YAML document expected but multiple found",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(said(text), expected, "{text:?}");
    }
}

#[test]
fn the_top_must_be_a_mapping() {
    assert_eq!(said("- a\n"), "line 1, column 1: expected a mapping, found a list");
    assert_eq!(said("hello\n"), r#"line 1, column 1: expected a mapping, found the text "hello""#);
}

#[test]
fn size_and_repetition_are_bounded() {
    let large = format!("# {}\n", "x".repeat(1024 * 1024));
    assert_eq!(said(&large), "the file has 1048579 bytes; expected at most 1048576");
    let tenfold = |level: usize| format!("a{}: &a{0} [{}]\n", level + 1, format!("*a{level}, ").repeat(10));
    let bomb = format!("a0: &a0 [x]\n{}", (0..12).map(tenfold).collect::<Vec<_>>().concat());
    assert!(
        said(&bomb).contains("not valid YAML: YAML document too large or too complex"),
        "{}",
        said(&bomb)
    );
    for depth in [100, 10_000] {
        let deep = format!("worker: {}{}\n", "[".repeat(depth), "]".repeat(depth));
        assert!(said(&deep).contains("not valid YAML"), "{}", said(&deep));
    }
}

#[test]
fn the_greatest_size_itself_still_fits() {
    let comment = format!("#{}\n", "x".repeat(1024 * 1024 - 2));
    assert_eq!((comment.len(), Config::parse(&comment)), (1024 * 1024, Ok(Config::default())));
}

#[test]
fn times_are_seconds() {
    let config = Config::parse(
        "worker: {timeoutSeconds: 101, pendingTimeoutSeconds: 102, checkTimeoutSeconds: 7}\n\
         leaderElection: {leaseDurationSeconds: 33, renewDeadlineSeconds: 22, retryPeriodSeconds: 11}\n\
         kubernetes: {requestTimeoutSeconds: 13}\n\
         reconciliation: {intervalSeconds: 17}\n",
    )
    .unwrap();
    let (worker, leader) = (&config.worker, &config.leader_election);
    let waits = [
        worker.timeout(),
        worker.pending_timeout(),
        worker.check_timeout(),
        config.reconciliation.interval(),
    ];
    assert_eq!(waits.map(|wait| wait.as_secs()), [101, 102, 7, 17]);
    let limits = [
        leader.lease_duration(),
        leader.renew_deadline(),
        leader.retry_period(),
        config.kubernetes.request_timeout(),
    ];
    assert_eq!(limits.map(|limit| limit.as_secs()), [33, 22, 11, 13]);
}

#[test]
fn aliases_point_at_their_use() {
    assert_eq!(
        said("metrics: {port: &port 0}\nhealth:\n  port: *port\n"),
        "line 1, column 23: metrics.port: 0 is out of range; expected 1 to 65535\n\
         line 3, column 9: health.port: 0 is out of range; expected 1 to 65535"
    );
}

#[test]
fn wrong_types_say_how_to_mend_them() {
    let cases = [
        (
            "reconciliation: {maxRetries: '30'}",
            r#"expected a whole number, found the text "30": remove the quotes"#,
        ),
        (
            "reconciliation: {intervalSeconds: 30s}",
            r#"expected a whole number, found the text "30s": write the number of seconds alone, without a unit"#,
        ),
        ("reconciliation: {maxRetries: 1.50}", "expected a whole number, found the number 1.50"),
        ("reconciliation: {maxRetries: [1]}", "expected a whole number, found a list"),
        ("reconciliation: {maxRetries: {}}", "expected a whole number, found a mapping"),
        ("reconciliation: {maxRetries: -1}", "-1 is out of range; expected 1 to 100"),
        (
            "reconciliation: {maxRetries: 99999999999999999999999}",
            "99999999999999999999999 is out of range; expected 1 to 100",
        ),
        (
            "reconciliation: {paused: 'true'}",
            r#"expected true or false, found the text "true": remove the quotes"#,
        ),
        ("reconciliation: {paused: yes}", r#"expected true or false, found the text "yes""#),
        ("reconciliation: {paused: 1}", "expected true or false, found the number 1"),
        ("worker: {image: {tag: 1.10}}", "expected text, found the number 1.10: put it in quotes"),
        ("nodeManagement: {verifiedLabel: {value: true}}", "expected text, found true: put it in quotes"),
        ("worker: {namespace: }", "expected text, found nothing: give it a value or remove the key"),
        ("nodeManagement: {exclude: }", "expected a list, found nothing: give it a value or remove the key"),
        (
            "nodeManagement: {exclude: a=b}",
            r#"expected a list, found the text "a=b": write each item on a line of its own after "- ""#,
        ),
        ("logging: {level: 3}", "expected one of trace, debug, info, warn, error, found the number 3"),
        (
            "worker: {tolerations: [{operator: Exists, key: 5}]}",
            "expected text, found the number 5: put it in quotes",
        ),
        (
            "worker: {tolerations: [{key: a, effect: NoExecute, tolerationSeconds: '60'}]}",
            r#"expected a whole number, found the text "60": remove the quotes"#,
        ),
        ("worker: {image: busybox}", r#"expected a mapping, found the text "busybox""#),
    ];
    for (text, expected) in cases {
        let problems = Config::parse(text).unwrap_err();
        let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(messages, [expected], "{text}");
    }
}

#[test]
fn an_optional_key_may_be_left_empty() {
    let config =
        Config::parse("worker: {tolerations: [{key: a, operator: , value: , effect: null}]}").unwrap();
    assert_eq!(
        config.worker.tolerations,
        [Toleration { key: Some("a".to_owned()), ..Toleration::default() }]
    );
}

#[test]
fn a_key_that_was_not_written_has_the_place_of_what_would_contain_it() {
    let tree = tree::read("worker:\n  image: {}\ngates:\n  - {}\n").unwrap();
    let place = |path| tree.nearest(&path::Path::parse(path)).map(|place| (place.line, place.column));
    assert_eq!(place("worker.image.tag"), Some((2, 3)));
    assert_eq!(place("worker.resources.limits"), Some((1, 1)));
    assert_eq!(place("gates[0].name"), Some((4, 5)));
    assert_eq!(place("metrics.port"), Some((1, 1)));
}

#[test]
fn unknown_keys_get_the_best_hint() {
    assert_eq!(
        said("worker:\n  timeoutSecond: 5\n"),
        "line 2, column 3: worker.timeoutSecond: unknown key; did you mean timeoutSeconds?"
    );
    assert_eq!(
        said("deleteFailedNodes: true\n"),
        "line 1, column 1: deleteFailedNodes: unknown key; did you mean nodeManagement.deleteFailedNodes?"
    );
    assert_eq!(
        said("health: {colour: red}\n"),
        "line 1, column 10: health.colour: unknown key; expected one of port"
    );
}

#[test]
fn a_key_given_twice_is_reported_even_in_raw_objects() {
    assert_eq!(
        said("metrics: {port: 1}\nhealth: {port: 2}\nmetrics: {port: 3}\n"),
        "line 3, column 1: metrics: this key was already given on line 1; keep one of the two"
    );
    assert_eq!(
        said("worker:\n  volumes:\n  - name: a\n    hostPath:\n      path: /a\n      path: /b\n"),
        "line 6, column 7: worker.volumes[0].hostPath.path: this key was already given on line 5; keep one of the two"
    );
}

#[test]
fn what_does_not_fit_does_not_hide_what_breaks_a_rule() {
    assert_eq!(
        said("worker: {timeoutSeconds: 5, placement: here}\nleaderElection: {retryPeriodSeconds: 10}\n"),
        "line 1, column 26: worker.timeoutSeconds: worker.checkTimeoutSeconds is 10 and worker.timeoutSeconds is 5; \
         expected one check to take no longer than the whole run\n\
         line 1, column 40: worker.placement: \"here\" is not a placement; expected one of direct, scheduler\n\
         line 2, column 38: leaderElection.retryPeriodSeconds: leaderElection.retryPeriodSeconds is 10 and \
         leaderElection.renewDeadlineSeconds is 10; expected the first to be less than the second"
    );
    assert_eq!(
        said("nodeManagement: {taints: [{key: node.kubernetes.io/a, effect: NoSchedule, value: [b]}]}\n"),
        "line 1, column 33: nodeManagement.taints[0].key: node.kubernetes.io/a belongs to Kubernetes, which sets and \
         removes it by its own rules; expected a key of your own\n\
         line 1, column 82: nodeManagement.taints[0].value: expected text, found a list"
    );
}

#[test]
fn rules_are_silent_about_what_was_left_out() {
    // If the default of 10 seconds replaced the invalid value, the rule about the two timeouts would report a problem.
    assert_eq!(
        said("worker: {timeoutSeconds: 5, checkTimeoutSeconds: x}\n"),
        "line 1, column 50: worker.checkTimeoutSeconds: expected a whole number, found the text \"x\""
    );
    // The gate exists, although it is invalid, so `after` may name it.
    assert_eq!(
        said("nodeManagement: {after: [a]}\ngates: [{name: a, annotationOnly: 1, taint: {key: x}}]\n"),
        "line 2, column 35: gates[0].annotationOnly: expected true or false, found the number 1\n\
         line 2, column 45: gates[0].taint: the key \"effect\" is missing"
    );
}

/// Calls `visit` for the schema and every schema in it.
fn every_schema(schema: &Json, visit: &mut impl FnMut(&Json)) {
    visit(schema);
    match schema {
        Json::Object(map) => {
            map.iter().filter(|(key, _)| *key != "default").for_each(|(_, inner)| every_schema(inner, visit));
        }
        Json::Array(items) => items.iter().for_each(|inner| every_schema(inner, visit)),
        _ => {}
    }
}

#[test]
fn the_schema_says_nothing_that_the_checks_do_not_know() {
    const KNOWN: [&str; 6] = ["object", "array", "string", "integer", "boolean", "null"];
    every_schema(&Config::schema(), &mut |schema| {
        if let Some(pattern) = schema["pattern"].as_str() {
            assert!(format::ALL.iter().any(|format| format.pattern == pattern), "{pattern}");
        }
        let types: Vec<&str> = match &schema["type"] {
            Json::String(name) => vec![name],
            Json::Array(names) => names.iter().filter_map(Json::as_str).collect(),
            _ => Vec::new(),
        };
        assert!(types.iter().all(|name| KNOWN.contains(name)), "{types:?}");
        if types.contains(&"integer") {
            assert!(schema["minimum"].is_i64() && schema["maximum"].is_i64(), "no bounds: {schema}");
        }
        for keyword in ["allOf", "not", "if", "enum", "maxItems", "maxLength", "uniqueItems", "multipleOf"] {
            assert!(schema.get(keyword).is_none(), "{keyword} in {schema}");
        }
    });
}

#[test]
fn every_key_says_what_it_does() {
    every_schema(&Config::schema(), &mut |schema| {
        if schema["additionalProperties"] == false {
            for (key, property) in schema["properties"].as_object().unwrap() {
                assert!(property["description"].is_string(), "{key} has no description");
            }
        }
    });
}

#[test]
fn a_file_that_ends_too_early_is_read_without_a_panic() {
    let text = include_str!("tests/full.yaml");
    for end in (0..text.len()).step_by(7) {
        if let Err(problems) = Config::parse(&text[..end]) {
            let all_have_a_place = problems.iter().all(|problem| problem.location.is_some());
            assert!(all_have_a_place, "{problems}\n---\n{}", &text[..end]);
        }
    }
}

//! Tests that the Helm chart agrees with the program wherever it repeats it.

use std::fs;
use std::path::{Path, PathBuf};

use knr_core::config::Config;
use knr_core::names;
use serde_json::{Map, Value};

fn chart(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/kube-node-ready").join(path)
}

fn text_of(path: &str) -> String {
    fs::read_to_string(chart(path)).unwrap()
}

/// The `$defs` that the schema of the values must contain: those of the configuration, with its root as `Config`.
fn definitions() -> Value {
    let schema = Config::schema();
    // These keys belong to a schema file of its own.
    let is_of_file = |key: &String| ["$schema", "title", "$defs"].contains(&key.as_str());
    let root: Map<String, Value> = entries(&schema).filter(|(key, _)| !is_of_file(key)).collect();
    let config = ("Config".to_owned(), Value::Object(root));
    Value::Object(std::iter::once(config).chain(entries(&schema["$defs"])).collect())
}

fn entries(object: &Value) -> impl Iterator<Item = (String, Value)> {
    object.as_object().unwrap().clone().into_iter()
}

#[test]
fn the_schema_of_the_configuration_in_that_of_the_values_is_up_to_date() {
    let mut schema: Value = serde_json::from_str(&text_of("values.schema.json")).unwrap();
    schema["$defs"] = definitions();
    let text = format!("{schema:#}\n");
    // `make generate` sets it.
    if std::env::var_os("GENERATE").is_some() {
        return fs::write(chart("values.schema.json"), text).unwrap();
    }
    assert!(
        text_of("values.schema.json") == text,
        "values.schema.json is not up to date: run `make generate` and commit it"
    );
}

#[test]
fn program_image_and_chart_have_one_version() {
    let about: Value = serde_saphyr::from_str(&text_of("Chart.yaml")).unwrap();
    for key in ["version", "appVersion"] {
        assert_eq!(about[key], env!("CARGO_PKG_VERSION"), "{key} in Chart.yaml");
    }
}

/// All names of this project that a text contains.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && !"./-_".contains(c)).filter(|word| {
        ["node-ready/", "startup.k8s.io/", "node-role.kubernetes.io/", "NodeReady"]
            .iter()
            .any(|beginning| word.starts_with(beginning))
    })
}

#[test]
fn names_in_the_chart_are_those_of_the_program() {
    let ours = include_str!("../../../core/src/names.rs");
    let templates = fs::read_dir(chart("templates")).unwrap().map(|entry| entry.unwrap().path());
    let mut count = 0;
    for file in templates.chain([chart("values.yaml")]) {
        let text = fs::read_to_string(&file).unwrap();
        for name in names_in(&text) {
            assert!(
                ours.contains(&format!("{name:?}")),
                "{}: the program has no name {name}",
                file.display()
            );
            count += 1;
        }
    }
    assert!(count > 5, "only {count} names were found");
}

#[test]
fn the_network_policy_is_about_our_workers() {
    let policy = text_of("templates/networkpolicy.yaml");
    let ([(name, ours), (component, worker)], [_, (_, trial)]) = (names::WORKER_LABELS, names::TRIAL_LABELS);
    for part in [
        format!("{name}: {ours}\n"),
        format!("{{key: {component}, operator: In, values: [{worker}, {trial}]}}"),
    ] {
        assert!(policy.contains(&part), "{part}");
    }
}

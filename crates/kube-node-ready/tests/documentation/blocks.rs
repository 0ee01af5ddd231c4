//! Blocks of YAML and JSON: configuration, values of the chart, and Kubernetes objects.

use std::collections::BTreeSet;

use knr_core::config::Config;
use serde_json::Value;

use crate::page::{Block, Page};
use crate::schema::Values;

/// Everything that YAML is checked against.
pub(crate) struct Readers {
    config: BTreeSet<String>,
    values: Values,
}

impl Readers {
    pub(crate) fn new() -> Self {
        let schema: Value = serde_json::from_str(&crate::read("docs/config.schema.json")).unwrap();
        let config = schema["properties"].as_object().unwrap().keys().cloned().collect();
        Self { config, values: Values::new() }
    }

    /// Finds the blocks of a page that are invalid in their language.
    pub(crate) fn wrong(&self, page: &Page) -> Vec<String> {
        let blocks = &page.blocks;
        let following = blocks.iter().skip(1).map(Some).chain([None]);
        let check = |(block, next): (&Block, Option<&Block>)| {
            let why = match block.language.as_str() {
                "yaml" => self.wrong_yaml(&block.text, next),
                "json" => serde_json::from_str::<Value>(&block.text).err().map(|error| error.to_string()),
                "sh" | "text" => None,
                other => Some(format!("nobody checks blocks of {other:?}: use sh, yaml, json or text")),
            };
            why.map(|why| format!("block in line {}: {why}", block.line))
        };
        blocks.iter().zip(following).filter_map(check).collect()
    }

    /// Finds the first mistake in YAML. Its keys determine what it is checked against. A configuration that is followed
    /// by its mistakes must have exactly those.
    pub(crate) fn wrong_yaml(&self, text: &str, next: Option<&Block>) -> Option<String> {
        let documents: Vec<Value> = match serde_saphyr::from_multiple(text) {
            Ok(documents) => documents,
            Err(error) => return Some(error.to_string()),
        };
        documents.iter().find_map(|document| {
            let keys: Vec<&String> = document.as_object()?.keys().collect();
            if document.get("apiVersion").is_some() && document.get("kind").is_some() {
                return None;
            }
            if keys.iter().any(|key| self.config.contains(*key)) {
                let mistakes = next.filter(|next| next.language == "text" && next.text.starts_with("line "));
                return wrong_config(text, mistakes.map(|next| next.text.as_str()));
            }
            self.values.wrong(document)
        })
    }
}

fn wrong_config(text: &str, mistakes: Option<&str>) -> Option<String> {
    match (Config::parse(text), mistakes) {
        (Ok(_), None) => None,
        (Ok(_), Some(_)) => Some("this configuration has none of the mistakes that follow".to_owned()),
        (Err(problems), None) => Some(problems.to_string()),
        (Err(problems), Some(expected)) => {
            (problems.to_string().trim() != expected.trim()).then(|| format!("the mistakes are: {problems}"))
        }
    }
}

#[cfg(test)]
fn found(text: &str) -> Vec<String> {
    Readers::new().wrong(&crate::sample(text))
}

#[test]
fn what_is_no_yaml_or_json_is_found() {
    assert_eq!(found("```yaml\na: [\n```\n```json\n{\n```\n```go\n```\n").len(), 3);
}

#[test]
fn mistakes_in_a_configuration_are_found() {
    assert!(found("```yaml\nworker: {retries: 1}\n```\n").is_empty());
    assert!(found("```yaml\nworker: {retires: 1}\n```\n")[0].contains("retires"));
    let announced = "```yaml\nworker: {retires: 1}\n```\n```text\nline 1, column 10: worker.retires: unknown key; did you mean retries?\n```\n";
    assert!(found(announced).is_empty(), "{:?}", found(announced));
    assert_eq!(found(&announced.replace("{retires", "{retries")).len(), 1);
    assert_eq!(found(&announced.replace("column 10", "column 11")).len(), 1);
}

#[test]
fn mistakes_in_values_of_the_chart_are_found() {
    assert!(
        found("```yaml\ncontroller: {replicas: 1, config: {worker: {retries: 1}}}\nuninstall: keep\n```\n")
            .is_empty()
    );
    for wrong in [
        "controler: {replicas: 1}",
        "controller: {replica: 1}",
        "controller: {config: {worker: {retires: 1}}}",
        "config: {taintkey: a/b}",
        "nodeManagment: {backfill: true}",
    ] {
        assert_eq!(found(&format!("```yaml\n{wrong}\n```\n")).len(), 1, "{wrong}");
    }
}

#[test]
fn objects_of_kubernetes_need_not_be_known() {
    assert!(
        found("```yaml\napiVersion: v1\nkind: Thing\nmetadata: {name: a}\n---\n- a list\n```\n").is_empty()
    );
}

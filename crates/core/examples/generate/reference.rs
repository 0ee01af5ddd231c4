//! The reference of the configuration, generated from the schema and the defaults.

use std::fmt::Write as _;

use knr_core::config::{Config, variables};
use serde_json::Value;

use super::{failures, yaml};

const INTRODUCTION: &str = include_str!("introduction.md");
const CAUTIOUS: &str = include_str!("cautious.md");
const BROKEN: &str = include_str!("broken.yaml");

/// The generated files: their names in `docs/` and their contents.
pub(crate) fn files() -> [(&'static str, String); 3] {
    [
        ("config.schema.json", format!("{:#}\n", Config::schema())),
        ("config.md", reference()),
        ("failures.md", failures::page()),
    ]
}

/// The default configuration as a file.
pub(crate) fn default_file() -> String {
    serde_json::to_value(Config::default())
        .map_or_else(|error| error.to_string(), |value| yaml::write(&value))
}

fn reference() -> String {
    let schema = Config::schema();
    let mut text = INTRODUCTION.to_owned();
    for (section, property) in schema["properties"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "\n## {section}\n\n{}\n", prose(property));
        text.push_str("| Key | Value | Default | Meaning |\n| --- | --- | --- | --- |\n");
        match item_of(property) {
            Some(item) => rows(&schema, item, &format!("{section}[]."), &mut text),
            None => rows(&schema, property, &format!("{section}."), &mut text),
        }
    }
    let whole = format!("\n## The whole file with its defaults\n\n```yaml\n{}```\n\n", default_file());
    [text, environment(), whole, CAUTIOUS.to_owned(), errors()].concat()
}

/// Writes one row for each key of a mapping, followed by the rows of its nested keys.
fn rows(schema: &Value, holder: &Value, prefix: &str, text: &mut String) {
    let holder = resolve(schema, holder);
    for (key, property) in holder["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{key}");
        let is_required =
            holder["required"].as_array().is_some_and(|required| required.iter().any(|name| name == key));
        let contents = contents(schema, property);
        let default = match contents {
            _ if is_required => "required".to_owned(),
            Some(_) if property["anyOf"].is_array() => "absent".to_owned(),
            // Each nested key has its own default, so there is none for the whole.
            Some(inner) if inner.get("required").is_none() && item_of(property).is_none() => String::new(),
            _ => default(&property["default"]),
        };
        let (values, meaning) = (values(schema, property), meaning(schema, property));
        let _ = writeln!(text, "| `{path}` | {values} | {default} | {meaning} |");
        match (contents, item_of(property)) {
            (Some(contents), Some(_)) => rows(schema, contents, &format!("{path}[]."), text),
            (Some(contents), None) => rows(schema, contents, &format!("{path}."), text),
            (None, _) => {}
        }
    }
}

/// The mapping of known keys that a key contains, directly or in a list.
fn contents<'a>(schema: &'a Value, property: &'a Value) -> Option<&'a Value> {
    let inner = resolve(schema, item_of(property).unwrap_or(property));
    (inner["additionalProperties"] == false).then_some(inner)
}

fn item_of(property: &Value) -> Option<&Value> {
    property.get("items")
}

fn resolve<'a>(schema: &'a Value, property: &'a Value) -> &'a Value {
    let property = property["anyOf"].get(0).unwrap_or(property);
    let name = property["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
    name.map_or(property, |name| &schema["$defs"][name])
}

/// The values that a key accepts.
fn values(schema: &Value, property: &Value) -> String {
    let property = resolve(schema, property);
    if let Some(words) = words(property) {
        return words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    let kind = match &property["type"] {
        Value::Array(kinds) => &kinds[0],
        kind => kind,
    };
    match kind.as_str() {
        Some("integer") => format!("{} to {}", property["minimum"], property["maximum"]),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("string") if property["format"] == "label-selector" => "label selector".to_owned(),
        Some("string") => "text".to_owned(),
        Some("array") => {
            let least = if property["minItems"].is_u64() { ", at least one" } else { "" };
            let item = resolve(schema, &property["items"]);
            let of = if item["type"] == "object" { "mappings".to_owned() } else { values(schema, item) };
            format!(
                "list of {}{least}",
                of.replace("label selector", "label selectors").replace("text", "texts")
            )
        }
        _ => "mapping".to_owned(),
    }
}

/// The words that a key accepts, each with its meaning.
fn words(property: &Value) -> Option<Vec<(&str, String)>> {
    let words = property["oneOf"].as_array()?;
    Some(words.iter().map(|word| (word["const"].as_str().unwrap_or_default(), prose(word))).collect())
}

fn meaning(schema: &Value, property: &Value) -> String {
    let mut meaning = prose(property);
    for (word, explanation) in words(resolve(schema, property)).into_iter().flatten() {
        let _ = write!(meaning, " `{word}`: {explanation}");
    }
    meaning.replace('|', "\\|")
}

/// A description on one line.
fn prose(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn default(value: &Value) -> String {
    match value {
        Value::Null => "absent".to_owned(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::Array(items) if items.is_empty() => "empty".to_owned(),
        Value::Array(items) => items.iter().map(default).collect::<Vec<_>>().join(", "),
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}: {}", yaml::scalar(value))).collect();
            format!("`{{{}}}`", pairs.join(", "))
        }
        other => format!("`{}`", yaml::scalar(other)),
    }
}

fn environment() -> String {
    let mut text =
        "\n## Environment variables\n\nEnvironment variables override the file. An empty variable counts as unset.\n\n\
                    | Variable | Sets | Value |\n| --- | --- | --- |\n"
            .to_owned();
    for variable in variables() {
        let keys: Vec<String> = variable.keys.iter().map(|key| format!("`{key}`")).collect();
        let _ = writeln!(text, "| `{}` | {} | {} |", variable.name, keys.join(", "), variable.expected());
    }
    text
}

fn errors() -> String {
    let output = Config::parse(BROKEN).map_or_else(|problems| problems.to_string(), |_| String::new());
    format!(
        "\n## Errors\n\nAll errors in a file are reported at once, in the order of the file. This file:\n\n\
         ```yaml\n{BROKEN}```\n\ngives:\n\n```text\n{output}\n```\n"
    )
}

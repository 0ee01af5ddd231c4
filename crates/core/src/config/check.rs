//! Validates a tree against the schema and the rules.
//!
//! All problems are reported at once. So a part that does not match the schema is reported and left out, the rest
//! becomes a configuration, and the rules validate that. Their findings about parts that were left out are dropped,
//! because they would be about defaults that nobody asked for.

mod words;

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use self::words::{mismatch, quoted};
use super::path::Path;
use super::problem::Finding;
use super::selector::{self, Selector};
use super::suggest::nearest;
use super::tree::{Entry, Node, Value};
use super::{Config, format, rules};

/// Returns the configuration that a tree describes, and all problems with it.
pub(super) fn config(tree: &Node) -> (Config, Vec<Finding>) {
    let schema = Config::schema();
    let mut walk = Walk { schema: &schema, findings: Vec::new(), left_out: Vec::new() };
    let root = Path::default();
    let fitting = walk.node(tree, &schema, &root).unwrap_or_else(|| Json::Object(Map::new()));
    let Walk { mut findings, left_out, .. } = walk;
    let config = serde_json::from_value(fitting).unwrap_or_else(|error| {
        findings.push(Finding::new(root, error.to_string()));
        Config::default()
    });
    let about_what_is_there =
        |finding: &Finding| !finding.paths().any(|path| left_out.iter().any(|out| out.overlaps(path)));
    findings.extend(rules::findings(&config).into_iter().filter(about_what_is_there));
    (config, findings)
}

struct Walk<'a> {
    schema: &'a Json,
    findings: Vec<Finding>,
    left_out: Vec<Path>,
}

impl<'a> Walk<'a> {
    /// Returns the part of a value that matches the schema, if any.
    fn node(&mut self, node: &Node, schema: &'a Json, path: &Path) -> Option<Json> {
        let is_optional = allows_null(schema);
        let (name, schema) = self.resolve(schema);
        let fitting = if is_optional && matches!(node.value, Value::Null) {
            Some(Json::Null)
        } else if let Some(words) = allowed_words(schema) {
            self.word(node, name, &words, path)
        } else {
            match type_of(schema) {
                Some("object") => self.object(node, schema, path),
                Some("array") => self.list(node, schema, path),
                Some("string") => self.text(node, schema, path),
                Some("integer") => self.integer(node, schema, path),
                Some("boolean") => self.boolean(node, path),
                _ => Some(self.anything(node, path)),
            }
        };
        if fitting.is_none() {
            self.left_out.push(path.clone());
        }
        fitting
    }

    /// Follows a reference. Returns the name of the type too, if it has one.
    fn resolve(&self, schema: &'a Json) -> (&'a str, &'a Json) {
        let optional = schema["anyOf"].as_array().and_then(|either| either.first());
        let Some(reference) = optional.unwrap_or(schema)["$ref"].as_str() else { return ("", schema) };
        let name = reference.rsplit('/').next().unwrap_or_default();
        (name, &self.schema["$defs"][name])
    }

    fn report(&mut self, path: &Path, message: String) {
        self.findings.push(Finding::new(path.clone(), message));
    }

    fn object(&mut self, node: &Node, schema: &'a Json, path: &Path) -> Option<Json> {
        let entries = match &node.value {
            Value::Map(entries) => self.unique(entries, path),
            // A section whose keys are all commented out.
            Value::Null => Vec::new(),
            _ => {
                self.report(path, mismatch("a mapping", node, path));
                return None;
            }
        };
        let mut fitting = Map::new();
        let mut complete = true;
        for entry in &entries {
            let at = path.key(&entry.key);
            let value = match (schema["properties"].get(&entry.key), schema.get("additionalProperties")) {
                (Some(property), _) => self.node(&entry.value, property, &at),
                (None, Some(Json::Bool(false))) => {
                    self.unknown_key(entry, schema, path);
                    continue;
                }
                (None, Some(others @ Json::Object(_))) => self.node(&entry.value, others, &at),
                (None, _) => Some(self.anything(&entry.value, &at)),
            };
            match value {
                Some(value) => drop(fitting.insert(entry.key.clone(), value)),
                None => complete &= !required(schema).any(|key| key == entry.key),
            }
        }
        for key in required(schema).filter(|key| entries.iter().all(|entry| entry.key != **key)) {
            self.report(path, format!("the key {key:?} is missing"));
            complete = false;
        }
        complete.then_some(Json::Object(fitting))
    }

    /// Returns the entries of a mapping without duplicate keys, which it reports.
    fn unique<'n>(&mut self, entries: &'n [Entry], path: &Path) -> Vec<&'n Entry> {
        let mut seen: BTreeMap<&str, &Entry> = BTreeMap::new();
        let mut unique = Vec::new();
        for entry in entries {
            if let Some(first) = seen.get(entry.key.as_str()) {
                let place =
                    first.key_location.map_or_else(String::new, |place| format!(" on line {}", place.line));
                let message = format!("this key was already given{place}; keep one of the two");
                self.findings.push(Finding::new(path.key(&entry.key), message).at(entry.key_location));
            } else {
                seen.insert(&entry.key, entry);
                unique.push(entry);
            }
        }
        unique
    }

    fn unknown_key(&mut self, entry: &Entry, schema: &Json, path: &Path) {
        let known: Vec<&str> =
            schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
        let hint = if let Some(near) = nearest(&entry.key, &known) {
            format!("did you mean {near}?")
        } else if let Some(elsewhere) = self.elsewhere(&entry.key) {
            format!("did you mean {elsewhere}?")
        } else {
            format!("expected one of {}", known.join(", "))
        };
        let finding = Finding::new(path.key(&entry.key), format!("unknown key; {hint}"));
        self.findings.push(finding.at(entry.key_location));
    }

    /// Finds the section in which an unknown key would be valid.
    fn elsewhere(&self, key: &str) -> Option<String> {
        self.schema["properties"].as_object()?.iter().find_map(|(section, schema)| {
            let (_, schema) = self.resolve(schema);
            schema["properties"].get(key).map(|_| format!("{section}.{key}"))
        })
    }

    fn list(&mut self, node: &Node, schema: &'a Json, path: &Path) -> Option<Json> {
        let Value::List(items) = &node.value else {
            self.report(path, mismatch("a list", node, path));
            return None;
        };
        if items.is_empty() && schema["minItems"].as_u64().is_some_and(|least| least > 0) {
            self.report(path, "the list is empty; expected at least one item".to_owned());
            return None;
        }
        // No short-circuiting: every item has to be validated.
        let fitting: Vec<Option<Json>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.node(item, &schema["items"], &path.index(index)))
            .collect();
        fitting.into_iter().collect::<Option<Vec<Json>>>().map(Json::Array)
    }

    fn text(&mut self, node: &Node, schema: &Json, path: &Path) -> Option<Json> {
        let Value::Text(text) = &node.value else {
            self.report(path, mismatch("text", node, path));
            return None;
        };
        if let Some(problem) = text_problem(text, schema) {
            self.report(path, problem);
            return None;
        }
        Some(Json::String(text.clone()))
    }

    fn word(&mut self, node: &Node, name: &str, words: &[&str], path: &Path) -> Option<Json> {
        let expected = format!("one of {}", words.join(", "));
        let Value::Text(text) = &node.value else {
            self.report(path, mismatch(&expected, node, path));
            return None;
        };
        if words.contains(&text.as_str()) {
            return Some(Json::String(text.clone()));
        }
        let hint = nearest(text, words).map_or_else(String::new, |near| format!("; did you mean {near}?"));
        self.report(
            path,
            format!("{} is not {}; expected {expected}{hint}", quoted(text), words::noun(name)),
        );
        None
    }

    fn integer(&mut self, node: &Node, schema: &Json, path: &Path) -> Option<Json> {
        let Value::Number(number, written) = &node.value else {
            self.report(path, mismatch("a whole number", node, path));
            return None;
        };
        // A whole number that is too large for any integer is parsed as a float. Its source text shows that it is
        // whole.
        let is_whole = !number.is_f64() || written.chars().all(|c| c.is_ascii_digit() || c == '-');
        if !is_whole {
            self.report(path, mismatch("a whole number", node, path));
            return None;
        }
        let (least, most) =
            (schema["minimum"].as_i64().unwrap_or(0), schema["maximum"].as_i64().unwrap_or(i64::MAX));
        if number.as_i64().is_some_and(|number| (least..=most).contains(&number)) {
            return Some(Json::Number(number.clone()));
        }
        self.report(path, format!("{written} is out of range; expected {least} to {most}"));
        None
    }

    fn boolean(&mut self, node: &Node, path: &Path) -> Option<Json> {
        let Value::Bool(value) = node.value else {
            self.report(path, mismatch("true or false", node, path));
            return None;
        };
        Some(Json::Bool(value))
    }

    /// Passes a value on unchanged: only Kubernetes knows its fields.
    fn anything(&mut self, node: &Node, path: &Path) -> Json {
        match &node.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(number, _) => Json::Number(number.clone()),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(items) => {
                let item = |(index, item)| self.anything(item, &path.index(index));
                Json::Array(items.iter().enumerate().map(item).collect())
            }
            Value::Map(entries) => {
                let entries = self.unique(entries, path);
                let entry =
                    |entry: &Entry| (entry.key.clone(), self.anything(&entry.value, &path.key(&entry.key)));
                Json::Object(entries.into_iter().map(entry).collect())
            }
        }
    }
}

/// Validates a text against the string keywords of its schema.
fn text_problem(text: &str, schema: &Json) -> Option<String> {
    if schema["format"] == selector::SCHEMA_FORMAT {
        return text.parse::<Selector>().err().map(|error| {
            format!(
                "{} is not a label selector: {error}; expected a form such as a=b,c!=d,e in (f,g),!h",
                quoted(text)
            )
        });
    }
    if text.is_empty() && schema["minLength"].as_u64().is_some_and(|least| least > 0) {
        return Some("the text is empty".to_owned());
    }
    let format = format::ALL.iter().find(|format| schema["pattern"] == format.pattern)?;
    (!(format.accepts)(text)).then(|| format!("{} is not valid; expected {}", quoted(text), format.expected))
}

fn type_of(schema: &Json) -> Option<&str> {
    match &schema["type"] {
        Json::String(name) => Some(name),
        Json::Array(names) => names.iter().filter_map(Json::as_str).find(|name| *name != "null"),
        _ => None,
    }
}

fn allows_null(schema: &Json) -> bool {
    let is_null = |schema: &Json| schema["type"] == "null";
    schema["type"].as_array().is_some_and(|names| names.iter().any(|name| name == "null"))
        || schema["anyOf"].as_array().is_some_and(|either| either.iter().any(is_null))
}

fn allowed_words(schema: &Json) -> Option<Vec<&str>> {
    let words = schema["oneOf"].as_array()?;
    Some(words.iter().filter_map(|word| word["const"].as_str()).collect())
}

fn required(schema: &Json) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str)
}

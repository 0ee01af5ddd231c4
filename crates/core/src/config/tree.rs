//! A YAML file as a tree in which every key and value has its location.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter};

use super::path::Path;
use super::problem::{Location, Problem, Problems};

/// The maximum size of a `ConfigMap`.
const MAX_BYTES: usize = 1024 * 1024;
/// Far deeper than any key of the configuration, and far from exhausting the stack.
const MAX_DEPTH: usize = 64;
/// Aliases may repeat content, but not multiply it without limit.
const MAX_REPEATED: usize = 20_000;

/// A value and its location.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) location: Option<Location>,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// A number, and its source text.
    Number(Number, String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key of a mapping and its value. A mapping may contain the same key twice, which validation reports.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_location: Option<Location>,
    pub(super) value: Node,
}

/// Reads a file. An empty one is an empty mapping.
pub(super) fn read(text: &str) -> Result<Node, Problems> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes; expected at most {MAX_BYTES}", text.len());
        return Err(Problems::one(Problem { path: String::new(), location: None, message }));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED },
        // Validation reports all duplicates, so the parser must not reject them.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    };
    let raw: Option<Spanned<Raw>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| syntax(&error))?;
    Ok(match raw {
        Some(raw) => Node::from_raw(raw, text),
        None => Node { location: None, value: Value::Map(Vec::new()) },
    })
}

fn syntax(error: &serde_saphyr::Error) -> Problems {
    let location = error.location().and_then(place);
    let message = format!("not valid YAML: {}", UserMessageFormatter.format_message(error));
    Problems::one(Problem { path: String::new(), location, message })
}

fn place(location: serde_saphyr::Location) -> Option<Location> {
    let place = Location { line: location.line(), column: location.column() };
    (place.line > 0).then_some(place)
}

impl Node {
    /// A value without a location in a file.
    pub(super) fn from_json(value: &serde_json::Value) -> Self {
        let value = match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => Value::Number(number.clone(), number.to_string()),
            serde_json::Value::String(text) => Value::Text(text.clone()),
            serde_json::Value::Array(items) => Value::List(items.iter().map(Self::from_json).collect()),
            serde_json::Value::Object(map) => Value::Map(
                map.iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        key_location: None,
                        value: Self::from_json(value),
                    })
                    .collect(),
            ),
        };
        Self { location: None, value }
    }

    fn from_raw(raw: Spanned<Raw>, text: &str) -> Self {
        let value = match raw.value {
            Raw::Null => Value::Null,
            Raw::Bool(value) => Value::Bool(value),
            Raw::Number(number) => {
                let written = source(raw.defined, text).unwrap_or_else(|| number.to_string());
                Value::Number(number, written)
            }
            Raw::Text(value) => Value::Text(value),
            Raw::List(items) => {
                Value::List(items.into_iter().map(|item| Self::from_raw(item, text)).collect())
            }
            Raw::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry {
                        key: key.value,
                        key_location: place(key.referenced),
                        value: Self::from_raw(value, text),
                    })
                    .collect(),
            ),
        };
        Self { location: place(raw.referenced), value }
    }

    /// The value at the end of a path.
    pub(super) fn find(&self, path: &Path) -> Option<&Self> {
        path.follow(self, Self::get, |node, index| match &node.value {
            Value::List(items) => items.get(index),
            _ => None,
        })
    }

    fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The location of the value at the end of a path or, if there is none, of the key of its nearest parent.
    pub(super) fn nearest(&self, path: &Path) -> Option<Location> {
        if let Some(node) = self.find(path) {
            return node.location;
        }
        let mut missing = path.clone();
        while let Some(parent) = missing.parent() {
            if let Some(node) = self.find(&parent) {
                let holder = parent.parent().and_then(|holder| self.find(&holder));
                let key = parent.last_key().and_then(|key| holder?.entry(key));
                return key.map_or(node.location, |entry| entry.key_location);
            }
            missing = parent;
        }
        self.location
    }
}

/// The source text of a value.
fn source(location: serde_saphyr::Location, text: &str) -> Option<String> {
    let start = usize::try_from(location.span().byte_offset()?).ok()?;
    let length = usize::try_from(location.span().byte_len()?).ok()?;
    let written = text.get(start..start.checked_add(length)?)?.trim();
    (!written.is_empty()).then(|| written.to_owned())
}

/// The target of the YAML parser: a [`Value`] whose locations are not converted yet.
#[derive(Debug)]
enum Raw {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        let nearest = i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX });
        Ok(Raw::Number(nearest.into()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Number(u64::try_from(value).unwrap_or(u64::MAX).into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Number::from_f64(value).map_or_else(|| Raw::Text(value.to_string()), Raw::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

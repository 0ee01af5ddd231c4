//! Label selectors in the syntax of kubectl.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::format::{is_label_key, is_label_value};
use crate::texts::Texts;

/// The `format` of a selector in the schema.
pub(super) const SCHEMA_FORMAT: &str = "label-selector";

/// A label selector: `a=b`, `a==b`, `a!=b`, `a`, `!a`, `a in (x,y)`, `a notin (x,y)`; a comma means "and".
///
/// An empty selector would match everything. Nobody wants that anywhere in the configuration, so it is an error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector {
    text: String,
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

/// Why a text is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl Selector {
    /// The selector for one value of one label.
    pub(crate) fn equals(key: &str, value: &str) -> Self {
        let test = Test::In(BTreeSet::from([value.to_owned()]));
        Self { text: format!("{key}={value}"), requirements: vec![Requirement { key: key.to_owned(), test }] }
    }

    /// Returns whether these labels match.
    #[must_use]
    pub fn matches(&self, labels: &Texts) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            }
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Err(SelectorError("an empty selector would match everything".to_owned()));
        }
        let requirements = split_terms(text).into_iter().map(requirement).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), requirements })
    }
}

impl TryFrom<String> for Selector {
    type Error = SelectorError;

    fn try_from(text: String) -> Result<Self, SelectorError> {
        text.parse()
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.text
    }
}

impl JsonSchema for Selector {
    fn schema_name() -> Cow<'static, str> {
        "Selector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": SCHEMA_FORMAT, "minLength": 1 })
    }
}

/// Splits at the commas outside parentheses.
fn split_terms(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    })
    .map(str::trim)
    .collect()
}

fn requirement(term: &str) -> Result<Requirement, SelectorError> {
    if term.is_empty() {
        return Err(SelectorError("there is nothing on one side of a comma".to_owned()));
    }
    if let Some((head, list)) = term.split_once('(') {
        return set_requirement(term, head.trim(), list);
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Ok(Requirement { key: valid_key(key)?, test: Test::NotIn([valid_value(value)?].into()) });
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement { key: valid_key(key)?, test: Test::In([valid_value(value)?].into()) });
    }
    match term.strip_prefix('!') {
        Some(key) => Ok(Requirement { key: valid_key(key)?, test: Test::Absent }),
        None => Ok(Requirement { key: valid_key(term)?, test: Test::Exists }),
    }
}

/// A requirement of the form `key in (x,y)`, split at the opening parenthesis.
fn set_requirement(term: &str, head: &str, list: &str) -> Result<Requirement, SelectorError> {
    let Some(list) = list.strip_suffix(')') else {
        return Err(SelectorError(format!("{term:?} does not end with a closing parenthesis")));
    };
    let values: BTreeSet<String> = list.split(',').map(valid_value).collect::<Result<_, _>>()?;
    match head.split_whitespace().collect::<Vec<_>>().as_slice() {
        [key, "in"] => Ok(Requirement { key: valid_key(key)?, test: Test::In(values) }),
        [key, "notin"] => Ok(Requirement { key: valid_key(key)?, test: Test::NotIn(values) }),
        _ => Err(SelectorError(format!("{term:?} is neither \"key in (…)\" nor \"key notin (…)\""))),
    }
}

fn valid_key(text: &str) -> Result<String, SelectorError> {
    let key = text.trim();
    if is_label_key(key) {
        return Ok(key.to_owned());
    }
    Err(SelectorError(format!("{key:?} is not the key of a label")))
}

fn valid_value(text: &str) -> Result<String, SelectorError> {
    let value = text.trim();
    if is_label_value(value) {
        return Ok(value.to_owned());
    }
    Err(SelectorError(format!("{value:?} is not the value of a label")))
}

#[cfg(test)]
mod tests;

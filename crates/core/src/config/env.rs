//! Environment variables that override keys of the file.

mod duration;

use std::collections::BTreeMap;

use serde_json::Value;

use super::path::Path;
use super::problem::{Finding, Problem, Problems};
use super::tree::Node;
use super::{Config, check};

/// An environment variable that sets keys of the configuration.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The keys it sets.
    pub keys: &'static [&'static str],
    form: Form,
}

/// How the text of a variable is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Whole,
    Boolean,
    Seconds,
    List,
}

/// All variables. Nothing else in the environment changes the configuration.
const VARIABLES: [Variable; 16] = [
    variable("INITIAL_TIMEOUT", Form::Seconds, &["worker.timeoutSeconds"]),
    variable("CHECK_TIMEOUT", Form::Seconds, &["worker.checkTimeoutSeconds"]),
    variable("DNS_TEST_DOMAINS", Form::List, &["worker.dnsTestDomains"]),
    variable("ENABLE_CONNECTIVITY_MATRIX", Form::Boolean, &["worker.connectivityMatrix"]),
    variable("MAX_RETRIES", Form::Whole, &["reconciliation.maxRetries"]),
    variable("RETRY_BACKOFF", Form::Text, &["reconciliation.retryBackoff"]),
    variable("TAINT_KEY", Form::Text, &["nodeManagement.taints[0].key"]),
    variable("TAINT_VALUE", Form::Text, &["nodeManagement.taints[0].value"]),
    variable("TAINT_EFFECT", Form::Text, &["nodeManagement.taints[0].effect"]),
    variable("VERIFIED_LABEL", Form::Text, &["nodeManagement.verifiedLabel.key"]),
    variable("VERIFIED_LABEL_VALUE", Form::Text, &["nodeManagement.verifiedLabel.value"]),
    variable("STARTUP_BACKFILL", Form::Boolean, &["nodeManagement.backfill"]),
    variable("ENABLE_METRICS", Form::Boolean, &["metrics.enabled"]),
    variable("METRICS_PORT", Form::Whole, &["metrics.port", "health.port"]),
    variable("LOG_LEVEL", Form::Text, &["logging.level"]),
    variable("LOG_FORMAT", Form::Text, &["logging.format"]),
];

const fn variable(name: &'static str, form: Form, keys: &'static [&'static str]) -> Variable {
    Variable { name, keys, form }
}

/// All environment variables that set a key.
#[must_use]
pub fn variables() -> &'static [Variable] {
    &VARIABLES
}

impl Variable {
    /// The form of its value, for messages and the reference.
    #[must_use]
    pub fn expected(&self) -> &'static str {
        match self.form {
            Form::Text => "text, as in the file",
            Form::Whole => "a whole number",
            Form::Boolean => "`true`, `false`, `1` or `0`",
            Form::Seconds => "a duration of whole seconds, such as `300s` or `1m30s`",
            Form::List => "items with commas between them",
        }
    }

    fn paths(&self) -> impl Iterator<Item = Path> {
        self.keys.iter().map(|key| Path::parse(key))
    }

    fn read(&self, text: &str) -> Result<Value, String> {
        match self.form {
            Form::Text => Ok(text.into()),
            Form::Whole => text
                .parse::<i64>()
                .map(Value::from)
                .map_err(|_| format!("{text:?} is not a whole number; expected digits alone")),
            Form::Boolean => match text.to_ascii_lowercase().as_str() {
                "true" | "1" => Ok(true.into()),
                "false" | "0" => Ok(false.into()),
                _ => Err(format!("{text:?} is neither yes nor no; expected true, false, 1 or 0")),
            },
            Form::Seconds => duration::whole_seconds(text).map(Value::from),
            Form::List => Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()),
        }
    }
}

impl Config {
    /// Applies the environment variables that [`variables`] lists to a configuration. An empty variable counts as not
    /// set. Reports all problems at once, each by the name of its variable.
    pub fn from_environment(base: Self, vars: &BTreeMap<String, String>) -> Result<Self, Problems> {
        let given = Given::read(vars);
        let mut json = serde_json::to_value(base).map_err(|error| {
            Problems::one(Problem { path: String::new(), location: None, message: error.to_string() })
        })?;
        for (variable, value) in &given.values {
            for path in variable.paths() {
                if let Some(place) =
                    path.follow(&mut json, |map, key| map.get_mut(key), |list, index| list.get_mut(index))
                {
                    *place = value.clone();
                }
            }
        }
        let (config, findings) = check::config(&Node::from_json(&json));
        let mut problems: Vec<Problem> =
            findings.iter().filter_map(|finding| given.problem(finding)).collect();
        // A variable that sets two keys would report the same problem twice.
        problems.dedup();
        let unreadable =
            given.unreadable.iter().map(|(variable, message)| by_name(variable, message.clone()));
        Problems::none_or(config, unreadable.chain(problems))
    }
}

/// The variables that were given, parsed as far as possible.
struct Given<'a> {
    texts: &'a BTreeMap<String, String>,
    values: Vec<(&'static Variable, Value)>,
    unreadable: Vec<(&'static Variable, String)>,
}

impl<'a> Given<'a> {
    fn read(texts: &'a BTreeMap<String, String>) -> Self {
        let mut given = Self { texts, values: Vec::new(), unreadable: Vec::new() };
        for variable in variables() {
            let text = texts.get(variable.name).map_or("", |text| text.trim());
            if text.is_empty() {
                continue;
            }
            match variable.read(text) {
                Ok(value) => given.values.push((variable, value)),
                Err(message) => given.unreadable.push((variable, message)),
            }
        }
        given
    }

    /// Attributes a finding to a variable. Returns `None` if the finding is about a key whose variable could not be
    /// parsed: that is already reported, and the key does not have the value that the user wants.
    fn problem(&self, finding: &Finding) -> Option<Problem> {
        let of_unreadable = |path: &Path| self.unreadable.iter().any(|(variable, _)| sets(variable, path));
        if finding.paths().any(of_unreadable) {
            return None;
        }
        let set_by = |path: &Path| {
            self.values.iter().map(|&(variable, _)| variable).find(|variable| sets(variable, path))
        };
        let Some(variable) = finding.paths().find_map(set_by) else {
            return Some(Problem {
                path: finding.path.to_string(),
                location: None,
                message: finding.message.clone(),
            });
        };
        let says_enough = variable.form != Form::Seconds && finding.related.is_empty();
        let explanation = if says_enough { String::new() } else { self.explain(finding) };
        Some(by_name(variable, format!("{}{explanation}", finding.message)))
    }

    /// Lists the variables that set the keys of a finding, or could set them.
    fn explain(&self, finding: &Finding) -> String {
        let touched = variables().iter().filter(|variable| finding.paths().any(|path| sets(variable, path)));
        let parts: Vec<String> = touched
            .map(|variable| {
                let keys = variable.keys.join(" and ");
                match self.texts.get(variable.name).map(|text| text.trim()).filter(|text| !text.is_empty()) {
                    Some(text) => format!("{}={text} sets {keys}", variable.name),
                    None => format!("{} would set {keys}", variable.name),
                }
            })
            .collect();
        format!("; {}", parts.join(", "))
    }
}

fn sets(variable: &Variable, path: &Path) -> bool {
    variable.paths().any(|key| key.overlaps(path))
}

fn by_name(variable: &Variable, message: String) -> Problem {
    Problem { path: variable.name.to_owned(), location: None, message }
}

#[cfg(test)]
mod tests;

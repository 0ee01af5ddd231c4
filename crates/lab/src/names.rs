//! Names and words that people type: nodes, taints, labels.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A taint as people write it: `key=value:Effect` or `key:Effect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    key: String,
    value: String,
    effect: String,
}

impl FromStr for Taint {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((pair, effect)) = text.rsplit_once(':') else {
            bail!("taint {text:?} has no effect: write KEY=VALUE:EFFECT");
        };
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key.is_empty() {
            bail!("taint {text:?} has no key: write KEY=VALUE:EFFECT");
        }
        if !EFFECTS.contains(&effect) {
            bail!("taint {text:?}: {effect:?} is not an effect; it is one of {}", EFFECTS.join(", "));
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        if value.is_empty() { write!(out, "{key}:{effect}") } else { write!(out, "{key}={value}:{effect}") }
    }
}

/// A label as people write it: `key=value`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    key: String,
    value: String,
}

impl FromStr for Label {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() && !text.contains(',') => {
                Ok(Self { key: key.to_owned(), value: value.to_owned() })
            }
            _ => bail!("{text:?} is not a label: write KEY=VALUE"),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.key, self.value)
    }
}

/// Fails unless `name` can be a folder, a host name and a Kubernetes name all at once.
pub(crate) fn check(what: &str, name: &str) -> Result<()> {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| letter(c) || c == '-';
    let good = name.len() <= 40
        && name.chars().all(inner)
        && name.chars().next().is_some_and(letter)
        && name.chars().last().is_some_and(letter);
    if !good {
        bail!("{name:?} cannot name a {what}: use up to 40 lower-case letters, digits and inner dashes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_read_and_written_as_kubectl_does() {
        for text in ["a/b=c:NoSchedule", "a:NoExecute", "node-ready/unverified=true:PreferNoSchedule"] {
            assert_eq!(text.parse::<Taint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_taint_says_what_is_wrong_with_it() {
        let error = |text: &str| text.parse::<Taint>().unwrap_err().to_string();
        assert!(error("a=b").contains("no effect"));
        assert!(error("=b:NoSchedule").contains("no key"));
        assert!(error("a=b:Never").contains("\"Never\" is not an effect; it is one of NoSchedule"));
    }

    #[test]
    fn a_name_that_would_escape_its_folder_is_refused() {
        for name in ["", "..", "a/b", "A", "-a", "a-", &"a".repeat(41)] {
            assert!(check("node", name).is_err(), "{name}");
        }
        for name in ["n1", "a", "my-node-7"] {
            check("node", name).unwrap();
        }
    }

    #[test]
    fn a_label_is_one_pair() {
        assert_eq!("a/b=c".parse::<Label>().unwrap().to_string(), "a/b=c");
        for text in ["a", "=b", "a=b,c=d"] {
            assert!(text.parse::<Label>().is_err(), "{text}");
        }
    }
}

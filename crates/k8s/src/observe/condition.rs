//! One condition among those of a node or a pod.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

/// A condition. Its type is known to the caller.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SlimCondition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// A condition while it is parsed. It borrows from the answer, because most conditions are discarded.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) status: Cow<'a, str>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

impl From<RawCondition<'_>> for SlimCondition {
    fn from(raw: RawCondition<'_>) -> Self {
        Self {
            status: raw.status.into_owned(),
            reason: raw.reason.into_owned(),
            message: raw.message.into_owned(),
        }
    }
}

/// Reads the first condition of this type.
pub(super) fn of_type<'de, D: Deserializer<'de>>(
    kind: &'static str,
    deserializer: D,
) -> Result<Option<SlimCondition>, D::Error> {
    let mut found = None;
    each(deserializer, |condition| {
        if found.is_none() && condition.kind == kind {
            found = Some(condition.into());
        }
    })?;
    Ok(found)
}

/// Passes each condition to `pass_on`.
pub(super) fn each<'de, D, F>(deserializer: D, pass_on: F) -> Result<(), D::Error>
where
    D: Deserializer<'de>,
    F: FnMut(RawCondition<'de>),
{
    deserializer.deserialize_any(Each(pass_on))
}

struct Each<F>(F);

impl<'de, F: FnMut(RawCondition<'de>)> Visitor<'de> for Each<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("conditions")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut conditions: A) -> Result<(), A::Error> {
        while let Some(condition) = conditions.next_element()? {
            (self.0)(condition);
        }
        Ok(())
    }
}

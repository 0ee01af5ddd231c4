//! One condition among those of a node or a pod.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

/// A condition. Its type is known to whoever asked for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SlimCondition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Reads the condition of this type. The others, which come along with every object, are passed over without a copy.
pub(super) fn of_type<'de, D: Deserializer<'de>>(
    kind: &'static str,
    deserializer: D,
) -> Result<Option<SlimCondition>, D::Error> {
    deserializer.deserialize_any(OfType(kind))
}

struct OfType(&'static str);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Borrowed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

impl<'de> Visitor<'de> for OfType {
    type Value = Option<SlimCondition>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("conditions")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut conditions: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(condition) = conditions.next_element::<Borrowed<'de>>()? {
            if found.is_none() && condition.kind == self.0 {
                found = Some(SlimCondition {
                    status: condition.status.into_owned(),
                    reason: condition.reason.into_owned(),
                    message: condition.message.into_owned(),
                });
            }
        }
        Ok(found)
    }
}

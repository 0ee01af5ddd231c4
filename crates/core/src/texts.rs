//! Compact maps of texts by name, such as labels, and truncation of long texts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

/// Texts by name. Each of thousands of nodes has dozens of them, so those of one object share one buffer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// Alternating names and texts, sorted by name.
    content: Box<str>,
    /// The end of each name and text in `content`.
    ends: Box<[u32]>,
}

impl Texts {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let (mut low, mut high) = (0, self.ends.len() / 2);
        while low < high {
            let middle = low.midpoint(high);
            match self.piece(2 * middle).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.piece(2 * middle + 1)),
            }
        }
        None
    }

    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All names with their texts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.ends.len() / 2).map(|pair| (self.piece(2 * pair), self.piece(2 * pair + 1)))
    }

    fn piece(&self, number: usize) -> &str {
        let end_of = |number: usize| self.ends.get(number).map_or(0, |end| *end as usize);
        let start = number.checked_sub(1).map_or(0, end_of);
        self.content.get(start..end_of(number)).unwrap_or_default()
    }
}

impl<N: Into<String>, T: Into<String>> FromIterator<(N, T)> for Texts {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(pairs: I) -> Self {
        let sorted: BTreeMap<String, String> =
            pairs.into_iter().map(|(name, text)| (name.into(), text.into())).collect();
        let mut builder = Builder::default();
        for (name, text) in &sorted {
            builder.push(name);
            builder.push(text);
        }
        builder.build()
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs)
    }
}

/// Truncates a text to a number of characters. An ellipsis shows where it was cut.
#[must_use]
pub fn shortened(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

#[derive(Default)]
struct Builder {
    content: String,
    ends: Vec<u32>,
}

impl Builder {
    fn push(&mut self, piece: &str) {
        self.content.push_str(piece);
        // API servers reject objects of even a thousandth of this size.
        self.ends.push(u32::try_from(self.content.len()).unwrap_or(u32::MAX));
    }

    fn build(self) -> Texts {
        Texts { content: self.content.into(), ends: self.ends.into() }
    }
}

/// Reads pairs straight into place. API servers send them sorted. Pairs in any other order are sorted afterwards.
struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("texts by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
        // Enough for most objects, to avoid repeated growth.
        let mut builder = Builder { content: String::with_capacity(512), ends: Vec::with_capacity(32) };
        while map.next_key_seed(Piece(&mut builder))?.is_some() {
            map.next_value_seed(Piece(&mut builder))?;
        }
        let texts = builder.build();
        let is_sorted = texts.iter().map(|(name, _)| name).is_sorted_by(|one, next| one < next);
        Ok(if is_sorted { texts } else { texts.iter().collect() })
    }
}

struct Piece<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for Piece<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Piece<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.push(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().copied().collect()
    }

    #[test]
    fn they_are_shown_as_pairs() {
        assert_eq!(format!("{:?}", texts(&[("b", "2"), ("a", "1")])), r#"{"a": "1", "b": "2"}"#);
    }

    #[test]
    fn what_is_no_text_is_reported() {
        for (json, expected) in [("5", "expected texts by name"), (r#"{"a": 5}"#, "expected a text")] {
            let error = serde_json::from_str::<Texts>(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn every_text_is_found_by_its_name_and_nothing_by_another() {
        for count in 0..7 {
            let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
            let texts: Texts = names.iter().map(|name| (name.as_str(), format!("text of {name}"))).collect();
            for name in &names {
                assert_eq!(texts.get(name), Some(format!("text of {name}").as_str()));
            }
            assert_eq!((texts.iter().count(), texts.is_empty()), (count, count == 0));
            assert!(!texts.contains_key("n") && !texts.contains_key("n9") && !texts.contains_key(""));
        }
    }

    #[test]
    fn pairs_in_any_order_are_the_same_texts() {
        let sorted = texts(&[("a", "1"), ("b", ""), ("c", "3")]);
        assert_eq!(texts(&[("c", "3"), ("a", "1"), ("b", "")]), sorted);
        assert_eq!(sorted.get("b"), Some(""));
        for json in [r#"{"a":"1","b":"","c":"3"}"#, r#"{"c":"3","b":"","a":"1"}"#] {
            assert_eq!(serde_json::from_str::<Texts>(json).unwrap(), sorted);
        }
        let twice = serde_json::from_str::<Texts>(r#"{"a":"1","a":"2"}"#).unwrap();
        assert_eq!(twice, texts(&[("a", "2")]), "the last one counts");
    }

    #[test]
    fn only_what_is_too_long_is_cut() {
        assert_eq!(shortened("überlang", 4), "über…");
        assert_eq!((shortened("über", 4), shortened("", 0)), ("über".into(), "".into()));
    }

    #[test]
    fn only_texts_are_taken() {
        assert!(serde_json::from_str::<Texts>(r#"{"a":1}"#).is_err());
        assert!(serde_json::from_str::<Texts>("[]").is_err());
        assert_eq!(serde_json::from_str::<Texts>(r#"{"a\"\n":"ü\u00fc"}"#).unwrap().get("a\"\n"), Some("üü"));
    }
}

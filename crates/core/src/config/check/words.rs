//! Wording of type mismatches.

use super::super::path::Path;
use super::super::tree::{Node, Value};

/// A value longer than this is shortened in a message.
const SHOWN: usize = 60;

/// Reports that a value has the wrong type, with a hint how to fix it where that is obvious.
pub(super) fn mismatch(expected: &str, node: &Node, path: &Path) -> String {
    let hint = hint(expected, node, path).map_or_else(String::new, |hint| format!(": {hint}"));
    format!("expected {expected}, found {}{hint}", describe(node))
}

fn hint(expected: &str, node: &Node, path: &Path) -> Option<String> {
    let in_seconds = path.last_key().is_some_and(|key| key.ends_with("Seconds"));
    match (&node.value, expected) {
        (Value::Null, _) => Some("give it a value or remove the key".to_owned()),
        (Value::Text(text), "a whole number") if text.parse::<i64>().is_ok() => {
            Some("remove the quotes".to_owned())
        }
        (Value::Text(text), "a whole number")
            if in_seconds && text.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            Some("write the number of seconds alone, without a unit".to_owned())
        }
        (Value::Text(text), "true or false") if matches!(text.as_str(), "true" | "false") => {
            Some("remove the quotes".to_owned())
        }
        (Value::Bool(_) | Value::Number(..), "text") => Some("put it in quotes".to_owned()),
        (Value::Bool(_) | Value::Number(..) | Value::Text(_), "a list") => {
            Some("write each item on a line of its own after \"- \"".to_owned())
        }
        _ => None,
    }
}

/// Describes the value that was found, for a message.
pub(super) fn describe(node: &Node) -> String {
    match &node.value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(_, written) => format!("the number {written}"),
        Value::Text(text) => format!("the text {}", quoted(text)),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
    }
}

/// A text in quotes, shortened if it is long.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The name of a type as a noun: `RetryBackoff` becomes "a retry backoff".
pub(super) fn noun(type_name: &str) -> String {
    let mut words = String::new();
    for letter in type_name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    let article = if words.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns() {
        assert_eq!(noun("Effect"), "an effect");
        assert_eq!(noun("RetryBackoff"), "a retry backoff");
    }

    #[test]
    fn long_text_is_shortened() {
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
        assert_eq!(quoted(&"ä".repeat(61)), format!("\"{}\"…", "ä".repeat(60)));
    }
}

//! Writes values as YAML, in the plain style of handwritten configuration.

use std::fmt::Write as _;

use serde_json::Value;

/// Renders a value as the text of a file.
pub(crate) fn write(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, indent: usize, text: &mut String) {
    let margin = " ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let _ = write!(text, "{margin}{}:", scalar(&key.as_str().into()));
                nested(value, indent + 2, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut inner = String::new();
                block(item, indent + 2, &mut inner);
                let _ = write!(text, "{margin}- {}", inner.trim_start());
            }
        }
        _ => {
            let _ = writeln!(text, "{margin}{}", scalar(value));
        }
    }
}

fn nested(value: &Value, indent: usize, text: &mut String) {
    let is_block = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_block {
        text.push('\n');
        block(value, indent, text);
    } else {
        let _ = writeln!(text, " {}", scalar(value));
    }
}

/// Renders a value on one line. Text that YAML could parse as anything else is quoted.
pub(crate) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
        && !["true", "false", "null", "yes", "no", "on", "off"].contains(&text.to_ascii_lowercase().as_str())
}

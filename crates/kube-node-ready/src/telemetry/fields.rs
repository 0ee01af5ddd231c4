//! The fields of an event, together with those of the spans around it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

/// The name under which an event carries its message.
const MESSAGE: &str = "message";

/// Names and values, in insertion order.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Fields(Vec<(String, Value)>);

/// The message and fields of an event.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) message: String,
    pub(super) fields: Fields,
}

/// Keeps the fields of a span as JSON, so that their types are still known when an event is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanFields;

impl Said {
    /// Collects fields from the outermost span to the event; the value nearest to the event wins.
    pub(super) fn by<S>(event: &Event<'_>, context: &FmtContext<'_, S, SpanFields>) -> Self
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut fields = Fields::default();
        let target = event.metadata().target();
        if !super::OURS.iter().any(|ours| target.starts_with(ours)) {
            fields.put("target", target.into());
        }
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            if let Some(stored) = span.extensions().get::<FormattedFields<SpanFields>>() {
                fields.extend(Fields::from_json(&stored.fields));
            }
        }
        let mut own = Fields::default();
        event.record(&mut own);
        let message = own.take(MESSAGE).map(|value| as_text(&value).into_owned()).unwrap_or_default();
        fields.extend(own);
        Self { message, fields }
    }
}

impl Fields {
    /// Sets a field. A later value replaces an earlier one.
    pub(super) fn put(&mut self, name: &str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    fn extend(&mut self, other: Self) {
        for (name, value) in other.0 {
            self.put(&name, value);
        }
    }

    fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    fn to_json(&self) -> Result<String, fmt::Error> {
        serde_json::to_string(self).map_err(|_| fmt::Error)
    }

    fn visit(&mut self, field: &Field, value: Value) {
        self.put(field.name(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.visit(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.visit(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.visit(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.visit(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.visit(field, value.into());
    }

    /// JSON has neither infinity nor NaN.
    fn record_f64(&mut self, field: &Field, value: f64) {
        let is_number = value.is_finite();
        self.visit(field, if is_number { value.into() } else { value.to_string().into() });
    }

    /// Records an error with its causes, as one line of text.
    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        self.visit(field, text.into());
    }
}

impl<'writer> FormatFields<'writer> for SpanFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut all = Fields::default();
        fields.record(&mut all);
        writer.write_str(&all.to_json()?)
    }

    fn add_fields(&self, current: &'writer mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        let mut all = Fields::from_json(&current.fields);
        fields.record(&mut all);
        current.fields = all.to_json()?;
        Ok(())
    }
}

/// Strings without quotes, anything else as JSON.
pub(super) fn as_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string().into()
        }
    }
}

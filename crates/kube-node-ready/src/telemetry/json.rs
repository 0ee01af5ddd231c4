//! One JSON object a line, for machines.

use std::fmt;

use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

use super::fields::{Fields, Said, SpanFields};

/// Keys that every line has. A field with such a name gets a trailing underscore.
const RESERVED: [&str; 3] = ["level", "timestamp", "msg"];

#[derive(Debug, Clone, Copy)]
pub(super) struct Json {
    pub(super) clock: fn() -> Timestamp,
}

struct Line<'a> {
    level: &'static str,
    timestamp: String,
    message: &'a str,
    fields: &'a Fields,
}

impl<S> FormatEvent<S, SpanFields> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, SpanFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Said { message, fields } = Said::by(event, context);
        let line = Line {
            level: word(*event.metadata().level()),
            timestamp: format!("{:.3}", (self.clock)()),
            message: &message,
            fields: &fields,
        };
        let text = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{text}")
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        let [level, timestamp, message] = RESERVED;
        line.serialize_entry(level, self.level)?;
        line.serialize_entry(timestamp, &self.timestamp)?;
        line.serialize_entry(message, self.message)?;
        let is_there = |wanted: &str| self.fields.iter().any(|(name, _)| name == wanted);
        for (name, value) in self.fields.iter() {
            if !RESERVED.contains(&name) {
                line.serialize_entry(name, value)?;
                continue;
            }
            let renamed = format!("{name}_");
            if !is_there(&renamed) {
                line.serialize_entry(&renamed, value)?;
            }
        }
        line.end()
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::TRACE => "trace",
        Level::DEBUG => "debug",
        Level::INFO => "info",
        Level::WARN => "warn",
        Level::ERROR => "error",
    }
}

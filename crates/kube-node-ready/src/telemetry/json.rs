//! One JSON object a line, for machines.

use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

use super::fields::{Fields, Said, SpanFields};

/// What every line has. A field of such a name is written with a stroke after it.
const RESERVED: [&str; 3] = ["level", "timestamp", "msg"];

#[derive(Debug, Clone, Copy)]
pub(super) struct Json {
    pub(super) clock: fn() -> Timestamp,
}

struct Line(Fields);

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
        let mut line = Fields::default();
        line.put("level", word(*event.metadata().level()).into());
        line.put("timestamp", format!("{:.3}", (self.clock)()).into());
        line.put("msg", message.into());
        for (name, value) in fields.iter() {
            let name = if RESERVED.contains(&name) { format!("{name}_") } else { name.to_owned() };
            line.put(&name, value.clone());
        }
        let text = serde_json::to_string(&Line(line)).map_err(|_| fmt::Error)?;
        writeln!(writer, "{text}")
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|pair: (&str, &Value)| pair))
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

//! Short lines, for people.

use std::borrow::Cow;
use std::fmt;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

use super::fields::{Said, SpanFields, as_text};

#[derive(Debug, Clone, Copy)]
pub(super) struct Console {
    pub(super) clock: fn() -> Timestamp,
}

impl<S> FormatEvent<S, SpanFields> for Console
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
        let (word, colour) = word(*event.metadata().level());
        let (dim, bright) = if writer.has_ansi_escapes() {
            (Style::new().dimmed(), Style::new().bold().fg_color(Some(colour.into())))
        } else {
            (Style::new(), Style::new())
        };
        let time = (self.clock)().strftime("%H:%M:%SZ");
        write!(writer, "{dim}{time}{dim:#} {bright}{word}{bright:#} {}", harmless(&message))?;
        for (name, value) in fields.iter() {
            write!(writer, " {dim}{name}={dim:#}{}", quoted(&as_text(value)))?;
        }
        writeln!(writer)
    }
}

/// The words have the same width, so that messages start in the same column.
fn word(level: Level) -> (&'static str, AnsiColor) {
    match level {
        Level::TRACE => ("TRACE", AnsiColor::Magenta),
        Level::DEBUG => ("DEBUG", AnsiColor::Blue),
        Level::INFO => ("INFO ", AnsiColor::Green),
        Level::WARN => ("WARN ", AnsiColor::Yellow),
        Level::ERROR => ("ERROR", AnsiColor::Red),
    }
}

/// Escapes control characters. Text from a cluster may contain anything; it must not control the terminal or look like
/// a line of its own.
fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let escaped = |letter: char| {
        if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() }
    };
    text.chars().map(escaped).collect()
}

fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain =
        |letter: char| !letter.is_whitespace() && !letter.is_control() && !['"', '='].contains(&letter);
    if !text.is_empty() && text.chars().all(is_plain) { text.into() } else { format!("{text:?}").into() }
}

//! Logging: levels, output and format.

mod console;
mod fields;
mod json;

use std::io::{self, IsTerminal};
use std::time::SystemTime;

use anstream::{AutoStream, ColorChoice};
use anyhow::Context;
use jiff::Timestamp;
use knr_core::config::{Level, LogFormat};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

/// The Kubernetes client.
const CLIENT: &str = "kube_client";
/// Prefixes of this project's crate names.
const OURS: [&str; 2] = ["knr_", "kube_node_ready"];

/// Where log lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Standard output: the log is the output of the program.
    Stdout,
    /// Standard error: standard output is for the result of the command.
    Stderr,
}

/// A handle to the running log.
#[derive(Debug)]
pub(crate) struct Telemetry {
    filter: reload::Handle<Targets, Registry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    On,
    Off,
}

/// Starts logging. Without a format, a terminal gets text and everything else JSON.
pub(crate) fn init(level: Level, format: Option<LogFormat>, output: Output) -> anyhow::Result<Telemetry> {
    let (is_terminal, choice, writer) = match output {
        Output::Stdout => {
            let stream = io::stdout();
            (stream.is_terminal(), AutoStream::choice(&stream), BoxMakeWriter::new(io::stdout))
        }
        Output::Stderr => {
            let stream = io::stderr();
            (stream.is_terminal(), AutoStream::choice(&stream), BoxMakeWriter::new(io::stderr))
        }
    };
    let colour = match choice {
        ColorChoice::Never => Colour::Off,
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => Colour::On,
    };
    let fallback = if is_terminal { LogFormat::Console } else { LogFormat::Json };
    let (subscriber, telemetry) = subscriber(level, format.unwrap_or(fallback), colour, writer);
    tracing::subscriber::set_global_default(subscriber).context("the log was begun twice")?;
    Ok(telemetry)
}

impl Telemetry {
    /// Changes the log level.
    pub(crate) fn set_level(&self, level: Level) {
        // This fails only if the log is gone.
        let _ = self.filter.reload(filter(level));
    }
}

fn subscriber<W>(
    level: Level,
    format: LogFormat,
    colour: Colour,
    writer: W,
) -> (impl Subscriber + Send + Sync, Telemetry)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(fields::SpanFields)
        .with_writer(writer)
        .with_ansi(colour == Colour::On)
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Json => lines.event_format(json::Json { clock: now }).boxed(),
        LogFormat::Console => lines.event_format(console::Console { clock: now }).boxed(),
    };
    (Registry::default().with(filter).with(lines), Telemetry { filter: handle })
}

/// Log lines of libraries matter only if something is wrong, or at `trace`.
fn filter(level: Level) -> Targets {
    let (ours, theirs) = match level {
        Level::Trace => (LevelFilter::TRACE, LevelFilter::TRACE),
        Level::Debug => (LevelFilter::DEBUG, LevelFilter::WARN),
        Level::Info => (LevelFilter::INFO, LevelFilter::WARN),
        Level::Warn => (LevelFilter::WARN, LevelFilter::WARN),
        Level::Error => (LevelFilter::ERROR, LevelFilter::ERROR),
    };
    // The client puts whole response bodies into its warnings.
    let client = if level == Level::Trace { LevelFilter::TRACE } else { LevelFilter::ERROR };
    Targets::new()
        .with_default(theirs)
        .with_target(CLIENT, client)
        .with_targets(OURS.map(|target| (target, ours)))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis())
        .ok()
        .and_then(|millis| Timestamp::from_millisecond(millis).ok())
        .unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;

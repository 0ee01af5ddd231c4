use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tracing::{debug, error, info, info_span, trace, warn};

use super::*;

/// A writer that keeps everything written to it.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

fn written(level: Level, format: LogFormat, colour: Colour, say: impl FnOnce(&Telemetry)) -> String {
    let kept = Kept::default();
    let writer = kept.clone();
    let (subscriber, telemetry) = subscriber(level, format, colour, move || writer.clone());
    tracing::subscriber::with_default(subscriber, || say(&telemetry));
    kept.take()
}

/// Captures the log lines of this thread while it is alive.
pub(crate) struct Captured {
    kept: Kept,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Captured {
    pub(crate) fn start(level: Level) -> Self {
        let kept = Kept::default();
        let writer = kept.clone();
        let (subscriber, _) = subscriber(level, LogFormat::Json, Colour::Off, move || writer.clone());
        Self { kept, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines since the last call, without their timestamps.
    pub(crate) fn lines(&self) -> Vec<Value> {
        parsed(&self.kept.take())
    }

    /// The level and message of each line since the last call.
    pub(crate) fn messages(&self) -> Vec<(String, String)> {
        let word = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
        self.lines().iter().map(|line| (word(line, "level"), word(line, "msg"))).collect()
    }
}

fn json_lines(level: Level, say: impl FnOnce(&Telemetry)) -> Vec<Value> {
    parsed(&written(level, LogFormat::Json, Colour::Off, say))
}

/// The lines without their timestamps, which have to be valid.
fn parsed(text: &str) -> Vec<Value> {
    let without_time = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
        time.as_str().unwrap().parse::<Timestamp>().unwrap();
        line
    };
    text.lines().map(without_time).collect()
}

fn json_line(say: impl FnOnce()) -> Value {
    let mut lines = json_lines(Level::Info, |_| say());
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// The lines without their timestamps.
fn console_lines(say: impl FnOnce()) -> Vec<String> {
    let text = written(Level::Info, LogFormat::Console, Colour::Off, |_| say());
    text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

fn noon() -> Timestamp {
    "2024-01-23T12:00:00.0456Z".parse().unwrap()
}

fn at_noon<E>(format: E, say: impl FnOnce()) -> String
where
    E: tracing_subscriber::fmt::FormatEvent<Registry, fields::SpanFields> + Send + Sync + 'static,
{
    let kept = Kept::default();
    let writer = kept.clone();
    let layer = tracing_subscriber::fmt::layer()
        .fmt_fields(fields::SpanFields)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .event_format(format);
    tracing::subscriber::with_default(Registry::default().with(layer), say);
    kept.take()
}

#[test]
fn a_line_is_level_time_message_and_fields_in_this_order() {
    let say = || info!(node = "node-1", duration = ?Duration::from_millis(45_200), "Worker completed");
    assert_eq!(
        at_noon(json::Json { clock: noon }, say),
        "{\"level\":\"info\",\"timestamp\":\"2024-01-23T12:00:00.045Z\",\"msg\":\"Worker completed\",\
         \"node\":\"node-1\",\"duration\":\"45.2s\"}\n"
    );
    assert_eq!(
        at_noon(console::Console { clock: noon }, say),
        "12:00:00Z INFO  Worker completed node=node-1 duration=45.2s\n"
    );
}

#[test]
fn levels_are_in_lower_case() {
    let lines = json_lines(Level::Trace, |_| {
        trace!("a");
        debug!("a");
        info!("a");
        warn!("a");
        error!("a");
    });
    let levels: Vec<&str> = lines.iter().map(|line| line["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["trace", "debug", "info", "warn", "error"]);
}

#[test]
fn values_keep_their_type_and_strange_ones_become_text() {
    let cause = io::Error::other("no route");
    let error = anyhow::Error::from(cause).context("not reached");
    let line = json_line(|| {
        let error: &(dyn std::error::Error + 'static) = error.as_ref();
        info!(
            text = "a", shown = %"b", yes = true, less = -1, more = u64::MAX, part = 0.5, none = f64::NAN,
            huge = u128::MAX, error, r#type = "raw", nothing = tracing::field::Empty, "m"
        );
    });
    assert_eq!(
        line,
        json!({
            "level": "info", "msg": "m", "text": "a", "shown": "b", "yes": true, "less": -1,
            "more": u64::MAX, "part": 0.5, "none": "NaN", "huge": u128::MAX.to_string(),
            "error": "not reached: no route", "type": "raw",
        })
    );
}

#[test]
fn a_text_cannot_break_out_of_its_line() {
    let evil = "\"}\n{\"level\":\"info\"\u{1b}[2J\\\u{2028}\0";
    assert_eq!(
        json_line(|| info!(node = evil, "{evil}")),
        json!({"level": "info", "msg": evil, "node": evil})
    );
    let lines = console_lines(|| info!(node = evil, "{evil}"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(!lines[0].contains(char::is_control), "{lines:?}");
    assert!(lines[0].starts_with(r#"INFO  "}\n{"level":"info"\u{1b}[2J"#), "{lines:?}");
}

#[test]
fn fields_of_spans_are_there_and_the_nearest_wins() {
    let line = json_line(|| {
        let outer = info_span!("outer", node = "a", try_ = 1, late = tracing::field::Empty).entered();
        outer.record("late", 7);
        let _inner = info_span!("inner", node = "b", pod = "p").entered();
        info!(pod = "q", "m");
    });
    assert_eq!(line, json!({"level": "info", "msg": "m", "node": "b", "try_": 1, "late": 7, "pod": "q"}));
    let lines = console_lines(|| {
        let _span = info_span!("outer", node = "a").entered();
        info!(pod = "q", "m");
    });
    assert_eq!(lines, ["INFO  m node=a pod=q"]);
}

#[test]
fn no_field_takes_the_place_of_level_time_or_message() {
    let text = written(Level::Info, LogFormat::Json, Colour::Off, |_| {
        info!(level = "high", timestamp = 1, msg = "other", "m");
    });
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["level"], &line["msg"]), (&json!("info"), &json!("m")));
    assert_eq!(
        (&line["level_"], &line["timestamp_"], &line["msg_"]),
        (&json!("high"), &json!(1), &json!("other"))
    );
}

#[test]
fn a_value_with_a_space_is_quoted_for_people() {
    assert_eq!(
        console_lines(|| warn!(why = "no route", empty = "", sum = "a=b", quote = "\"", count = 3, "m m")),
        [r#"WARN  m m why="no route" empty="" sum="a=b" quote="\"" count=3"#]
    );
}

#[test]
fn colours_are_for_terminals() {
    let say = |_: &Telemetry| info!(node = "a", "m");
    assert!(written(Level::Info, LogFormat::Console, Colour::On, say).contains("\u{1b}["));
    assert!(!written(Level::Info, LogFormat::Console, Colour::Off, say).contains('\u{1b}'));
    assert!(!written(Level::Info, LogFormat::Json, Colour::On, say).contains("\\u001b"));
}

/// The lines of this project and of libraries that are logged at a level.
fn heard(level: Level) -> Vec<String> {
    let lines = json_lines(level, |_| {
        debug!("ours");
        info!(target: "knr_k8s::watch", "ours");
        error!("ours");
        for_libraries();
    });
    let message = |line: &Value| {
        let target = line.get("target").map_or("", |target| target.as_str().unwrap());
        format!("{} {}{target}", line["level"].as_str().unwrap(), line["msg"].as_str().unwrap())
    };
    lines.iter().map(message).collect()
}

fn for_libraries() {
    debug!(target: "hyper::proto", "");
    info!(target: "kube_client::client", "");
    info!(target: "tower::buffer", "");
    info!(target: "hickory_resolver", "");
    warn!(target: "kube_runtime::watcher", "");
}

#[test]
fn libraries_are_heard_when_something_is_wrong_or_everything_is_wanted() {
    assert_eq!(heard(Level::Info), ["info ours", "error ours", "warn kube_runtime::watcher"]);
    assert_eq!(heard(Level::Debug).len(), 4);
    assert_eq!(heard(Level::Warn), ["error ours", "warn kube_runtime::watcher"]);
    assert_eq!(heard(Level::Error), ["error ours"]);
    assert_eq!(heard(Level::Trace).len(), 8);
}

#[test]
fn the_level_can_be_changed_at_any_time() {
    let lines = json_lines(Level::Info, |telemetry| {
        debug!("no");
        telemetry.set_level(Level::Debug);
        debug!("yes");
        telemetry.set_level(Level::Error);
        warn!("no");
    });
    let messages: Vec<&Value> = lines.iter().map(|line| &line["msg"]).collect();
    assert_eq!(messages, ["yes"]);
}

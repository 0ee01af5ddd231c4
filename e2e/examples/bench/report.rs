//! Measurements, limits, and whether the limits were kept.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fs_err as fs;

/// The whole result.
pub(crate) struct Report {
    machine: String,
    sections: Vec<Section>,
}

struct Section {
    title: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

struct Row {
    what: String,
    measured: String,
    limit: String,
    kept: Option<bool>,
}

/// How a number is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    Times,
    Count,
    Seconds,
    Mebibytes,
    Megabytes,
}

impl Unit {
    fn write(self, value: f64) -> String {
        match self {
            Self::Times => format!("{value:.2} x"),
            Self::Count => format!("{value}"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Mebibytes => format!("{value:.1} MiB"),
            Self::Megabytes => format!("{value:.1} MB"),
        }
    }
}

impl Report {
    /// Starts a report, with the machine and the size of the program.
    pub(crate) fn new(product: &Path) -> Result<Self> {
        let mut report = Self { machine: machine()?, sections: Vec::new() };
        report.section("The program");
        #[allow(clippy::cast_precision_loss)] // far below what a float holds exactly
        report.at_most(
            "size of the program",
            Unit::Megabytes,
            fs::metadata(product)?.len() as f64 / 1e6,
            15.0,
        );
        Ok(report)
    }

    /// Starts a section; rows and notes go to the last one.
    pub(crate) fn section(&mut self, title: &str) {
        self.sections.push(Section { title: title.to_owned(), rows: Vec::new(), notes: Vec::new() });
    }

    /// Adds a number that must not be larger than the limit.
    pub(crate) fn at_most(&mut self, what: &str, unit: Unit, measured: f64, limit: f64) {
        let (shown, kept) = (format!("at most {}", unit.write(limit)), measured <= limit);
        self.row(what, unit.write(measured), shown, Some(kept));
    }

    /// Adds a number that must not be smaller than the limit.
    pub(crate) fn at_least(&mut self, what: &str, unit: Unit, measured: f64, limit: f64) {
        let (shown, kept) = (format!("at least {}", unit.write(limit)), measured >= limit);
        self.row(what, unit.write(measured), shown, Some(kept));
    }

    /// Adds a requirement that is not a number.
    pub(crate) fn demand(&mut self, what: &str, measured: String, limit: &str, kept: bool) {
        self.row(what, measured, limit.to_owned(), Some(kept));
    }

    /// Adds a measurement without a limit.
    pub(crate) fn add(&mut self, what: &str, measured: String) {
        self.row(what, measured, String::new(), None);
    }

    /// Adds a line below the table.
    pub(crate) fn note(&mut self, note: String) {
        if let Some(section) = self.sections.last_mut() {
            section.notes.push(note);
        }
    }

    fn row(&mut self, what: &str, measured: String, limit: String, kept: Option<bool>) {
        let shown = format!("  {what}: {measured}{}", if kept == Some(false) { " MISSED" } else { "" });
        eprintln!("{shown}");
        if let Some(section) = self.sections.last_mut() {
            section.rows.push(Row { what: what.to_owned(), measured, limit, kept });
        }
    }

    /// Returns true if no limit was missed.
    pub(crate) fn all_kept(&self) -> bool {
        self.sections.iter().flat_map(|section| &section.rows).all(|row| row.kept != Some(false))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.machine)?;
        for section in &self.sections {
            writeln!(out, "\n{}", section.title)?;
            for Row { what, measured, limit, kept } in &section.rows {
                let verdict = match kept {
                    Some(true) => "kept",
                    Some(false) => "MISSED",
                    None => "",
                };
                let line = format!("  {what:<50} {measured:>14}  {limit:<18} {verdict}");
                writeln!(out, "{}", line.trim_end())?;
            }
            for note in &section.notes {
                writeln!(out, "  {note}")?;
            }
        }
        Ok(())
    }
}

fn machine() -> Result<String> {
    let cpu = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let memory = fs::read_to_string("/proc/meminfo")?;
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let kib: u64 = total.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(format!(
        "{} processors ({}), {} GiB of memory, Linux {}",
        std::thread::available_parallelism()?,
        model.trim_start_matches([' ', '\t', ':']),
        (kib + 512 * 1024) / (1024 * 1024),
        kernel.trim(),
    ))
}

/// The median, or NaN if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// The value below which this fraction of all values lies.
pub(crate) fn percentile(values: &[Duration], part: f64) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort();
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let position = ((sorted.len() as f64 * part).ceil() as usize).saturating_sub(1);
    sorted.get(position).copied().unwrap_or_default()
}

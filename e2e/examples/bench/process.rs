//! The kernel's statistics about a process.

use std::time::Duration;

use anyhow::{Context, Result};
use fs_err as fs;

/// The unit of time in `/proc`, on every platform.
const TICK: Duration = Duration::from_millis(10);

/// The processor time that a process has used.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in parentheses, may contain anything.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks: u32 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
    Ok(TICK * ticks)
}

/// Memory in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

/// The memory that a process holds.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let read = |field: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    Ok(Memory { now: read("VmRSS:")?, peak: read("VmHWM:")? })
}

/// The highest peak memory among the live processes whose program has this path and whose last argument is this one.
pub(crate) fn peak_of(program: &str, argument: &str) -> Option<u64> {
    let processes = fs::read_dir("/proc").ok()?;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let matching = pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
        words.first().is_some_and(|word| word.ends_with(program.as_bytes()))
            && words.last() == Some(&argument.as_bytes())
    });
    matching.filter_map(|pid| memory(pid).ok()).map(|memory| memory.peak).max()
}

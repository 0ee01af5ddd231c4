//! Measures how long a person waits for the lab: `make bench-lab`, and with `COLD=1` also the first build of all
//! tools, in caches of its own. Reports, asserts nothing.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{Home, Lab};

const NAME: &str = "bench";

fn main() -> Result<()> {
    let mut rows = Vec::new();
    if std::env::args().any(|argument| argument == "--cold") {
        rows.push(("first build of all tools", "900", cold_build()?));
    }
    let home = Home::from_env()?;
    lab::prepare(&home)?;
    if let Ok(old) = Lab::open(&home, NAME) {
        old.down()?;
    }
    let (lab, took) = timed(|| Lab::builder(&home, NAME).nodes(3).up())?;
    rows.push(("up with 3 nodes, Ready, DNS serving", "45", took));
    let (node, took) = timed(|| lab.add_node("n4").start())?;
    rows.push(("a further node, Ready", "10", took));
    rows.push(("reboot, Ready with the new boot ID", "-", timed(|| node.reboot())?.1));
    rows.push(("down", "-", timed(|| lab.down())?.1));
    println!("{:<40} {:>10} {:>10}", "", "seconds", "at most");
    for (what, limit, took) in rows {
        println!("{what:<40} {:>10.1} {limit:>10}", took.as_secs_f32());
    }
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let value = work()?;
    Ok((value, start.elapsed()))
}

/// Builds everything with empty caches, Go's own included, and throws the result away.
fn cold_build() -> Result<Duration> {
    let folder = std::env::temp_dir().join(format!("lab-cold-{}", std::process::id()));
    let lab = std::env::current_exe()?.with_file_name("../lab");
    let (status, took) = timed(|| {
        Command::new(&lab)
            .arg("build")
            .env("LAB_HOME", folder.join("home"))
            .env("GOCACHE", folder.join("cache"))
            .env("GOMODCACHE", folder.join("modules"))
            .env("GOFLAGS", "-modcacherw") // or the modules could not be removed again
            .status()
            .with_context(|| lab.display().to_string())
    })?;
    std::fs::remove_dir_all(&folder)?;
    ensure!(status.success(), "`lab build` failed");
    Ok(took)
}

//! Makes every mistake of a list in a copy of the project, and sees whether the simulation notices.
//!
//! Arguments choose among them: `make mistakes ARGS='B4 B5'` makes those whose names contain one of these.

#[path = "../mistakes/list.rs"]
mod list;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use list::{MISTAKES, Mistake};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<ExitCode, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let scratch = root.join("target/mistakes");
    let tree = scratch.join("tree");
    copy_project(&root, &tree)?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |mistake: &&Mistake| {
        wanted.is_empty() || wanted.iter().any(|part| mistake.name.contains(part.as_str()))
    };
    let mistakes: Vec<&Mistake> = MISTAKES.iter().filter(is_wanted).collect();
    println!("{} mistakes, each in a copy of the rules; what notices it:", mistakes.len());
    let mut unnoticed = 0;
    for mistake in &mistakes {
        let caught = make(mistake, &tree, &scratch.join("target"))?;
        unnoticed += usize::from(caught.is_none());
        println!("{:<66} {}", mistake.name, caught.as_deref().unwrap_or("NOTHING"));
    }
    println!("{} of {} noticed", mistakes.len() - unnoticed, mistakes.len());
    Ok(if unnoticed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn copy_project(root: &Path, tree: &Path) -> Result<(), Failure> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    let files = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    for file in String::from_utf8(files.stdout)?.lines() {
        let target = tree.join(file);
        fs::create_dir_all(target.parent().unwrap_or(tree))?;
        fs::copy(root.join(file), target)?;
    }
    Ok(())
}

/// Makes one mistake, and says what noticed it.
fn make(mistake: &Mistake, tree: &Path, target: &Path) -> Result<Option<String>, Failure> {
    let file: PathBuf = tree.join(mistake.file);
    let right = fs::read_to_string(&file)?;
    if right.matches(mistake.right).count() != 1 {
        return Err(format!("{}: {:?} is not there exactly once", mistake.file, mistake.right).into());
    }
    fs::write(&file, right.replace(mistake.right, mistake.wrong))?;
    let caught = simulate(tree, target);
    fs::write(&file, right)?;
    caught
}

fn simulate(tree: &Path, target: &Path) -> Result<Option<String>, Failure> {
    let cargo = |args: &[&str]| {
        let mut command = Command::new("cargo");
        command
            .args(["--locked", "--quiet"])
            .args(args)
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_INCREMENTAL", "1");
        command.output()
    };
    let built = cargo(&["build", "--release", "-p", "knr-sim"])?;
    if !built.status.success() {
        return Err(format!("does not compile:\n{}", String::from_utf8_lossy(&built.stderr)).into());
    }
    let attempts = [&["--exhaustive"][..], &["--seeds", "4000"], &["--seeds", "16000", "--from", "4000"]];
    for arguments in attempts {
        let run = Command::new(target.join("release/sim")).args(arguments).output()?;
        if !run.status.success() {
            let said = String::from_utf8_lossy(&run.stdout).into_owned();
            let story = said
                .lines()
                .find(|line| line.starts_with("seed ") || line.contains(" with ["))
                .unwrap_or("it panicked");
            return Ok(Some(story.to_owned()));
        }
    }
    Ok(None)
}

//! Applies each mistake in the list to a copy of the project, and checks that the simulation detects it: by the rule that
//! the list names, and in a run that breaks no rule without the mistake.
//!
//! Arguments filter the list: `make mistakes ARGS='B4 B5'` applies the mistakes whose names contain one of them.

#[path = "../mistakes/list.rs"]
mod list;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use list::{MISTAKES, Mistake};

type Failure = Box<dyn std::error::Error>;

/// The simulation in a copy of the project.
struct Lab {
    tree: PathBuf,
    target: PathBuf,
    /// The simulation without any mistake.
    clean: PathBuf,
}

/// What became of a mistake.
enum Found {
    Nothing,
    /// What the compiler says.
    DoesNotCompile(String),
    Noticed(Notice),
}

/// How a mistake was noticed.
struct Notice {
    /// The first line of the story.
    headline: String,
    /// Runs that broke a rule earlier, and do so without the mistake as well. They prove nothing.
    red_anyway: Vec<String>,
}

fn main() -> Result<ExitCode, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let lab = Lab::new(&root)?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |mistake: &&Mistake| {
        wanted.is_empty() || wanted.iter().any(|part| mistake.name.contains(part.as_str()))
    };
    let mistakes: Vec<&Mistake> = MISTAKES.iter().filter(is_wanted).collect();
    println!("{} mistakes, each in a copy of the rules; what notices it:", mistakes.len());
    let mut failed = 0;
    for mistake in &mistakes {
        let found = lab.make(mistake)?;
        println!("{:<66} {found}", mistake.name);
        let is_right = matches!(&found, Found::Noticed(notice) if notice.is_by(mistake.noticed_by));
        failed += usize::from(!is_right);
        if matches!(found, Found::Noticed(_)) && !is_right {
            println!("  NOT AS IT SHOULD BE: expected {:?}", mistake.noticed_by);
        }
    }
    println!("{} of {} noticed as they should be", mistakes.len() - failed, mistakes.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Notice {
    /// Returns whether one of these rules noticed it, and no run is red anyway. Any rule will do if none is named.
    fn is_by(&self, rules: &[&str]) -> bool {
        let broken = rule(&self.headline);
        self.red_anyway.is_empty() && (rules.is_empty() || rules.contains(&broken))
    }
}

/// Returns the rule in a headline: `seed 7: L3, at once: ...` or `Sound with [..]: L1: ...`.
fn rule(headline: &str) -> &str {
    let rest = match headline.rsplit_once("]: ") {
        Some((_, rest)) if headline.contains(" with [") => rest,
        _ => headline.split_once(": ").map_or("", |(_, rest)| rest),
    };
    rest.split(": ").next().unwrap_or_default()
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("NOTHING"),
            Self::DoesNotCompile(said) => write!(f, "DOES NOT COMPILE\n{said}"),
            Self::Noticed(notice) => notice.fmt(f),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline)?;
        self.red_anyway.iter().try_for_each(|run| write!(f, "\n  RED ANYWAY: {run}"))
    }
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

impl Lab {
    /// Copies the project, and builds its simulation without any mistake.
    fn new(root: &Path) -> Result<Self, Failure> {
        let scratch = root.join("target/mistakes");
        let lab =
            Self { tree: scratch.join("tree"), target: scratch.join("target"), clean: scratch.join("clean") };
        copy_project(root, &lab.tree)?;
        if let Err(said) = lab.build()? {
            return Err(format!("without any mistake it does not compile:\n{said}").into());
        }
        fs::copy(lab.target.join("release/sim"), &lab.clean)?;
        Ok(lab)
    }

    /// Builds the simulation. The inner error is what the compiler says.
    fn build(&self) -> Result<Result<(), String>, Failure> {
        let built = Command::new("cargo")
            .args(["--locked", "--quiet", "build", "--release", "-p", "knr-sim"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "1")
            .output()?;
        let said = || String::from_utf8_lossy(&built.stderr).into_owned();
        Ok(if built.status.success() { Ok(()) } else { Err(said()) })
    }

    /// Makes one mistake, and returns what became of it.
    fn make(&self, mistake: &Mistake) -> Result<Found, Failure> {
        let file = self.tree.join(mistake.file);
        let right = fs::read_to_string(&file)?;
        if right.matches(mistake.right).count() != 1 {
            return Err(format!("{}: {:?} is not there exactly once", mistake.file, mistake.right).into());
        }
        fs::write(&file, right.replace(mistake.right, mistake.wrong))?;
        let built = self.build();
        fs::write(&file, right)?;
        match built? {
            Ok(()) => self.simulate(),
            Err(said) => Ok(Found::DoesNotCompile(said)),
        }
    }

    fn simulate(&self) -> Result<Found, Failure> {
        let mut red_anyway = Vec::new();
        // Most mistakes are noticed within a few hundred seeds.
        let attempts = [
            &["--exhaustive"][..],
            &["--seeds", "500"],
            &["--seeds", "3500", "--from", "500"],
            &["--seeds", "16000", "--from", "4000"],
        ];
        for arguments in attempts {
            for headline in headlines(&self.target.join("release/sim"), arguments)? {
                if self.is_red_anyway(&headline)? {
                    red_anyway.push(headline);
                } else {
                    return Ok(Found::Noticed(Notice { headline, red_anyway }));
                }
            }
        }
        Ok(Found::Nothing)
    }

    /// Returns whether the same run breaks a rule without the mistake.
    fn is_red_anyway(&self, headline: &str) -> Result<bool, Failure> {
        let seed = headline.strip_prefix("seed ").and_then(|rest| rest.split(':').next());
        Ok(match seed {
            Some(seed) => !headlines(&self.clean, &["--seed", seed])?.is_empty(),
            None => headlines(&self.clean, &["--exhaustive"])?.iter().any(|known| known == headline),
        })
    }
}

/// Runs a simulation, and returns the first line of each story.
fn headlines(program: &Path, arguments: &[&str]) -> Result<Vec<String>, Failure> {
    let run = Command::new(program).arg("--headlines").args(arguments).output()?;
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let broken: Vec<String> =
        said.lines().filter_map(|line| line.strip_prefix("broken: ")).map(str::to_owned).collect();
    if broken.is_empty() && !run.status.success() {
        return Err(format!("{} {arguments:?} ended without a result", program.display()).into());
    }
    Ok(broken)
}

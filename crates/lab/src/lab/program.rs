//! Programs of others that belong to a lab: they run beside the cluster and go down with it.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use fs_err as fs;
use rustix::process::Signal;

use super::Lab;
use crate::names;
use crate::process::{self, Daemon};

/// A program on this machine that belongs to a lab. It runs until it ends, is killed, or the lab goes down.
#[derive(Debug, Clone)]
pub struct Program {
    daemon: Daemon,
}

impl Lab {
    /// Starts a program that belongs to this lab. It gets the environment variables that were set on the command and
    /// nothing else but `PATH`; what it writes is appended to a log that bears its name.
    pub fn spawn(&self, name: &str, command: Command) -> Result<Program> {
        names::check("program", name)?;
        let _lock = self.lock()?;
        let role = format!("program/{name}");
        let log = self.log(&role);
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(Program { daemon: process::spawn(self.owner(), &role, &log, command)? })
    }
}

impl Program {
    /// The file that holds what it has written, earlier runs of the same name included.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.daemon.log()
    }

    /// Its process, which may have ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.daemon.exit_status()
    }

    /// Ends it without asking (SIGKILL), also if it is frozen, and waits until it is gone.
    pub fn kill(&self) -> Result<()> {
        self.daemon.signal(Signal::KILL)?;
        self.wait(process::KILL_LIMIT)?;
        Ok(())
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) -> Result<()> {
        self.daemon.signal(Signal::TERM)
    }

    /// Stops it where it is (SIGSTOP), as a machine does that is out of breath.
    pub fn freeze(&self) -> Result<()> {
        self.daemon.signal(Signal::STOP)
    }

    /// Lets it go on after [`Program::freeze`] (SIGCONT).
    pub fn thaw(&self) -> Result<()> {
        self.daemon.signal(Signal::CONT)
    }

    /// Waits until it has ended and says how.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        process::wait_for("the end of a program", limit, &[], || Ok(self.exit_status()))
            .with_context(|| format!("the program does not end{}", self.daemon.log_tail()))
    }
}

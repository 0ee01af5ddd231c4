//! A backup of everything that a cluster has stored, and the way back to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use fs_err as fs;

use super::Lab;
use crate::control_plane::{self, Component};
use crate::process;
use crate::progress::Step;

impl Lab {
    /// Keeps a copy of what etcd has stored, for [`Lab::restore`], and forgets an earlier one. etcd stands still meanwhile.
    pub fn back_up(&self) -> Result<()> {
        let _lock = self.lock()?;
        let step = Step::begin("making a backup");
        process::kill(self.owner(), |role| role == Component::Etcd.tool().name())?;
        copy(&self.store(), &self.backup())?;
        let etcd = control_plane::start(self, Component::Etcd)?;
        control_plane::wait_for_api(self, &[&etcd])?;
        step.done();
        Ok(())
    }

    /// Puts the last backup back in place of all that has happened since. The whole control plane is ended for it and started
    /// again, as Kubernetes advises; nodes and programs are left alone. Versions of objects go back too, so
    /// whoever watches from a version of the time between hears nothing until new versions have come that far.
    pub fn restore(&self) -> Result<()> {
        let _lock = self.lock()?;
        ensure!(self.backup().exists(), "lab {} has no backup", self.name());
        let step = Step::begin("restoring the backup");
        let names = Component::ALL.map(|component| component.tool().name());
        process::kill(self.owner(), |role| names.iter().any(|name| name == role))?;
        copy(&self.backup(), &self.store())?;
        let etcd = control_plane::start(self, Component::Etcd)?;
        let api = control_plane::start(self, Component::ApiServer)?;
        control_plane::wait_for_api(self, &[&etcd, &api])?;
        control_plane::start(self, Component::ControllerManager)?;
        control_plane::start(self, Component::Scheduler)?;
        step.done();
        Ok(())
    }

    /// Where etcd keeps its data, see its flags.
    fn store(&self) -> PathBuf {
        self.folder().join("etcd")
    }

    fn backup(&self) -> PathBuf {
        self.folder().join("etcd-backup")
    }
}

/// Makes one folder a copy of another.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    process::run(Command::new("cp").arg("--archive").args([from, to]))?;
    Ok(())
}

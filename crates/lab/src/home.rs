//! Where the lab keeps its files: built tools, images, and the state of each lab.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;
use serde::Serialize;

/// The folder of all labs of one user: `$LAB_HOME`, or `kube-node-ready-lab` in the user's cache folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// The home given by the environment.
    pub fn from_env() -> Result<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = variable("LAB_HOME")
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("kube-node-ready-lab")))
            .or_else(|| Some(variable("HOME")?.join(".cache/kube-node-ready-lab")))
            .context("no place for the lab's files: set LAB_HOME or HOME")?;
        Self::at(&root)
    }

    /// A home in the given folder, which is made if it is missing.
    pub fn at(root: &Path) -> Result<Self> {
        fs::create_dir_all(root)?;
        Ok(Self { root: fs::canonicalize(root)? })
    }

    /// Built programs, a folder for each set of pins.
    #[must_use]
    pub fn tools(&self) -> PathBuf {
        self.root.join("tools")
    }

    /// Images that every node gets.
    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(crate) fn labs(&self) -> PathBuf {
        self.root.join("labs")
    }

    /// Everything that belongs to the lab of this name, and goes with it.
    #[must_use]
    pub fn lab(&self, name: &str) -> PathBuf {
        self.labs().join(name)
    }

    /// Held while a lab is made, changed or removed; it ends with the returned file, or with the process. It is kept
    /// outside the lab's folder, which comes and goes.
    pub(crate) fn lock_lab(&self, name: &str) -> Result<File> {
        if let Some(lock) = self.try_lock(name)? {
            return Ok(lock);
        }
        eprintln!("waiting for another process that is changing lab {name}");
        let file = self.lock_file(name)?;
        file.lock()?;
        Ok(file)
    }

    /// A lock of this name, unless somebody else has it.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<File>> {
        let file = self.lock_file(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(err)) => Err(err.into()),
        }
    }

    fn lock_file(&self, name: &str) -> Result<File> {
        let folder = self.root.join("locks");
        fs::create_dir_all(&folder)?;
        Ok(fs::File::create(folder.join(name))?.into_parts().0)
    }
}

/// Writes a state file. It is renamed into place: a reader, or a crash, never sees half of it.
pub(crate) fn save_state(path: &Path, state: &impl Serialize) -> Result<()> {
    let fresh = path.with_extension("json.new");
    fs::write(&fresh, serde_json::to_vec_pretty(state)?)?;
    Ok(fs::rename(&fresh, path)?)
}

/// Bytes as file names show them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

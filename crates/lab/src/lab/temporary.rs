//! A lab for the length of a test.

use std::fs::File;
use std::ops::Deref;

use anyhow::{Context, Result, bail};

use super::{Lab, LabBuilder};

/// A lab that goes down when it is dropped, also when a test panics. With `LAB_KEEP` set to anything it stays up
/// for inspection. The next run of the test removes it and starts a new one.
#[derive(Debug)]
pub struct TemporaryLab {
    lab: Lab,
    /// Held as long as the lab is in use.
    _in_use: File,
}

impl LabBuilder {
    /// Makes a fresh lab that goes down when it is dropped. What an earlier run left under this name is removed first,
    /// and so is what did come up if this fails. Every test needs a name of its own: they run side by side.
    pub fn temporary(self) -> Result<TemporaryLab> {
        let (home, name) = (self.home.clone(), self.name.clone());
        let Some(in_use) = home.try_lock(&format!("{name}.in-use"))? else {
            bail!("lab {name} is in use by another test: give each test a name of its own");
        };
        if let Some(old) = Lab::find(&home, &name)? {
            old.down()?;
        }
        let made = self.up();
        // What to remove, if it failed half-way.
        let lab = made.as_ref().ok().cloned().or_else(|| Lab::open(&home, &name).ok());
        let guard = lab.map(|lab| TemporaryLab { lab, _in_use: in_use });
        made?;
        guard.with_context(|| format!("lab {name} is gone"))
    }
}

impl Deref for TemporaryLab {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Drop for TemporaryLab {
    fn drop(&mut self) {
        if std::env::var_os("LAB_KEEP").is_some_and(|value| !value.is_empty()) {
            eprintln!("lab {} stays up: LAB_KEEP is set", self.lab.name());
        } else if let Err(err) = self.lab.down() {
            eprintln!("cannot end lab {}: {err:#}", self.lab.name());
        }
    }
}

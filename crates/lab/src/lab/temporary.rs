//! A lab for the length of a test.

use std::ops::Deref;

use anyhow::Result;

use super::{Lab, LabBuilder};

/// A lab that goes down when it is dropped, also when a test panics. With `LAB_KEEP` set to anything it stays up
/// for somebody to look at; the next run of the test starts afresh all the same.
#[derive(Debug)]
pub struct TemporaryLab(Lab);

impl LabBuilder {
    /// Makes a fresh lab that goes down when it is dropped. One of the same name, in whatever state, is removed
    /// first, and so is what did come up if this fails.
    pub fn temporary(self) -> Result<TemporaryLab> {
        let (home, name) = (self.home.clone(), self.name.clone());
        if let Some(old) = Lab::find(&home, &name)? {
            old.down()?;
        }
        self.up().map(TemporaryLab).inspect_err(|_| drop(Lab::open(&home, &name).map(TemporaryLab)))
    }
}

impl Deref for TemporaryLab {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Drop for TemporaryLab {
    fn drop(&mut self) {
        if std::env::var_os("LAB_KEEP").is_some_and(|value| !value.is_empty()) {
            eprintln!("lab {} stays up: LAB_KEEP is set", self.0.name());
        } else if let Err(err) = self.0.down() {
            eprintln!("cannot end lab {}: {err:#}", self.0.name());
        }
    }
}

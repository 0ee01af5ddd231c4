//! Worker images that a node does not have, or cannot run.

use anyhow::Result;
use fs_err as fs;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::node::Node;
use crate::product::{self, REPOSITORY, TAG};

const FOREIGN: (&str, &str) = ("lab.local/foreign", "1");

impl Node<'_> {
    /// Removes the product's image from this node only.
    pub fn remove_image(&self) -> Result<()> {
        let name = format!("{REPOSITORY}:{TAG}");
        self.machine()?.exec(["ctr", "--namespace", "k8s.io", "images", "remove", "--sync", &name])?;
        Ok(())
    }
}

impl Cluster {
    /// Loads the product's image onto every node again.
    pub fn restore_image(&self) -> Result<()> {
        self.load_image(&product::image()?)
    }

    /// Loads an image with a program for another architecture onto every node, and returns it as `worker.image`.
    pub fn load_foreign_image(&self) -> Result<Value> {
        let (repository, tag) = FOREIGN;
        let (program, archive) = (self.folder().join("foreign"), self.folder().join("foreign.tar"));
        fs::write(&program, foreign_program())?;
        let tags = [&*format!("{repository}:{tag}")];
        lab::Image { program: &program, tags: &tags, arguments: &[], user: Some(product::USER) }
            .write(&archive)?;
        self.load_image(&archive)?;
        Ok(json!({ "repository": repository, "tag": tag, "pullPolicy": "Never" }))
    }
}

/// The ELF header of a program for a machine that does not exist: no kernel runs it, and no emulator claims it.
fn foreign_program() -> [u8; 64] {
    let mut header = [0; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[16] = 2; // an executable
    header[18..20].fill(0xff); // for machine 65535
    header[20] = 1;
    header[52] = 64; // the size of this header
    header
}

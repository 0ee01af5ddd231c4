//! Writes the schema and the reference of the configuration and the page about failures into `docs/`.
#![allow(clippy::disallowed_methods, reason = "this is no part of the rules: its purpose is to write files")]

mod failures;
mod reference;
mod yaml;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::create_dir_all(&docs)?;
    for (name, text) in reference::files() {
        std::fs::write(docs.join(name), text)?;
    }
    Ok(())
}

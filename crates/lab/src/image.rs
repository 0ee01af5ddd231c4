//! Images without a registry: archives made from static programs, or brought by the user.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use fs_err as fs;
use fs_err::File;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::home::{self, Home};
use crate::host;
use crate::tools::Tool;

/// The container that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "lab.local/pause:1";
/// The lab's own probe, for tests. It is also the pause container, under another name.
pub const PROBE: &str = "lab.local/probe:1";
pub(crate) const COREDNS: &str = "lab.local/coredns:1";

/// An image of one static program.
struct Program {
    tool: Tool,
    tags: &'static [&'static str],
    arguments: &'static [&'static str],
}

const BASE: &[Program] = &[
    Program { tool: Tool::Probe, tags: &[PAUSE, PROBE], arguments: &["pause"] },
    Program { tool: Tool::Coredns, tags: &[COREDNS], arguments: &[] },
];

/// Archives of the images that every node needs, made on first use.
pub(crate) fn base(home: &Home) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(home.images())?;
    BASE.iter()
        .map(|program| {
            let archive = home.images().join(format!("{}.tar", program.tool.folder()));
            if !archive.exists() {
                let fresh = archive.with_extension(host::random_id()?);
                program.write(home, &fresh)?;
                fs::rename(&fresh, &archive)?;
            }
            Ok(archive)
        })
        .collect()
}

impl Program {
    /// Writes a docker archive: one layer, one configuration, one manifest.
    fn write(&self, home: &Home, archive: &Path) -> Result<()> {
        let name = self.tool.name();
        let mut layer = tar::Builder::new(Vec::new());
        append(&mut layer, &name, 0o755, &fs::read(self.tool.path(home))?)?;
        let layer = layer.into_inner()?;
        let config = serde_json::to_vec(&json!({
            "architecture": architecture(), "os": "linux",
            "config": { "Entrypoint": [format!("/{name}")], "Cmd": self.arguments },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))] },
        }))?;
        let config_name = format!("{}.json", digest(&config));
        let manifest = serde_json::to_vec(
            &json!([{ "Config": config_name, "RepoTags": self.tags, "Layers": ["layer.tar"] }]),
        )?;
        let mut out = tar::Builder::new(File::create(archive)?);
        append(&mut out, "manifest.json", 0o644, &manifest)?;
        append(&mut out, &config_name, 0o644, &config)?;
        append(&mut out, "layer.tar", 0o644, &layer)?;
        out.finish()?;
        Ok(())
    }
}

/// Keeps an archive for nodes to come.
pub(crate) fn keep(archive: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let fresh = folder.join(format!(".{}", host::random_id()?));
    fs::copy(archive, &fresh)?;
    // Numbered, because the same tag may be in several archives and the last one counts.
    let number = kept(folder)?.len() + 1;
    Ok(fs::rename(fresh, folder.join(format!("{number:04}.tar")))?)
}

/// The kept archives, in the order in which they were loaded.
pub(crate) fn kept(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let paths: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let mut kept: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "tar")).collect();
    kept.sort();
    Ok(kept)
}

/// Fails unless the file looks like an image archive, so that a mistake shows now and not when a pod starts.
pub(crate) fn check_archive(path: &Path) -> Result<()> {
    let mut file = File::open(path)?;
    let mut magic = [0; 2];
    if file.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b] {
        return Ok(()); // compressed: containerd will look inside
    }
    let known = tar::Archive::new(File::open(path)?).entries()?.any(|entry| {
        entry.is_ok_and(|entry| {
            entry.path().is_ok_and(|name| {
                let name = name.to_string_lossy().trim_start_matches("./").to_owned();
                name == "manifest.json" || name == "index.json"
            })
        })
    });
    if !known {
        bail!(
            "{} is not an image archive: it has neither manifest.json (docker) nor index.json (OCI)",
            path.display()
        );
    }
    Ok(())
}

fn append(
    archive: &mut tar::Builder<impl std::io::Write>,
    name: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    Ok(archive.append_data(&mut header, name, content)?)
}

fn digest(bytes: &[u8]) -> String {
    home::hex(&Sha256::digest(bytes))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_image_is_refused_by_name() {
        let path = std::env::temp_dir().join(format!("lab-no-image-{}", std::process::id()));
        fs::write(&path, "hello").unwrap();
        let error = format!("{:#}", check_archive(&path).unwrap_err());
        fs::remove_file(&path).unwrap();
        assert!(error.contains("is not an image archive"), "{error}");
        assert!(check_archive(Path::new("/nowhere.tar")).unwrap_err().to_string().contains("/nowhere.tar"));
    }
}

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

/// Tool, tags, arguments.
const BASE: &[(Tool, &[&str], &[&str])] =
    &[(Tool::Probe, &[PAUSE, PROBE], &["pause"]), (Tool::Coredns, &[COREDNS], &[])];

/// An image that holds one static program and nothing else. The program is its entry point.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// The program. It keeps its file name and goes to the root of the image.
    pub program: &'a Path,
    /// The image's names, with their tags.
    pub tags: &'a [&'a str],
    /// What the program is given if a pod says nothing else.
    pub arguments: &'a [&'a str],
    /// The number of the user it runs as, if not root.
    pub user: Option<u32>,
}

/// Archives of the images that every node needs, made on first use.
pub(crate) fn base(home: &Home) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(home.images())?;
    BASE.iter()
        .map(|(tool, tags, arguments)| {
            let archive = home.images().join(format!("{}.tar", tool.folder()));
            if !archive.exists() {
                Image { program: &tool.path(home), tags, arguments, user: None }.write(&archive)?;
            }
            Ok(archive)
        })
        .collect()
}

impl Image<'_> {
    /// Writes a docker archive: one layer, one configuration, one manifest. It appears whole or not at all.
    pub fn write(&self, archive: &Path) -> Result<()> {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy();
        let mut layer = tar::Builder::new(Vec::new());
        append(&mut layer, &name, 0o755, &fs::read(self.program)?)?;
        let layer = layer.into_inner()?;
        let mut config = json!({
            "architecture": architecture(), "os": "linux",
            "config": { "Entrypoint": [format!("/{name}")], "Cmd": self.arguments },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))] },
        });
        if let Some(user) = self.user {
            config["config"]["User"] = user.to_string().into();
        }
        let config = serde_json::to_vec(&config)?;
        let config_name = format!("{}.json", digest(&config));
        let manifest = serde_json::to_vec(
            &json!([{ "Config": config_name, "RepoTags": self.tags, "Layers": ["layer.tar"] }]),
        )?;
        let fresh = archive.with_extension(host::random_id()?);
        let mut out = tar::Builder::new(File::create(&fresh)?);
        append(&mut out, "manifest.json", 0o644, &manifest)?;
        append(&mut out, &config_name, 0o644, &config)?;
        append(&mut out, "layer.tar", 0o644, &layer)?;
        out.finish()?;
        Ok(fs::rename(&fresh, archive)?)
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
    fn an_image_is_one_program_and_who_runs_it() {
        let folder = std::env::temp_dir().join(format!("lab-image-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (program, archive) = (folder.join("hello"), folder.join("hello.tar"));
        fs::write(&program, "the program").unwrap();
        let image =
            Image { program: &program, tags: &["a/hello:1"], arguments: &["world"], user: Some(65532) };
        image.write(&archive).unwrap();
        check_archive(&archive).unwrap();
        let mut files = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(File::open(&archive).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let (name, mut content) = (entry.path().unwrap().display().to_string(), Vec::new());
            entry.read_to_end(&mut content).unwrap();
            files.insert(name, content);
        }
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, 2, "the program, the archive and nothing else");
        let read = |name: &str| -> serde_json::Value { serde_json::from_slice(&files[name]).unwrap() };
        let manifest = &read("manifest.json")[0];
        assert_eq!(manifest["RepoTags"], json!(["a/hello:1"]));
        let config = read(manifest["Config"].as_str().unwrap());
        assert_eq!(config["config"], json!({ "Entrypoint": ["/hello"], "Cmd": ["world"], "User": "65532" }));
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(&files["layer.tar"])));
    }

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

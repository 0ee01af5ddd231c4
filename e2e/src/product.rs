//! The program under test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, bail};
use fs_err as fs;

/// The variable with the path of the program under test.
const VARIABLE: &str = "KUBE_NODE_READY_BINARY";
/// The image's name in the clusters of the tests.
pub const REPOSITORY: &str = "lab.local/kube-node-ready";
/// Its tag.
pub const TAG: &str = "e2e";
/// The user that runs it in a container.
pub(crate) const USER: u32 = 65532;

/// The static program, as `make test-e2e` builds it.
pub fn path() -> Result<PathBuf> {
    let path = std::env::var_os(VARIABLE).map(PathBuf::from).unwrap_or_default();
    if !path.is_file() {
        bail!(
            "{VARIABLE} does not name the program under test ({:?}): run these tests with `make test-e2e`",
            path.display().to_string()
        );
    }
    Ok(path)
}

/// The permissions that the program says it needs with this configuration.
pub fn permissions(namespace: &str, config: &Path) -> Result<String> {
    let arguments = ["manifests", "rbac", "--namespace", namespace, "--config"].map(OsStr::new);
    run(arguments.into_iter().chain([config.as_os_str()]))
}

/// Runs the program on this machine to its end and returns its output.
pub fn run(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
    let mut command = Command::new(path()?);
    let output = command.args(arguments).output().with_context(|| format!("{command:?}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(anyhow!("{command:?} failed ({}): {}", output.status, error.trim()))
}

/// The image of the program, rebuilt only if the program is newer.
pub(crate) fn image() -> Result<PathBuf> {
    /// The tests of one file run in parallel.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let program = path()?;
    let archive = program.with_extension("tar");
    let made = fs::metadata(&archive).and_then(|archive| archive.modified()).ok();
    if made.is_none_or(|made| {
        fs::metadata(&program).and_then(|program| program.modified()).is_ok_and(|built| built >= made)
    }) {
        let tag = format!("{REPOSITORY}:{TAG}");
        lab::Image { program: &program, tags: &[&tag], arguments: &[], user: Some(USER) }.write(&archive)?;
    }
    Ok(archive)
}

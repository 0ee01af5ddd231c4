//! The machine the lab runs on: which programs it has, and how the missing ones get there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::process;
use crate::progress::Step;

/// Programs that a lab with a network needs from the machine, and the Debian packages that bring them.
const FOR_NETWORK: &[(&str, &str)] =
    &[("ip", "iproute2"), ("nsenter", "util-linux"), ("unshare", "util-linux")];
/// What nodes need on top of it.
const FOR_NODES: &[(&str, &str)] = &[
    ("nft", "nftables"),
    ("runc", "runc"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("mount", "mount"),
];
const CNI_PLUGINS: &[&str] = &["ptp", "host-local", "portmap"];
const CNI_PACKAGE: &str = "containernetworking-plugins";
/// Where distributions put the CNI plugins; Debian's place first.
const CNI_FOLDERS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Whether this program runs as root, which nodes need for their namespaces.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this root may make network namespaces; the root of a container often may not.
pub(crate) fn can_make_a_network() -> bool {
    process::run(command("unshare").args(["--net", "true"])).is_ok()
}

/// The user's `PATH` and the folders of administration programs, which it often lacks.
pub(crate) fn path() -> String {
    format!("{}:/usr/sbin:/sbin:/usr/bin:/bin", std::env::var("PATH").unwrap_or_default())
}

/// A command of the machine.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", path());
    command
}

/// The folder that holds all CNI plugins the lab uses.
pub(crate) fn cni_folder() -> Option<&'static str> {
    CNI_FOLDERS
        .iter()
        .copied()
        .find(|folder| CNI_PLUGINS.iter().all(|plugin| Path::new(folder).join(plugin).exists()))
}

/// Makes sure that a lab can have a network here.
pub(crate) fn ensure_ready_for_network() -> Result<()> {
    ensure(&missing_packages(FOR_NETWORK))
}

/// Makes sure that nodes can run here.
pub(crate) fn ensure_ready_for_nodes() -> Result<()> {
    let mut missing = missing_packages(FOR_NETWORK);
    missing.extend(missing_packages(FOR_NODES));
    if cni_folder().is_none() {
        missing.push(CNI_PACKAGE);
    }
    ensure(&missing)
}

/// On Debian and its relatives the missing packages are installed; elsewhere their names are a hint.
fn ensure(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    if find("apt-get").is_none() {
        bail!("programs are missing here; install what Debian calls: {}", missing.join(" "));
    }
    let step = Step::begin(&format!("installing {}", missing.join(", ")));
    process::run(command("apt-get").args(["update", "-q"]))?;
    process::run(
        command("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-qy", "--no-install-recommends"])
            .args(missing),
    )?;
    step.done();
    Ok(())
}

fn missing_packages(programs: &[(&str, &'static str)]) -> Vec<&'static str> {
    let mut missing: Vec<_> =
        programs.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    missing.dedup();
    missing
}

/// A random UUID.
pub(crate) fn random_id() -> Result<String> {
    Ok(fs_err::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&path()).map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administration_programs_are_found_without_their_folders_on_path() {
        assert!(path().contains("/usr/sbin"));
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }
}

//! What this program was built from.

use std::sync::LazyLock;

use knr_core::VERSION;

/// The commit, short. Only a build that is to be shipped is told, so that others need not be built anew for each commit.
pub(crate) const COMMIT: Option<&str> = option_env!("KUBE_NODE_READY_COMMIT");
/// When the commit was made: the same source gives the same program, whenever it is built.
const DATE: Option<&str> = option_env!("KUBE_NODE_READY_BUILD_DATE");

/// What `--version` says after the name of the program.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| describe(VERSION, COMMIT, DATE));

fn describe(version: &str, commit: Option<&str>, date: Option<&str>) -> String {
    let commit = commit.map(|commit| format!("commit {commit}"));
    let date = date.map(|date| format!("built {date}"));
    let known: Vec<String> = commit.into_iter().chain(date).collect();
    if known.is_empty() { version.to_owned() } else { format!("{version} ({})", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_says_what_is_known_of_the_build() {
        let (commit, date) = (Some("1a2b3c4"), Some("2026-11-16T08:00:00Z"));
        assert_eq!(describe("0.1.0", commit, date), "0.1.0 (commit 1a2b3c4, built 2026-11-16T08:00:00Z)");
        assert_eq!(describe("0.1.0", commit, None), "0.1.0 (commit 1a2b3c4)");
        assert_eq!(describe("0.1.0", None, None), "0.1.0");
    }

    #[test]
    fn the_changelog_begins_with_this_version() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../CHANGELOG.md");
        let text = std::fs::read_to_string(path).unwrap();
        let newest = text.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
        assert_eq!(newest.split(' ').next(), Some(env!("CARGO_PKG_VERSION")));
    }
}

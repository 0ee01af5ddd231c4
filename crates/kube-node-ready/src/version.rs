//! The version, commit and date of this build.

use std::sync::LazyLock;

use knr_core::VERSION;

/// The short commit hash. Only builds that are shipped set it, so that a new commit does not invalidate other builds.
pub(crate) const COMMIT: Option<&str> = option_env!("KUBE_NODE_READY_COMMIT");
/// The time of the commit rather than of the build, so that the same source always gives the same program.
const DATE: Option<&str> = option_env!("KUBE_NODE_READY_BUILD_DATE");

/// The text that `--version` prints after the program name.
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

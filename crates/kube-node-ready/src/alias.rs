//! Short forms of subcommands: `kube-node-ready-worker` means `kube-node-ready worker`, and a flag in place of a
//! subcommand means `kube-node-ready daemonset`.

use std::ffi::OsString;
use std::path::Path;

/// Subcommands that the program name can select.
const SUBCOMMANDS: [&str; 2] = ["controller", "worker"];

/// Flags of the program itself. Any other leading flag belongs to `daemonset`.
const OWN_FLAGS: [&str; 4] = ["-h", "--help", "-V", "--version"];

/// Inserts the implied subcommand: the one that the program name selects, in which case the name becomes
/// `kube-node-ready`, or `daemonset`.
pub(crate) fn resolve(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|word| Path::new(word).file_name()?.to_str());
    let meant = name.and_then(|name| name.strip_prefix("kube-node-ready-"));
    if let Some(subcommand) = SUBCOMMANDS.into_iter().find(|known| meant == Some(known)) {
        words.splice(..1, ["kube-node-ready".into(), subcommand.into()]);
    } else if words.get(1).and_then(|word| word.to_str()).is_some_and(is_for_daemonset) {
        words.insert(1, "daemonset".into());
    }
    words
}

fn is_for_daemonset(word: &str) -> bool {
    word.starts_with('-') && !OWN_FLAGS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(words: &str) -> String {
        let words = resolve(words.split_whitespace().map(OsString::from).collect());
        words.join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn the_name_of_the_program_can_stand_for_a_subcommand() {
        let controller = resolved("/bin/kube-node-ready-controller --dry-run");
        assert_eq!(controller, "kube-node-ready controller --dry-run");
        assert_eq!(resolved("kube-node-ready-worker"), "kube-node-ready worker");
    }

    #[test]
    fn a_flag_that_comes_first_is_one_of_daemonset() {
        let dry_run = resolved("bin/kube-node-ready --dry-run --log-format=console");
        assert_eq!(dry_run, "bin/kube-node-ready daemonset --dry-run --log-format=console");
        for words in ["kube-node-ready --version", "kube-node-ready -h", "kube-node-ready"] {
            assert_eq!(resolved(words), words);
        }
    }

    #[test]
    fn any_other_name_stands_for_nothing() {
        for words in ["/bin/kube-node-ready check", "kube-node-ready-amd64 check", "worker check", ""] {
            assert_eq!(resolved(words), words);
        }
    }
}

//! Other names of the program. Started as `kube-node-ready-worker`, it is `kube-node-ready worker`.

use std::ffi::OsString;
use std::path::Path;

/// Subcommands that have a name of their own.
const SUBCOMMANDS: [&str; 2] = ["controller", "worker"];

/// Puts the subcommand that the name of the program stands for in front of the arguments, after the name it then has.
pub(crate) fn resolve(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|word| Path::new(word).file_name()?.to_str());
    let meant = name.and_then(|name| name.strip_prefix("kube-node-ready-"));
    if let Some(subcommand) = SUBCOMMANDS.into_iter().find(|known| meant == Some(known)) {
        words.splice(..1, ["kube-node-ready".into(), subcommand.into()]);
    }
    words
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
    fn any_other_name_stands_for_nothing() {
        for words in ["/bin/kube-node-ready check", "kube-node-ready-amd64 check", "worker check", ""] {
            assert_eq!(resolved(words), words);
        }
    }
}

//! Names that users type or search for: labels, taints, annotations, objects, variables, keys and metrics.

use std::collections::BTreeSet;
use std::path::Path;

use crate::page::Page;
use crate::schema::Values;
use crate::{files, read, root};

/// Words in capitals that are not variables of this project.
const FOREIGN: [&str; 1] = ["NO_SCHEDULE"];
/// Endings of files and hosts, which look like keys.
const ENDINGS: [&str; 6] = [".md", ".yaml", ".json", ".rs", ".sh", ".cluster.local"];

/// All names that exist.
pub(crate) struct Known {
    /// The words of all sources of names.
    words: BTreeSet<String>,
    /// Keys of the configuration, with sections.
    keys: BTreeSet<String>,
    sections: BTreeSet<String>,
    values: Values,
    roots: BTreeSet<String>,
}

/// All Rust code below a folder.
pub(crate) fn sources(folder: &str) -> String {
    fn below(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut text = String::new();
    below(&root().join(folder), &mut text);
    text
}

/// Words as they occur in Kubernetes names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')));
    parts.map(|word| word.trim_end_matches(['-', '.', '/'])).filter(|word| !word.is_empty())
}

/// Keys in the tables of the reference: `worker.image.tag`, `gates[].name`.
fn keys(reference: &str) -> BTreeSet<String> {
    reference
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect()
}

impl Known {
    pub(crate) fn new() -> Self {
        let chart: String =
            files("deploy/helm/kube-node-ready/templates", "").iter().map(|path| read(path)).collect();
        let text = [
            "docs/config.md",
            "docs/cli.md",
            "docs/metrics.md",
            "deploy/helm/kube-node-ready/values.yaml",
            "Makefile",
            "crates/core/src/names.rs",
        ]
        .map(read)
        .concat();
        let scripts: String = files("examples", ".sh").iter().map(|path| read(path)).collect();
        let mut known: BTreeSet<String> = words(&text).chain(words(&scripts)).map(str::to_owned).collect();
        known.extend(objects(&chart));
        let keys = keys(&read("docs/config.md"));
        let sections = keys.iter().filter_map(|key| Some(key.split(['.', '[']).next()?.to_owned())).collect();
        let values: serde_json::Value =
            serde_saphyr::from_str(&read("deploy/helm/kube-node-ready/values.yaml")).unwrap();
        let roots = values.as_object().unwrap().keys().cloned().collect();
        Self { words: known, keys, sections, values: Values::new(), roots }
    }

    /// Finds the names on a page that do not exist.
    pub(crate) fn unknown(&self, page: &Page) -> Vec<String> {
        let scripts = page.scripts().map(|block| block.text.as_str());
        let named = scripts
            .chain(page.codes())
            .flat_map(words)
            .filter(|word| is_ours(word) && !self.words.contains(*word));
        let wrong_keys = page.codes().into_iter().filter(|code| !self.is_key(code));
        named.chain(wrong_keys).map(|name| format!("nothing is called {name}")).collect()
    }

    /// Returns false for text that looks like a key and is not one.
    fn is_key(&self, code: &str) -> bool {
        let path = &code.split(':').next().unwrap_or_default().replace("[0]", "[]");
        let is_path = path.contains('.')
            && path.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '[' | ']'));
        if !is_path || ENDINGS.iter().any(|ending| path.ends_with(ending)) {
            return true;
        }
        let first = path.split(['.', '[']).next().unwrap_or_default();
        let is_known = self.keys.contains(path) || self.values.has(path);
        is_known || !(self.sections.contains(first) || self.roots.contains(first))
    }
}

/// Returns true if a word is a name of this project.
fn is_ours(word: &str) -> bool {
    let is_variable = word.contains('_')
        && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        && !FOREIGN.contains(&word);
    is_variable
        || ["node-ready/", "startup.k8s.io/", "kube-node-ready-", "kube_node_ready_"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
}

/// The names of the objects that the chart creates in a release named after it.
fn objects(templates: &str) -> impl Iterator<Item = String> {
    let endings = ["}}-", "%s-", "\"who\" \""].into_iter().flat_map(|before| templates.split(before).skip(1));
    endings
        .filter_map(|rest| rest.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next())
        .filter(|ending| !ending.is_empty())
        .map(|ending| format!("kube-node-ready-{ending}"))
}

#[test]
fn names_that_do_not_exist_are_found() {
    let page = crate::sample(
        "`node-ready/state-`, `kube-node-ready-controller`, `startup.k8s.io/ready=true`, `TAINT_KEY`, `worker.image.tag`, `config.md`,\n\
         `controller.config.worker.image.tag`, `uninstall: keep`, `kube_node_ready_leader`, `gates[].name`, `kube-node-ready-release`,\n\
         `node-ready/stat`, `kube-node-ready-controler`, `startup.k8s.io/redy=true`, `TAINT_KYE`, `worker.image.tags`,\n\
         `controller.config.worker.image.tags`, `kube_node_ready_leeder`, `gates[].nam`\n\n```sh\nkubectl get x node-ready/verifed\n```\n",
    );
    let found = Known::new().unknown(&page);
    assert_eq!(found.len(), 9, "{found:#?}");
}

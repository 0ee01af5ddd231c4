//! Commands in scripts and in the prose.

use std::collections::BTreeSet;
use std::process::Command;

use crate::page::Page;
use crate::root;
use crate::schema::Values;

const NAME: &str = "kube-node-ready";
const IMAGE: &str = "ghcr.io/kube-node-ready/kube-node-ready";

/// All commands of a page, each as its words.
fn commands(page: &Page) -> Vec<Vec<String>> {
    let scripts = page.scripts().map(|block| block.text.as_str());
    scripts.chain(page.codes()).flat_map(split).collect()
}

/// The commands of a script. Quotes keep words together; no other shell syntax is understood.
fn split(script: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let script = format!("{}\n", script.replace("\\\n", " "));
    for c in script.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() || matches!(c, '|' | ';' | '&') => {
                words.extend(word.take());
                if c != ' ' && !words.is_empty() {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    let is_prompt = |word: &String| word == "$";
    let is_variable = |word: &String| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    for words in &mut commands {
        let begin = words.iter().take_while(|word| is_prompt(word) || is_variable(word)).count();
        words.drain(..begin);
    }
    commands.retain(|words| !words.is_empty());
    commands
}

/// The targets of a Makefile.
pub(crate) fn targets(makefile: &str) -> BTreeSet<String> {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let rules = makefile.lines().filter_map(|line| line.split_once(':'));
    rules.map(|(name, _)| name.to_owned()).filter(|name| !name.is_empty() && is_name(name)).collect()
}

/// Make targets that a page names and that do not exist.
pub(crate) fn unknown_targets(page: &Page, known: &BTreeSet<String>) -> Vec<String> {
    let named = commands(page)
        .into_iter()
        .filter(|words| words[0] == "make")
        .flat_map(|words| words.into_iter().skip(1));
    named
        .filter(|word| !word.contains('=') && !word.starts_with('-') && !known.contains(word))
        .map(|target| format!("there is no `make {target}`"))
        .collect()
}

/// The arguments of the program in a command that calls it by its name or in a pod of its image.
fn arguments(words: &[String]) -> Option<&[String]> {
    if words[0].rsplit('/').next() == Some(NAME) {
        return Some(&words[1..]);
    }
    let is_pod = words[0] == "kubectl" && words.iter().any(|word| word.starts_with(IMAGE));
    let dashes = words.iter().position(|word| word == "--").filter(|_| is_pod)?;
    Some(&words[dashes + 1..])
}

/// Commands that the program does not accept.
pub(crate) fn rejected(page: &Page, program: &str) -> Vec<String> {
    let is_rejected = |words: &Vec<String>| {
        let arguments = arguments(words).filter(|arguments| !arguments.is_empty())?;
        let run = Command::new(program).env_clear().args(arguments).arg("--help").output().unwrap();
        let why = String::from_utf8_lossy(&run.stderr).lines().next().unwrap_or_default().to_owned();
        (!run.status.success()).then(|| format!("{NAME} {}: {why}", arguments.join(" ")))
    };
    commands(page).iter().filter_map(is_rejected).collect()
}

/// Files of the checkout that are named in commands and do not exist.
pub(crate) fn missing_files(page: &Page) -> Vec<String> {
    let is_ours = |word: &String| {
        ["deploy/", "examples/", "crates/", "docs/"].iter().any(|folder| word.starts_with(folder))
    };
    let words = commands(page).into_iter().flatten().map(|word| word.trim_start_matches("./").to_owned());
    words
        .filter(is_ours)
        .filter(|path| !root().join(path).exists())
        .map(|path| format!("there is no {path}"))
        .collect()
}

/// Keys that are set on the command line of Helm and that are not values of the chart.
pub(crate) fn unknown_values(page: &Page, values: &Values) -> Vec<String> {
    let helm = commands(page).into_iter().filter(|words| words[0] == "helm");
    let set = helm.flat_map(|words| {
        let pairs: Vec<_> = words.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        pairs
            .into_iter()
            .filter(|(flag, _)| flag == "--set" || flag == "--set-string")
            .map(|(_, value)| value)
    });
    set.map(|value| value.split('=').next().unwrap_or_default().to_owned())
        .filter(|path| !values.has(path))
        .map(|path| format!("the chart has no value {path}"))
        .collect()
}

#[test]
fn scripts_are_split_into_words() {
    let words = split("$ A=1 make x ARGS='--test a b' | kubectl apply \\\n  -f -\nhelm \"a b\"\n");
    assert_eq!(
        words,
        [vec!["make", "x", "ARGS=--test a b"], vec!["kubectl", "apply", "-f", "-"], vec!["helm", "a b"]]
    );
}

#[test]
fn a_target_that_does_not_exist_is_found() {
    let known = targets(".PHONY: x\nlint: setup ## lint\n\tcargo\nA := b:c\n");
    assert_eq!(known.iter().collect::<Vec<_>>(), ["lint"]);
    let page = crate::sample("`make lint`, `make lnit`\n\n```sh\nKEEP=1 make lint lnit2 -j X=1\n```\n");
    assert_eq!(unknown_targets(&page, &known), ["there is no `make lnit2`", "there is no `make lnit`"]);
}

#[test]
fn arguments_that_the_program_does_not_take_are_found() {
    let page = crate::sample(
        "`kube-node-ready check`, `kube-node-ready chekc`\n\n```sh\nkube-node-ready check --node <node> --verbose | less\n\
         bin/kube-node-ready check --nod x\nkubectl run x --image ghcr.io/kube-node-ready/kube-node-ready:1 -- check --verbos\n```\n",
    );
    let found = rejected(&page, crate::PROGRAM);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn files_and_values_that_do_not_exist_are_found() {
    let page = crate::sample(
        "```sh\nhelm install x deploy/helm/kube-node-ready --values examples/values-minimal.yaml --set uninstall=keep\n\
         helm install x deploy/helm/nope --values examples/nope.yaml --set uninstal=keep\n./examples/nope.sh\n```\n",
    );
    assert_eq!(missing_files(&page).len(), 3, "{:?}", missing_files(&page));
    assert_eq!(unknown_values(&page, &Values::new()), ["the chart has no value uninstal"]);
}

//! Runs all kubectl and Helm commands of the documentation, on a real cluster.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use knr_e2e::{Cluster, RELEASE, Release, in_checkout, pods_of, product, values};
use lab::{Home, Tool};
use serde_json::json;

/// The namespace that the pages use.
const NAMESPACE: &str = "kube-system";
/// Part of a command, and the error that it may fail with here: the command is valid, but there is nothing for it to
/// find.
const MAY_FIND_NOTHING: [(&str, &str); 3] = [
    ("unverified:NoSchedule-", "not found"),
    ("job/kube-node-ready-release", "not found"),
    ("get nodepools", "doesn't have a resource type"),
];
/// A wrapper around kubectl that deletes nothing.
const KUBECTL: &str = r#"verb="$1"; shift
case "$verb" in
  delete) exec "$KUBECTL" delete --dry-run=server "$@" ;;
  *) exec "$KUBECTL" "$verb" "$@" ;;
esac"#;
/// A wrapper around Helm that leaves the installation as it is.
const HELM: &str = r#"verb="$1"; shift
case "$verb" in
  install) exec "$HELM" template --kube-version "$KUBE_VERSION" "$@" ;;
  upgrade|uninstall) exec "$HELM" "$verb" --dry-run "$@" ;;
  *) exec "$HELM" "$verb" "$@" ;;
esac"#;

#[test]
fn commands_in_the_pages_work() -> Result<()> {
    let cluster = Cluster::start_bare("documented", |lab| lab.nodes(1))?;
    // Everything else has its default, as in the pages.
    Release::install_in(NAMESPACE, &cluster, &json!({ "image": values()["image"] }))?;
    let node = cluster.join("n2")?;
    node.wait_until_open()?;
    let terminal = Terminal::open(&cluster)?;
    let commands = commands()?;
    assert!(commands.len() > 40, "there are only {}: {commands:?}", commands.len());
    let failed: Vec<String> = commands.iter().filter_map(|command| terminal.complaint(command)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

/// The commands in the code blocks of all pages for operators.
fn commands() -> Result<Vec<String>> {
    let mut pages = vec![
        in_checkout("README.md"),
        in_checkout("deploy/helm/kube-node-ready/README.md"),
        in_checkout("examples/README.md"),
    ];
    for entry in fs::read_dir(in_checkout("docs"))? {
        pages.push(entry?.path());
    }
    pages.sort();
    let mut commands = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        commands.extend(commands_of(&fs::read_to_string(page)?));
    }
    Ok(commands)
}

fn commands_of(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let scripts = blocks.filter_map(|block| block.split_once('\n')).filter(|(language, _)| *language == "sh");
    let lines = scripts.flat_map(|(_, script)| {
        let joined = script.replace("\\\n", " ").replace("\n  ", " ");
        joined.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    lines.filter(|line| line.starts_with("kubectl ") || line.starts_with("helm ")).collect()
}

#[test]
fn commands_are_found_in_a_page() {
    let page = "# A\n\n```sh\nkubectl get \\\n  nodes\nmake x\n```\n\n`helm no`\n\n```text\nkubectl no\n```\n\n```sh\nhelm list\n```\n";
    assert_eq!(commands_of(page), ["kubectl get    nodes", "helm list"]);
}

/// The environment in which commands run.
struct Terminal {
    path: String,
    variables: [(&'static str, String); 4],
    pod: String,
}

impl Terminal {
    fn open(cluster: &Cluster) -> Result<Self> {
        let folder = cluster.folder().join("bin");
        fs::create_dir_all(&folder)?;
        for (name, script) in [("kubectl", KUBECTL), ("helm", HELM)] {
            fs::write(folder.join(name), format!("#!/bin/sh\n{script}\n"))?;
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(folder.join(name), executable)?;
        }
        let home = Home::from_env()?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={}", pods_of("controller"));
        let pods = cluster.api().list(&path)?;
        let answer = cluster.api().get("/version")?;
        let version = answer["gitVersion"].as_str().context("no version")?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let pod = pods.first().and_then(|pod| pod["metadata"]["name"].as_str()).context("no controller")?;
        Ok(Self {
            path: format!("{}:{}", folder.display(), std::env::var("PATH")?),
            variables: [
                ("KUBECTL", text(&Tool::Kubectl.path(&home))),
                ("HELM", text(&Tool::helm()?.path(&home))),
                ("KUBECONFIG", text(&cluster.kubeconfig())),
                ("KUBE_VERSION", version.to_owned()),
            ],
            pod: pod.to_owned(),
        })
    }

    /// Replaces the placeholders of the pages with real names.
    fn filled(&self, command: &str) -> String {
        let image = format!("{}:{}", product::REPOSITORY, product::TAG);
        let released = format!("ghcr.io/kube-node-ready/kube-node-ready:{}", env!("CARGO_PKG_VERSION"));
        [
            ("<node>", "n2"),
            (" NAME", " n2"),
            ("<worker>", &self.pod),
            ("<pod>", &self.pod),
            ("<release>", RELEASE),
            ("<namespace>", NAMESPACE),
            ("my-values.yaml", "examples/values-minimal.yaml"),
            (&released, &image),
        ]
        .into_iter()
        .fold(command.to_owned(), |command, (named, real)| command.replace(named, real))
    }

    /// Runs a command, and returns its error if it fails.
    fn complaint(&self, command: &str) -> Option<String> {
        let filled = self.filled(command);
        self.run(&filled).err().map(|error| format!("$ {filled}\n{error:#}"))
    }

    fn run(&self, command: &str) -> Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(in_checkout(".")).env("PATH", &self.path);
        let ran = shell.envs(self.variables.iter().cloned()).output()?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let found_nothing =
            MAY_FIND_NOTHING.iter().any(|(part, why)| command.contains(part) && said.contains(why));
        ensure!(ran.status.success() || found_nothing, "{}: {said}", ran.status);
        Ok(())
    }
}

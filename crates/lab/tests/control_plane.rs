//! A control plane alone: without root, with simulated nodes, and how it explains itself when it fails.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{builder, eventually, home, lab_with_nodes, ready};
use lab::Tool;

const NOBODY: u32 = 65534;

#[test]
fn a_control_plane_needs_no_root_and_nodes_do() {
    let stranger = Stranger::new();
    let up = stranger.lab(&["up", "--nodes", "0"]);
    assert!(up.status.success(), "{}", text(&up.stderr));
    let ready = stranger.lab(&["kubectl", "get", "--raw", "/readyz"]);
    assert_eq!(text(&ready.stdout), "ok", "{}", text(&ready.stderr));
    let nodes = stranger.lab(&["up", "--nodes", "1"]);
    let refusal = text(&nodes.stderr);
    assert!(!nodes.status.success());
    assert!(refusal.contains("nodes need root") && refusal.trim().lines().count() == 1, "{refusal}");
    let added = stranger.lab(&["node", "add", "n1"]);
    assert!(text(&added.stderr).contains("was made without root"), "{}", text(&added.stderr));
    let down = stranger.lab(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(text(&stranger.lab(&["status"]).stdout).contains("no lab is up"));
    let again = stranger.lab(&["down"]);
    assert!(again.status.success() && text(&again.stdout).contains("is not up"), "{}", text(&again.stderr));
}

#[test]
fn kwok_makes_a_node_ready_that_has_no_machine() {
    let lab = lab_with_nodes("kwok", 0);
    lab.start_kwok().unwrap();
    lab.apply(
        "apiVersion: v1
kind: Node
metadata: { name: fake, annotations: { kwok.x-k8s.io/node: fake }, labels: { type: kwok } }
",
    )
    .unwrap();
    eventually("the simulated node to be Ready", || {
        let seen = ready(&lab, "fake")?;
        anyhow::ensure!(seen == "True", "Ready is {seen:?}");
        Ok(())
    });
}

#[test]
fn a_program_of_a_lab_obeys_and_goes_down_with_it() {
    let lab = lab_with_nodes("program", 0);
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("GREETING", "hello");
        command
    };
    let polite =
        lab.spawn("polite", shell("trap 'exit 7' TERM; echo $GREETING; while :; do sleep 0.1; done"));
    let polite = polite.unwrap();
    let stubborn = lab.spawn("stubborn", shell("trap '' TERM; while :; do sleep 0.1; done")).unwrap();
    eventually("its first words", || {
        let said = fs::read_to_string(polite.log())?;
        anyhow::ensure!(said == "hello\n", "it said {said:?}");
        Ok(())
    });
    polite.freeze().unwrap();
    eventually("it to stand still", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", polite.pid()))?;
        anyhow::ensure!(stat.contains("(sh) T"), "{stat}");
        Ok(())
    });
    polite.thaw().unwrap();
    polite.terminate().unwrap();
    assert_eq!(polite.wait(common::PATIENCE).unwrap().code(), Some(7));
    polite.kill().unwrap();
    assert_eq!(stubborn.exit_status(), None);
    drop(lab);
    stubborn.wait(common::PATIENCE).unwrap();
}

#[test]
fn a_component_that_dies_is_named_with_its_last_words() {
    for (nodes, component, who) in [
        (0, Tool::KubeApiserver, "kube-apiserver"),
        (0, Tool::KubeScheduler, "kube-scheduler"),
        (1, Tool::Kubelet, "kubelet on n1"),
        (1, Tool::KubeProxy, "kube-proxy on n1"),
    ] {
        let failed = builder("dying").nodes(nodes).flag(component, "--no-such-flag").temporary();
        let error = format!("{:#}", failed.unwrap_err());
        assert!(error.contains(&format!("{who} ended")), "{error}");
        assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
    }
}

#[test]
fn a_flag_for_something_that_is_no_component_is_refused_at_once() {
    let error = builder("refused").flag(Tool::Kubectl, "--v=4").up().unwrap_err().to_string();
    assert_eq!(error, "\"kubectl\" is not a component of the cluster");
}

#[test]
fn status_tells_when_something_is_not_running() {
    let lab = lab_with_nodes("status", 0);
    let found = lab.components().unwrap().into_iter().find(|component| component.name == "kube-scheduler");
    let pid = found.unwrap().pid.unwrap().to_string();
    // Other labs may be up beside this one: only its own lines count.
    let scheduler = || {
        let output = Command::new(env!("CARGO_BIN_EXE_lab")).arg("status").output().unwrap();
        let lines = text(&output.stdout);
        let own = lines.lines().skip_while(|line| !line.starts_with(&format!("lab {} ", lab.name()))).skip(1);
        let mut own = own.take_while(|line| !line.starts_with("lab "));
        let line = own.find(|line| line.contains("kube-scheduler")).unwrap();
        (line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "), output.status.code())
    };
    assert_eq!(scheduler().0, format!("running, pid {pid}"));
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    eventually("status to notice", || {
        let seen = scheduler();
        anyhow::ensure!(seen == ("not running".to_owned(), Some(1)), "{seen:?}");
        Ok(())
    });
}

#[test]
fn a_restore_undoes_what_was_done_since_the_backup() {
    let lab = lab_with_nodes("restored", 0);
    assert!(lab.restore().unwrap_err().to_string().ends_with("has no backup"));
    let make = |name: &str| lab.kubectl(["create", "configmap", name]).unwrap();
    make("before");
    lab.back_up().unwrap();
    make("after");
    lab.restore().unwrap();
    let maps = lab.kubectl(["get", "configmaps", "-o", "name"]).unwrap();
    assert!(maps.contains("/before\n") && !maps.contains("/after\n"), "{maps}");
    assert!(lab.is_well());
}

/// A user without permissions, with a home and tools of its own.
struct Stranger {
    folder: PathBuf,
}

impl Stranger {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("lab-stranger-{}", std::process::id()));
        let tools = folder.join("home/tools");
        lab::build(&home(), &[Tool::Etcd, Tool::KubeApiserver, Tool::KubeControllerManager]).unwrap();
        lab::build(&home(), &[Tool::KubeScheduler, Tool::Kubectl]).unwrap();
        for module in fs::read_dir(home().tools()).unwrap() {
            let module = module.unwrap();
            share(&module.path(), &tools.join(module.file_name()));
        }
        share_file(Path::new(env!("CARGO_BIN_EXE_lab")), &folder.join("lab"));
        for path in [&folder, &folder.join("home"), &tools] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Self { folder }
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        let id = NOBODY.to_string();
        Command::new("setpriv")
            .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
            .arg(self.folder.join("lab"))
            .args(["--name", "rootless"])
            .args(arguments)
            .current_dir(&self.folder)
            .env("LAB_HOME", self.folder.join("home"))
            .output()
            .unwrap()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.lab(&["down"]);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Brings the programs of one module where another user can run them.
fn share(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() && entry.file_name() != ".lock" {
            share_file(&entry.path(), &to.join(entry.file_name()));
        }
    }
}

fn share_file(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

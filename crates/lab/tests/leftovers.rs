//! A lab leaves nothing behind, however it ended, and never touches what is not its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use common::{builder, eventually, lab_with_nodes, traces};

/// The tests of this file look at the whole machine, so they run one after the other.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn down_leaves_nothing() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = traces::all();
    {
        let lab = lab_with_nodes("leftovers", 2);
        let during = traces::all();
        for kind in ["process", "namespace", "link", "route", "cgroup"] {
            let new = during.difference(&before).filter(|trace| trace.starts_with(kind)).count();
            assert!(new > 0, "the comparison must be able to see a {kind}");
        }
        lab.node("n1").unwrap().kill().unwrap();
    }
    nothing_is_left_since(&before);
}

#[test]
fn what_a_killed_lab_left_is_removed_by_the_next_and_nothing_else() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    drop(lab_with_nodes("killed", 0));
    let bystander = lab_with_nodes("bystander", 1);
    let before = traces::all();
    let folder = common::home().lab("test-killed");
    let log = |name: &str| folder.join("log").join(name);
    for moment in [
        folder.join("lab.json"),
        log("kube-apiserver.log"),
        log("node/n1/machine.log"),
        log("node/n1/kubelet.log"),
    ] {
        let mut up = start_up("test-killed");
        eventually(&format!("{} to appear", moment.display()), || {
            anyhow::ensure!(moment.exists() || has_ended(&mut up), "not yet");
            Ok(())
        });
        assert!(!has_ended(&mut up), "`up` ended before {}", moment.display());
        up.kill().unwrap();
        up.wait().unwrap();
    }
    builder("killed").nodes(1).up().unwrap().down().unwrap();
    nothing_is_left_since(&before);
    assert!(bystander.is_well());
    assert!(bystander.node("n1").unwrap().exec(["ctr", "version"]).is_ok());
}

/// A program in the mark's clothes: right variable, other owner.
#[test]
fn a_process_of_another_owner_survives_down() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lab = lab_with_nodes("owner", 0);
    let mut stranger =
        Command::new("sleep").arg("600").env("KUBE_NODE_READY_LAB", "stranger/etcd").spawn().unwrap();
    drop(lab);
    assert!(!has_ended(&mut stranger));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

fn start_up(name: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["up", "--nodes", "1", "--name", name])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// The kernel takes a network namespace apart some time after its last process, so this looks more than once.
fn nothing_is_left_since(before: &BTreeSet<String>) {
    eventually("nothing to be left", || {
        let after = traces::all();
        let left: Vec<_> = after.difference(before).collect();
        anyhow::ensure!(left.is_empty(), "left behind: {left:#?}");
        Ok(())
    });
    let after = traces::all();
    let missing: Vec<_> = before.difference(&after).filter(|trace| !trace.starts_with("process")).collect();
    assert!(missing.is_empty(), "this was not ours: {missing:#?}");
}

//! A lab leaves nothing behind, however it ended, and never touches what is not its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{builder, eventually, lab_name, lab_with_nodes, traces};

#[test]
fn down_leaves_nothing() {
    on_a_machine_of_its_own("down_leaves_nothing", || {
        let (before, mut owners) = (traces::all(), Vec::new());
        {
            let lab = lab_with_nodes("leftovers", 2);
            owners.extend(owner("leftovers"));
            let during = traces::all();
            for kind in ["process", "namespace", "link", "route", "cgroup"] {
                let new = during.difference(&before).filter(|trace| trace.starts_with(kind)).count();
                assert!(new > 0, "the comparison must be able to see a {kind}");
            }
            lab.node("n1").unwrap().kill().unwrap();
        }
        nothing_is_left_since(&before, &owners);
    });
}

#[test]
fn what_a_killed_lab_left_is_removed_by_the_next_and_nothing_else() {
    on_a_machine_of_its_own("what_a_killed_lab_left_is_removed_by_the_next_and_nothing_else", || {
        drop(lab_with_nodes("killed", 0));
        let bystander = lab_with_nodes("bystander", 1);
        let (before, mut owners) = (traces::all(), Vec::new());
        for moment in
            ["lab.json", "log/kube-apiserver.log", "log/node/n1/machine.log", "log/node/n1/kubelet.log"]
        {
            let last = owner("killed");
            let in_time = kill_when(&["up", "--nodes", "1"], || {
                owner("killed") != last && folder("killed").join(moment).exists()
            });
            assert!(in_time, "`up` ended before {moment}");
            owners.extend(owner("killed"));
        }
        let lab = builder("killed").nodes(1).up().unwrap();
        owners.extend(owner("killed"));
        let half_made = folder("killed").join("nodes/n2/containerd.toml");
        assert!(kill_when(&["node", "add", "n2"], || half_made.exists()), "n2 was complete too early");
        assert!(!lab.node("n2").unwrap().is_complete());
        builder("killed").nodes(2).up().unwrap();
        assert!(
            lab.node("n2").unwrap().exec(["ctr", "version"]).is_ok(),
            "`up` makes a half-made node again"
        );
        // This one is quick: whether the kill comes in time or not, the next `up` must not mind.
        kill_when(&["down"], || !folder("killed").join("kubeconfig").exists());
        let lab = builder("killed").nodes(1).up().unwrap();
        owners.extend(owner("killed"));
        lab.down().unwrap();
        nothing_is_left_since(&before, &owners);
        assert!(bystander.is_well());
        assert!(bystander.node("n1").unwrap().exec(["ctr", "version"]).is_ok());
    });
}

/// A program in the mark's clothes: right variable, other owner.
#[test]
fn a_process_of_another_owner_survives_down() {
    let lab = lab_with_nodes("owner", 0);
    let mut stranger =
        Command::new("sleep").arg("600").env("KUBE_NODE_READY_LAB", "stranger/etcd").spawn().unwrap();
    drop(lab);
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_lab_that_was_made_again_is_not_ended_by_an_old_handle() {
    let old = builder("again").up().unwrap();
    old.down().unwrap();
    let new = lab_with_nodes("again", 0);
    let refused = old.start_kwok().unwrap_err().to_string();
    assert!(refused.contains("made again, by another process"), "{refused}");
    old.down().unwrap();
    assert!(new.is_well());
    let refused = builder("again").temporary().unwrap_err().to_string();
    assert!(refused.contains("is in use by another test"), "{refused}");
    assert!(new.is_well());
}

/// Runs this test again in fresh namespaces, where everything that comes and goes is the lab's doing. The shell stays as
/// their first process, which has to reap orphans: a machine of the lab ends only when all of its dead are buried.
fn on_a_machine_of_its_own(test: &str, body: impl FnOnce()) {
    const INSIDE: &str = "LAB_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let status = Command::new("unshare")
        .args(["--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "--"])
        .args(["sh", "-c", "ip link set lo up || exit; \"$@\"; exit $?", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "see above");
}

fn folder(name: &str) -> PathBuf {
    common::home().lab(&lab_name(name))
}

/// Which lab it is; each `up` from nothing makes another one.
fn owner(name: &str) -> Option<String> {
    let text = fs::read_to_string(folder(name).join("lab.json")).ok()?;
    let state: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(state["owner"].as_str()?.to_owned())
}

/// Starts `lab` with these arguments and kills it as soon as `reached` is true. False if it ended before.
fn kill_when(arguments: &[&str], reached: impl Fn() -> bool) -> bool {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["--name", &lab_name("killed")])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ended = |lab: &mut Child| lab.try_wait().unwrap().is_some();
    while !reached() && !ended(&mut lab) {
        thread::sleep(Duration::from_millis(1));
    }
    let in_time = !ended(&mut lab);
    lab.kill().unwrap();
    lab.wait().unwrap();
    in_time
}

/// The kernel takes a network namespace apart some time after its last process, so this looks more than once.
/// Control groups are the one thing that other tests on this machine add and remove too: the owner tells them apart.
fn nothing_is_left_since(before: &BTreeSet<String>, owners: &[String]) {
    let is_foreign =
        |trace: &str| trace.starts_with("cgroup") && !owners.iter().any(|owner| trace.contains(owner));
    eventually("nothing to be left", || {
        let after = traces::all();
        let left: Vec<_> = after.difference(before).filter(|trace| !is_foreign(trace)).collect();
        anyhow::ensure!(left.is_empty(), "left behind: {left:#?}");
        let missing: Vec<_> = before.difference(&after).filter(|trace| !is_foreign(trace)).collect();
        anyhow::ensure!(missing.is_empty(), "this was not ours: {missing:#?}");
        Ok(())
    });
}

//! Nodes come, reboot, die and go as machines do.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::io::Read;
use std::process::Stdio;
use std::thread;

use common::{Pod, builder, eventually, ready};
use lab::{Lab, Tool};
use serde_json::Value;

#[test]
fn nodes_come_reboot_die_and_go() {
    // The default grace is 50 s. Kubelets renew their lease every 10 s, so this one still forgives a lost renewal.
    let grace = "--node-monitor-grace-period=25s";
    let lab = builder("lifecycle").nodes(1).flag(Tool::KubeControllerManager, grace).temporary().unwrap();
    up_again_changes_nothing(&lab);
    a_new_node_has_its_taints_and_labels_from_its_first_moment(&lab);
    a_reboot_changes_the_boot_id_and_keeps_the_node(&lab);
    a_killed_node_becomes_not_ready_and_can_be_started_again(&lab);
    a_removed_node_is_gone(&lab);
    an_image_reaches_the_nodes_of_today_and_tomorrow(&lab);
}

fn up_again_changes_nothing(lab: &Lab) {
    let pids = |lab: &Lab| lab.components().unwrap();
    let before = pids(lab);
    let again = builder("lifecycle").nodes(1).up().unwrap();
    assert_eq!(pids(&again), before);
    assert_eq!(again.nodes().unwrap().len(), 1);
}

fn a_new_node_has_its_taints_and_labels_from_its_first_moment(lab: &Lab) {
    let mut watch = lab
        .client(Tool::Kubectl)
        .args(["get", "nodes", "--watch", "--output-watch-events", "-o", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Read all the time: kubectl would stand still once the pipe is full.
    let mut output = watch.stdout.take().unwrap();
    let reader = thread::spawn(move || {
        let mut seen = String::new();
        output.read_to_string(&mut seen).map(|_| seen)
    });
    let node = lab
        .add_node("late")
        .taint("node-ready/unverified=true:NoSchedule".parse().unwrap())
        .taint("example.com/other:NoExecute".parse().unwrap())
        .label("example.com/pool=blue".parse().unwrap())
        .start();
    watch.kill().unwrap();
    watch.wait().unwrap();
    let seen = reader.join().unwrap().unwrap();
    assert!(node.unwrap().is_on());
    // The last document may be cut off by the kill.
    let events = serde_json::Deserializer::from_str(&seen).into_iter::<Value>().map_while(Result::ok);
    let first = events.into_iter().find(|event| event["object"]["metadata"]["name"] == "late").unwrap();
    assert_eq!(first["type"], "ADDED");
    let taints: Vec<_> = first["object"]["spec"]["taints"].as_array().unwrap().iter().map(shown).collect();
    for wanted in ["node-ready/unverified=true:NoSchedule", "example.com/other=:NoExecute"] {
        assert!(taints.iter().any(|taint| taint == wanted), "{taints:?}");
    }
    assert_eq!(first["object"]["metadata"]["labels"]["example.com/pool"], "blue");
}

fn shown(taint: &Value) -> String {
    let word = |key: &str| taint[key].as_str().unwrap_or_default();
    format!("{}={}:{}", word("key"), word("value"), word("effect"))
}

fn a_reboot_changes_the_boot_id_and_keeps_the_node(lab: &Lab) {
    let uid = || lab.kubectl(["get", "node", "n1", "-o", "jsonpath={.metadata.uid}"]).unwrap();
    let pod = Pod::start(lab, "survivor", "n1");
    let node = lab.node("n1").unwrap();
    let (uid_before, boot_before) = (uid(), node.reported_boot_id().unwrap());
    node.reboot().unwrap();
    assert_eq!(uid(), uid_before);
    assert_ne!(node.reported_boot_id().unwrap(), boot_before);
    let inside = node.exec(["cat", "/proc/sys/kernel/random/boot_id"]).unwrap();
    assert_eq!(inside.trim(), node.reported_boot_id().unwrap());
    // The same pod comes back, because the disk and the Node object stayed.
    eventually("the pod to run again", || pod.probe(&["dns", "kubernetes.default.svc.cluster.local"]));
}

fn a_killed_node_becomes_not_ready_and_can_be_started_again(lab: &Lab) {
    let node = lab.node("n1").unwrap();
    node.kill().unwrap();
    assert!(!node.is_on());
    let off = node.exec(["true"]).unwrap_err().to_string();
    assert!(off.contains("node n1 is switched off"), "{off}");
    eventually("the node to become NotReady", || {
        let seen = ready(lab, "n1")?;
        anyhow::ensure!(seen == "Unknown", "Ready is {seen}");
        Ok(())
    });
    let elsewhere = Pod::start(lab, "elsewhere", "late");
    eventually("DNS to move away from the dead node", || {
        elsewhere.probe(&["dns", "kubernetes.default.svc.cluster.local"])
    });
    node.reboot().unwrap();
    assert_eq!(node.exec(["cat", "/proc/sys/kernel/hostname"]).unwrap().trim(), "n1");
}

fn a_removed_node_is_gone(lab: &Lab) {
    lab.node("late").unwrap().remove().unwrap();
    let gone = lab.kubectl(["get", "node", "late"]).unwrap_err().to_string();
    assert!(gone.contains("NotFound"), "{gone}");
    assert!(lab.node("late").is_err());
    assert_eq!(lab.nodes().unwrap().len(), 1);
}

fn an_image_reaches_the_nodes_of_today_and_tomorrow(lab: &Lab) {
    let today = lab.node("n1").unwrap();
    let ctr =
        |words: &[&str]| today.exec(["ctr", "-n", "k8s.io", "images"].iter().chain(words).copied()).unwrap();
    let image = "example.com/extra:1";
    ctr(&["tag", lab::PROBE_IMAGE, image]);
    ctr(&["export", "/var/lib/extra.tar", image]);
    ctr(&["rm", image]);
    lab.load_image(&lab.folder().join("nodes/n1/lib/extra.tar")).unwrap();
    let tomorrow = lab.add_node("n2").start().unwrap();
    for node in [&today, &tomorrow] {
        let images = node.exec(["ctr", "-n", "k8s.io", "images", "ls", "-q"]).unwrap();
        assert!(images.lines().any(|line| line == image), "{}: {images}", node.name());
    }
}

//! Each fault does what its name says to the pods of one node, leaves the other node alone, and heals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::thread;

use common::{Pod, eventually, lab_with_nodes, ready};
use lab::{Fault, Lab};

/// A question a pod asks the network, by name.
type Question = (&'static str, Vec<String>);

#[test]
fn every_fault_breaks_its_own_thing_on_its_own_node_and_heals() {
    let lab = lab_with_nodes("faults", 2);
    // The server is on the sound node, so that only what the broken node does can come between.
    let server = Pod::start(&lab, "server", "n2");
    let (broken, sound) = (Pod::start(&lab, "broken", "n1"), Pod::start(&lab, "sound", "n2"));
    lab.kubectl(["expose", "pod", "server", "--port=80", "--target-port=8080"]).unwrap();
    let questions = questions(&lab, &server);
    let node = lab.node("n1").unwrap();
    for pod in [&broken, &sound] {
        everything_but(&[], "before", &questions, pod);
    }
    for (fault, fails) in [
        (Fault::Dns, &["dns", "dns over tcp"][..]),
        (Fault::Api, &["api", "api directly", "api port"]),
        (Fault::Services, &["dns", "dns over tcp", "api", "api port", "service"]),
        (Fault::Pods, &["pod", "large answer", "service"]),
        (Fault::Mtu, &["large answer", "api", "api directly"]),
    ] {
        let renewed = eventually("the kubelet's lease", || lease(&lab));
        node.inject(fault).unwrap();
        everything_but(fails, &format!("{fault:?} on the node itself"), &questions, &broken);
        everything_but(&[], &format!("{fault:?} on the other node"), &questions, &sound);
        eventually(&format!("{fault:?}: the kubelet must go on renewing its lease"), || {
            anyhow::ensure!(lease(&lab)? > renewed, "the last renewal was at {renewed}");
            Ok(())
        });
        assert_eq!(
            ready(&lab, "n1").unwrap(),
            "True",
            "{fault:?}: the node must go on saying that it is Ready"
        );
        node.heal().unwrap();
        for pod in [&broken, &sound] {
            everything_but(&[], &format!("after {fault:?} was healed"), &questions, pod);
        }
    }
}

fn questions(lab: &Lab, server: &Pod) -> Vec<Question> {
    let service = |namespace: &str, name: &str| {
        lab.kubectl(["-n", namespace, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}"]).unwrap()
    };
    let api = service("default", "kubernetes");
    let direct = lab.kubectl(["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"]).unwrap();
    let ask = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let name = "kubernetes.default.svc.cluster.local";
    vec![
        ("dns", ask(&["dns", name])),
        ("dns over tcp", ask(&["dns", name, &service("kube-system", "kube-dns"), "tcp"])),
        ("api", ask(&["get", &format!("https://{api}/api")])),
        ("api directly", ask(&["get", &format!("{direct}/api")])),
        ("api port", ask(&["tcp", &format!("{api}:443")])),
        ("service", ask(&["get", &format!("http://{}/", service("default", "server"))])),
        ("pod", ask(&["get", &format!("http://{}:8080/", server.address)])),
        ("large answer", ask(&["get", &format!("http://{}:8080/bytes/200000", server.address)])),
    ]
}

fn lease(lab: &Lab) -> anyhow::Result<String> {
    lab.kubectl(["-n", "kube-node-lease", "get", "lease", "n1", "-o", "jsonpath={.spec.renewTime}"])
}

/// What must fail fails in silence, by a time-out; all else works, if need be at a second try: the machine is slow.
/// All questions at once, because most of the time goes into waiting for what never comes.
fn everything_but(fails: &[&str], when: &str, questions: &[Question], pod: &Pod) {
    thread::scope(|scope| {
        for (name, words) in questions {
            let ask = || pod.probe(&words.iter().map(String::as_str).collect::<Vec<_>>());
            if fails.contains(name) {
                scope.spawn(move || {
                    let answer = ask().expect_err(&format!("{when}: {name} must not work")).to_string();
                    let silent = answer.contains("timeout") || answer.contains("deadline exceeded");
                    assert!(silent, "{when}: {name} must time out, but: {answer}");
                });
            } else {
                scope.spawn(move || eventually(&format!("{when}: {name} to work"), ask));
            }
        }
    });
}

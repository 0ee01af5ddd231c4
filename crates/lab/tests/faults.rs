//! Each fault does what its name says to the pods of one node, leaves the other node alone, and heals.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::thread;

use common::{Pod, eventually, lab_with_nodes};
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
    all_work("before", &questions, &[&broken, &sound]);
    for (fault, fails) in [
        (Fault::Dns, &["dns", "dns over tcp"][..]),
        (Fault::Api, &["api", "api directly", "api port"]),
        (Fault::Services, &["dns", "dns over tcp", "api", "api port", "service"]),
        (Fault::Pods, &["pod", "large answer", "service"]),
        (Fault::Mtu, &["large answer", "api", "api directly"]),
    ] {
        node.inject(fault).unwrap();
        let expected: BTreeSet<_> = fails.iter().copied().collect();
        assert_eq!(failing(&questions, &broken), expected, "{fault:?} on the node itself");
        assert_eq!(failing(&questions, &sound), BTreeSet::new(), "{fault:?} on the other node");
        let ready = lab.kubectl(["get", "node", "n1", "-o", READY]).unwrap();
        assert_eq!(ready, "True", "{fault:?}: the node must go on saying that it is Ready");
        node.heal().unwrap();
        all_work(&format!("after {fault:?} was healed"), &questions, &[&broken, &sound]);
    }
}

const READY: &str = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";

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

fn probe(pod: &Pod, question: &Question) -> anyhow::Result<String> {
    pod.probe(&question.1.iter().map(String::as_str).collect::<Vec<_>>())
}

/// All questions at once: most of the time goes into waiting for what never comes.
fn failing(questions: &[Question], pod: &Pod) -> BTreeSet<&'static str> {
    thread::scope(|scope| {
        let asked: Vec<_> = questions
            .iter()
            .map(|question| (question.0, scope.spawn(move || probe(pod, question))))
            .collect();
        asked
            .into_iter()
            .filter_map(|(name, answer)| answer.join().unwrap().is_err().then_some(name))
            .collect()
    })
}

fn all_work(when: &str, questions: &[Question], pods: &[&Pod]) {
    for pod in pods {
        eventually(&format!("everything to work {when}"), || {
            let failing = failing(questions, pod);
            anyhow::ensure!(failing.is_empty(), "still failing: {failing:?}");
            Ok(())
        });
    }
}

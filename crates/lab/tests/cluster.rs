//! A cluster of two nodes does what a cluster does.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Pod, eventually, lab_with_nodes};
use lab::Lab;

const NAME: &str = "kubernetes.default.svc.cluster.local";

#[test]
fn a_cluster_of_two_nodes_works() {
    let lab = lab_with_nodes("cluster", 2);
    let (one, two) = (Pod::start(&lab, "one", "n1"), Pod::start(&lab, "two", "n2"));
    for (here, there) in [(&one, &two), (&two, &one)] {
        a_pod_reaches_dns_the_api_and_another_pod(&lab, here, there);
    }
    a_restricted_pod_runs(&lab);
    helm_installs_and_removes_a_chart(&lab);
    a_webhook_in_a_pod_is_called(&lab);
    the_audit_log_tells_who_wrote_what(&lab);
    traffic_goes_on_while_other_nodes_come_and_go(&lab, &one, &two);
    the_control_plane_survives_a_restart_of_the_api_server(&lab, &one);
    up_restarts_what_died_and_keeps_the_rest(&lab);
}

fn a_pod_reaches_dns_the_api_and_another_pod(lab: &Lab, here: &Pod, there: &Pod) {
    let dns =
        lab.kubectl(["-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"]);
    let api = lab.kubectl(["get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"]).unwrap();
    let dns = dns.unwrap();
    for protocol in ["udp", "tcp"] {
        let found = eventually("DNS", || here.probe(&["dns", NAME, &dns, protocol]));
        assert_eq!(found.trim(), api, "over {protocol}");
    }
    assert_eq!(eventually("DNS by the pod's own settings", || here.probe(&["dns", NAME])).trim(), api);
    // 403: reached, understood, and not allowed without credentials.
    let answer = eventually("API", || here.probe(&["get", &format!("https://{api}/api")]));
    assert!(answer.starts_with("403 "), "{answer}");
    let answer =
        eventually("pod", || here.probe(&["get", &format!("http://{}:8080/bytes/200000", there.address)]));
    assert_eq!(answer.trim(), "200 200000");
}

fn a_restricted_pod_runs(lab: &Lab) {
    lab.kubectl(["create", "namespace", "strict"]).unwrap();
    lab.kubectl(["label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted"]).unwrap();
    let pod = |security: &str| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{ name: strict, namespace: strict }}
spec:
  restartPolicy: OnFailure
  containers: [{{ name: probe, image: \"{}\", imagePullPolicy: Never, args: [dns, {NAME}] {security} }}]
",
            lab::PROBE_IMAGE
        )
    };
    let refused = lab.apply(&pod("")).unwrap_err().to_string();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
    eventually("the service account of the new namespace", || {
        lab.kubectl(["-n", "strict", "get", "serviceaccount", "default"])
    });
    lab.apply(&pod(
        ", securityContext: { runAsNonRoot: true, runAsUser: 1000, allowPrivilegeEscalation: false, \
         readOnlyRootFilesystem: true, capabilities: { drop: [ALL] }, seccompProfile: { type: RuntimeDefault } }",
    ))
    .unwrap();
    eventually("the restricted pod to succeed", || {
        let phase =
            lab.kubectl(["-n", "strict", "get", "pod", "strict", "-o", "jsonpath={.status.phase}"])?;
        anyhow::ensure!(phase == "Succeeded", "it is {phase}");
        Ok(())
    });
}

fn helm_installs_and_removes_a_chart(lab: &Lab) {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart");
    let chart = chart.to_string_lossy();
    lab.helm(["install", "demo", &chart, "--set", "greeting=good morning"]).unwrap();
    let seen = lab.kubectl(["get", "configmap", "demo-greeting", "-o", "jsonpath={.data.greeting}"]).unwrap();
    assert_eq!(seen, "good morning");
    lab.helm(["uninstall", "demo", "--wait"]).unwrap();
    let gone = lab.kubectl(["get", "configmap", "demo-greeting"]).unwrap_err().to_string();
    assert!(gone.contains("NotFound"), "{gone}");
}

fn a_webhook_in_a_pod_is_called(lab: &Lab) {
    let pair = lab.certificate(&["hook.default.svc".to_owned()]).unwrap();
    let manifest = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hook" },
          "stringData": { "tls.crt": pair.certificate, "tls.key": pair.key } },
        { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "hook", "labels": { "app": "hook" } },
          "spec": {
            "containers": [{ "name": "hook", "image": lab::PROBE_IMAGE, "imagePullPolicy": "Never",
                "args": ["webhook", ":8443", "/tls/tls.crt", "/tls/tls.key"],
                "readinessProbe": { "tcpSocket": { "port": 8443 }, "periodSeconds": 1 },
                "volumeMounts": [{ "name": "tls", "mountPath": "/tls" }] }],
            "volumes": [{ "name": "tls", "secret": { "secretName": "hook" } }] } },
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "hook" },
          "spec": { "selector": { "app": "hook" }, "ports": [{ "port": 443, "targetPort": 8443 }] } },
    ]});
    lab.apply(&manifest.to_string()).unwrap();
    lab.kubectl(["wait", "--for=condition=Ready", "pod/hook", "--timeout=90s"]).unwrap();
    let hook = serde_json::json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "hook" },
        "webhooks": [{
            "name": "hook.lab.local", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "timeoutSeconds": 5,
            "clientConfig": {
                "service": { "name": "hook", "namespace": "default" }, "caBundle": base64(&lab.authority().unwrap()),
            },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
        }],
    });
    lab.apply(&hook.to_string()).unwrap();
    // The API server learns of the webhook, and of the pod behind it, by its own watches.
    eventually("the webhook's mark", || {
        lab.kubectl(["delete", "configmap", "marked", "--ignore-not-found"])?;
        lab.kubectl(["create", "configmap", "marked"])?;
        let mark =
            lab.kubectl(["get", "configmap", "marked", "-o", "jsonpath={.metadata.labels.lab/webhook}"])?;
        anyhow::ensure!(mark == "called", "the label is {mark:?}");
        Ok(())
    });
    lab.kubectl(["delete", "mutatingwebhookconfiguration", "hook"]).unwrap();
}

fn base64(text: &str) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine};
    BASE64_STANDARD.encode(text)
}

fn the_audit_log_tells_who_wrote_what(lab: &Lab) {
    lab.kubectl(["create", "configmap", "audited"]).unwrap();
    lab.kubectl(["--as=somebody", "--as-group=system:masters", "delete", "configmap", "audited"]).unwrap();
    let ours = eventually("both writes in the audit log", || {
        let mut events = lab.audit()?;
        events.retain(|event| event.name == "audited" && event.is_write());
        anyhow::ensure!(events.len() == 2, "{events:?}");
        Ok(events)
    });
    let shown = |event: &lab::AuditEvent| {
        format!("{} {} {} {}: {}", event.user, event.verb, event.resource, event.namespace, event.code)
    };
    assert_eq!(
        ours.iter().map(shown).collect::<Vec<_>>(),
        ["lab-admin create configmaps default: 201", "somebody delete configmaps default: 200"]
    );
    let by_node =
        |event: &lab::AuditEvent| event.user == "system:node:n1" && event.resource == "nodes/status";
    assert!(lab.audit().unwrap().iter().any(by_node));
}

fn the_control_plane_survives_a_restart_of_the_api_server(lab: &Lab, pod: &Pod) {
    lab.restart(lab::Component::ApiServer).unwrap();
    assert!(lab.is_well());
    eventually("DNS after the restart", || pod.probe(&["dns", NAME]));
}

fn traffic_goes_on_while_other_nodes_come_and_go(lab: &Lab, here: &Pod, there: &Pod) {
    // Random hardware addresses would make the router change its own only now and then, so look at the cause too.
    here.probe(&["tcp", &format!("{}:8080", there.address)]).unwrap();
    let neighbours = lab.node("n1").unwrap().exec(["ip", "neigh"]).unwrap();
    let router =
        neighbours.lines().find(|line| line.starts_with("10.77.") && line.contains(".2 dev eth0")).unwrap();
    let number: u8 = router.split('.').nth(2).unwrap().parse().unwrap();
    assert!(router.contains(&format!("lladdr 02:00:0a:4d:{number:02x}:02")), "{router}");

    let done = AtomicBool::new(false);
    let address = format!("{}:8080", there.address);
    thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                here.probe(&["tcp", &address]).unwrap();
            }
        });
        for _ in 0..2 {
            let other = lab.add_node("n3").start().unwrap();
            other.reboot().unwrap();
            other.remove().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap();
    });
}

fn up_restarts_what_died_and_keeps_the_rest(lab: &Lab) {
    lab.kubectl(["create", "configmap", "kept"]).unwrap();
    let components = lab.components().unwrap();
    let scheduler = components.iter().find(|component| component.name == "kube-scheduler").unwrap();
    let pid = scheduler.pid.unwrap().to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    common::builder("cluster").nodes(2).up().unwrap();
    assert!(lab.is_well());
    lab.kubectl(["get", "configmap", "kept"]).unwrap();
}

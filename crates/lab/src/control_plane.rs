//! etcd, API server, controller manager and scheduler: plain processes on the machine.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::address::port;
use crate::lab::Lab;
use crate::pki::{Pki, write_secret};
use crate::process::{self, Daemon};
use crate::progress::Step;
use crate::tools::Tool;

const READY_LIMIT: Duration = Duration::from_secs(120);
/// In the order in which they start.
pub(crate) const COMPONENTS: [Tool; 4] =
    [Tool::Etcd, Tool::KubeApiserver, Tool::KubeControllerManager, Tool::KubeScheduler];

/// Makes certificates and kubeconfigs, starts everything and waits until it works.
pub(crate) fn create(lab: &Lab) -> Result<()> {
    let step = Step::begin("starting the control plane");
    credentials(lab)?;
    fs::write(lab.folder().join("audit-policy.json"), audit_policy())?;
    let etcd = start(lab, Tool::Etcd)?;
    let api = start(lab, Tool::KubeApiserver)?;
    wait_for_api(lab, &[&etcd, &api])?;
    let manager = start(lab, Tool::KubeControllerManager)?;
    let scheduler = start(lab, Tool::KubeScheduler)?;
    // Both have to do their work once: nothing else proves that they can.
    process::wait_for("the default service account", READY_LIMIT, &[&api, &manager, &scheduler], || {
        lab.kubectl(["get", "serviceaccount", "default"]).map(Some)
    })?;
    let scheduler_address = (lab.addresses().control_plane(), port::SCHEDULER);
    process::wait_for("the scheduler", READY_LIMIT, &[&api, &scheduler], || {
        Ok(std::net::TcpStream::connect(scheduler_address).ok())
    })?;
    step.done();
    Ok(())
}

/// Starts one component, also again after it was ended.
pub(crate) fn start(lab: &Lab, component: Tool) -> Result<Daemon> {
    let mut command = Command::new(component.path(lab.home()));
    command.current_dir(lab.folder()).args(arguments(lab, component)).args(lab.flags(component));
    process::spawn(lab.owner(), &component.name(), &lab.log(&component.name()), command)
}

/// Waits until the API server says that it is ready.
pub(crate) fn wait_for_api(lab: &Lab, daemons: &[&Daemon]) -> Result<()> {
    process::wait_for("the API server", READY_LIMIT, daemons, || {
        lab.kubectl(["get", "--raw", "/readyz"]).map(Some)
    })?;
    Ok(())
}

fn credentials(lab: &Lab) -> Result<()> {
    let (pki, addresses) = (Pki::create(lab.folder().join("pki"))?, lab.addresses());
    let mut names: Vec<String> = ["", ".default", ".default.svc", ".default.svc.cluster.local"]
        .map(|suffix| format!("kubernetes{suffix}"))
        .to_vec();
    names.extend(["localhost", "127.0.0.1"].map(str::to_owned));
    names.extend([addresses.control_plane().to_string(), addresses.api_service().to_string()]);
    pki.issue_file("kube-apiserver", "kube-apiserver", &[], &names)?;
    pki.issue_file("kubelet-client", "kube-apiserver-kubelet-client", &["system:masters"], &[])?;
    let server = addresses.api_url();
    for (file, user, groups) in [
        ("kubeconfig", "lab-admin", &["system:masters"][..]),
        ("kube-controller-manager.kubeconfig", "system:kube-controller-manager", &[]),
        ("kube-scheduler.kubeconfig", "system:kube-scheduler", &[]),
        ("kube-proxy.kubeconfig", "system:kube-proxy", &[]),
    ] {
        let pair = pki.issue(user, groups, &[])?;
        write_secret(&lab.folder().join(file), &pki.kubeconfig(&server, &pair)?.to_string())?;
    }
    Ok(())
}

/// Who did what to which object, without bodies. Health checks would drown it.
fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*"] },
            { "level": "Metadata" },
        ],
    })
    .to_string()
}

/// Paths are relative to the lab's folder, which is the working folder of every component.
fn arguments(lab: &Lab, component: Tool) -> Vec<String> {
    let addresses = lab.addresses();
    let address = addresses.control_plane();
    let etcd = format!("http://{address}:{}", port::ETCD);
    let peer = format!("http://{address}:{}", port::ETCD_PEER);
    let own = |component: Tool, port: u16| {
        let config = format!("{}.kubeconfig", component.name());
        vec![
            format!("--kubeconfig={config}"),
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            format!("--bind-address={address}"),
            format!("--secure-port={port}"),
            "--cert-dir=pki".to_owned(),
            "--leader-elect=false".to_owned(),
        ]
    };
    let fixed = |flags: &[&str]| flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>();
    match component {
        Tool::Etcd => {
            let mut flags = fixed(&[
                "--data-dir=etcd",
                "--unsafe-no-fsync", // throw-away data
                "--quota-backend-bytes=8589934592",
                "--log-level=warn",
            ]);
            flags.extend([
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
            ]);
            flags
        }
        Tool::KubeApiserver => {
            let mut flags = api_server_flags();
            flags.extend([
                format!("--etcd-servers={etcd}"),
                format!("--bind-address={address}"),
                format!("--advertise-address={address}"),
                format!("--secure-port={}", port::API),
                format!("--service-cluster-ip-range={}", addresses.services()),
            ]);
            if !lab.is_networked() {
                // A loopback address may not become an endpoint of the `kubernetes` Service.
                flags.push("--endpoint-reconciler-type=none".to_owned());
            }
            flags
        }
        Tool::KubeControllerManager => {
            let mut flags = own(component, port::CONTROLLER_MANAGER);
            flags.extend(fixed(&[
                "--use-service-account-credentials",
                "--service-account-private-key-file=pki/sa.key",
                "--root-ca-file=pki/ca.crt",
                "--allocate-node-cidrs=false", // the range follows the node's number, not its order of arrival
            ]));
            flags
        }
        Tool::KubeScheduler => own(component, port::SCHEDULER),
        _ => Vec::new(),
    }
}

fn api_server_flags() -> Vec<String> {
    [
        "--tls-cert-file=pki/kube-apiserver.crt",
        "--tls-private-key-file=pki/kube-apiserver.key",
        "--client-ca-file=pki/ca.crt",
        "--cert-dir=pki",
        "--service-account-key-file=pki/sa.pub",
        "--service-account-signing-key-file=pki/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-client-certificate=pki/kubelet-client.crt",
        "--kubelet-client-key=pki/kubelet-client.key",
        "--kubelet-certificate-authority=pki/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-aggregator-routing=true", // webhooks: the machine can reach pods, but no ClusterIP
        "--audit-policy-file=audit-policy.json",
        "--audit-log-path=audit.log",
        "--audit-log-maxsize=4096",
    ]
    .map(str::to_owned)
    .to_vec()
}

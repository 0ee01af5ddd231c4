//! etcd, API server, controller manager and scheduler: plain processes on the machine.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use fs_err as fs;
use serde_json::json;

use crate::address::{Addresses, Reach, port};
use crate::lab::Lab;
use crate::pki::{Pki, write_secret};
use crate::process::{self, Daemon};
use crate::progress::Step;
use crate::tools::Tool;

const READY_LIMIT: Duration = Duration::from_mins(2);

/// A part of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Component {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
}

/// Makes certificates and kubeconfigs, starts everything and waits until it works.
pub(crate) fn create(lab: &Lab) -> Result<()> {
    let step = Step::begin("starting the control plane");
    credentials(lab)?;
    fs::write(lab.folder().join("audit-policy.json"), audit_policy())?;
    let etcd = start(lab, Component::Etcd)?;
    let api = start(lab, Component::ApiServer)?;
    wait_for_api(lab, &[&etcd, &api])?;
    let manager = start(lab, Component::ControllerManager)?;
    let scheduler = start(lab, Component::Scheduler)?;
    let all = [&etcd, &api, &manager, &scheduler];
    // Work that the controller manager has done proves more than a port that answers.
    process::wait_for("the default service account", READY_LIMIT, &all, || {
        lab.ask(["get", "serviceaccount", "default"]).map(Some)
    })?;
    let scheduler_address = (lab.addresses().loopback(), port::SCHEDULER);
    process::wait_for("the scheduler", READY_LIMIT, &all, || {
        Ok(std::net::TcpStream::connect(scheduler_address).ok())
    })?;
    step.done();
    Ok(())
}

/// Starts one component, also again after it was ended.
pub(crate) fn start(lab: &Lab, component: Component) -> Result<Daemon> {
    let (tool, name) = (component.tool(), component.tool().name());
    let mut command = Command::new(tool.path(lab.home()));
    command.current_dir(lab.folder()).args(component.flags(lab)).args(lab.flags(tool));
    process::spawn(lab.owner(), &name, &lab.log(&name), command)
}

/// Starts again what has died.
pub(crate) fn revive(lab: &Lab) -> Result<()> {
    let mut started = Vec::new();
    for component in Component::ALL {
        if !process::is_running(lab.owner(), &component.tool().name())? {
            eprintln!("lab {}: {} is not running, starting it again", lab.name(), component.tool().name());
            started.push(start(lab, component)?);
        }
    }
    wait_for_api(lab, &started.iter().collect::<Vec<_>>())
}

/// Waits until the API server says that it is ready.
pub(crate) fn wait_for_api(lab: &Lab, daemons: &[&Daemon]) -> Result<()> {
    process::wait_for("the API server", READY_LIMIT, daemons, || {
        lab.ask(["get", "--raw", "/readyz"]).map(Some)
    })?;
    Ok(())
}

fn credentials(lab: &Lab) -> Result<()> {
    let addresses = lab.addresses();
    // An authority of its own: whoever may write to etcd may do anything, and a kubelet may not.
    let etcd = Pki::create(lab.folder().join("pki/etcd"))?;
    etcd.issue_file("etcd", "etcd", &[], &[addresses.loopback().to_string()])?;
    etcd.issue_file("client", "kube-apiserver", &[], &[])?;
    let pki = Pki::create(lab.folder().join("pki"))?;
    pki.create_account_key()?;
    let mut names: Vec<String> = ["", ".default", ".default.svc", ".default.svc.cluster.local"]
        .map(|suffix| format!("kubernetes{suffix}"))
        .to_vec();
    names.extend(["localhost", "127.0.0.1"].map(str::to_owned));
    names.extend([addresses.api_server().to_string(), addresses.api_service().to_string()]);
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

impl Component {
    /// In the order in which they start.
    pub(crate) const ALL: [Self; 4] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    pub(crate) fn tool(self) -> Tool {
        match self {
            Self::Etcd => Tool::Etcd,
            Self::ApiServer => Tool::KubeApiserver,
            Self::ControllerManager => Tool::KubeControllerManager,
            Self::Scheduler => Tool::KubeScheduler,
        }
    }

    /// Paths are relative to the lab's folder, which is the working folder of every component.
    fn flags(self, lab: &Lab) -> Vec<String> {
        let addresses = lab.addresses();
        match self {
            Self::Etcd => etcd_flags(addresses),
            Self::ApiServer => api_server_flags(addresses, lab.reach()),
            Self::ControllerManager => {
                let mut flags = client_flags(self, addresses, port::CONTROLLER_MANAGER);
                flags.extend(owned(&[
                    "--use-service-account-credentials",
                    "--service-account-private-key-file=pki/sa.key",
                    "--root-ca-file=pki/ca.crt",
                    "--flex-volume-plugin-dir=volume-plugins", // the default is a folder of the machine
                    "--allocate-node-cidrs=false", // the range follows the node's number, not its order of arrival
                    // It asks for an account and a token for each of its controllers before it starts any. With the
                    // default, 20 requests a second, that takes longer than all else together.
                    "--kube-api-qps=500",
                    "--kube-api-burst=1000",
                ]));
                flags
            }
            Self::Scheduler => client_flags(self, addresses, port::SCHEDULER),
        }
    }
}

fn etcd_flags(addresses: Addresses) -> Vec<String> {
    let url = etcd_url(addresses);
    let peer = format!("https://{}:{}", addresses.loopback(), port::ETCD_PEER);
    let mut flags = owned(&[
        "--name=lab",
        "--data-dir=etcd",
        "--unsafe-no-fsync", // throw-away data
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
        "--client-cert-auth",
        "--cert-file=pki/etcd/etcd.crt",
        "--key-file=pki/etcd/etcd.key",
        "--trusted-ca-file=pki/etcd/ca.crt",
        "--peer-client-cert-auth",
        "--peer-cert-file=pki/etcd/etcd.crt",
        "--peer-key-file=pki/etcd/etcd.key",
        "--peer-trusted-ca-file=pki/etcd/ca.crt",
    ]);
    flags.extend([
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=lab={peer}"),
    ]);
    flags
}

fn api_server_flags(addresses: Addresses, reach: Reach) -> Vec<String> {
    let mut flags = owned(&[
        "--etcd-cafile=pki/etcd/ca.crt",
        "--etcd-certfile=pki/etcd/client.crt",
        "--etcd-keyfile=pki/etcd/client.key",
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
    ]);
    let address = addresses.api_server();
    flags.extend([
        format!("--etcd-servers={}", etcd_url(addresses)),
        format!("--bind-address={address}"),
        format!("--advertise-address={address}"),
        format!("--secure-port={}", port::API),
        format!("--service-cluster-ip-range={}", addresses.services()),
    ]);
    if reach == Reach::Loopback {
        // A loopback address may not become an endpoint of the `kubernetes` Service.
        flags.push("--endpoint-reconciler-type=none".to_owned());
    }
    flags
}

/// What the two components that only talk to the API server have in common.
fn client_flags(component: Component, addresses: Addresses, port: u16) -> Vec<String> {
    let config = format!("{}.kubeconfig", component.tool().name());
    vec![
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        format!("--bind-address={}", addresses.loopback()),
        format!("--secure-port={port}"),
        "--cert-dir=pki".to_owned(),
        "--leader-elect=false".to_owned(),
    ]
}

fn etcd_url(addresses: Addresses) -> String {
    format!("https://{}:{}", addresses.loopback(), port::ETCD)
}

fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

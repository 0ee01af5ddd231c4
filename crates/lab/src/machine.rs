//! The machine below a node: its namespaces, its disk, and the programs that run on it.
//!
//! A machine is a set of namespaces (net, mount, pid, uts, cgroup) held by one process, which is pid 1 in there.
//! Killing that process powers the machine off at once, containers and all, and can hit nothing else. What must
//! survive a power cut is in the node's folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fs_err as fs;
use serde_json::json;

use crate::cgroup::{Group, Layout};
use crate::node::{Node, NodeState};
use crate::pki::write_secret;
use crate::process::Daemon;
use crate::tools::{self, Tool};
use crate::{host, image, network, process};

const START_LIMIT: Duration = Duration::from_mins(1);
/// File in the node's folder that holds the ID of its current boot.
pub(crate) const BOOT_ID: &str = "boot_id";
const BOOT: &str = include_str!("files/boot.sh");
/// Where the machine finds the lab's tools and its own folder, wherever they are outside.
const TOOLS_INSIDE: &str = "/run/lab/tools";
const FOLDER_INSIDE: &str = "/run/lab/node";
/// Joins control groups, which only the process itself can do before it starts something else.
const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit 1; shift; done; shift; exec "$@""#;

/// Writes the files of a new machine: its disk, credentials and configuration.
pub(crate) fn create(node: &Node) -> Result<()> {
    let (lab, folder, name) = (node.lab(), node.folder(), node.name());
    for part in ["lib", "log", "cni"] {
        fs::create_dir_all(folder.join(part))?;
    }
    if let Some(logs) = log_file(node, "machine").parent() {
        fs::create_dir_all(logs)?;
    }
    let (addresses, index) = (lab.addresses(), node.state().index);
    let subjects = [addresses.node(index).to_string(), name.to_owned()];
    let pair = lab.pki().issue(&format!("system:node:{name}"), &["system:nodes"], &subjects)?;
    write_secret(&folder.join("kubelet.crt"), &pair.certificate)?;
    write_secret(&folder.join("kubelet.key"), &pair.key)?;
    write_secret(
        &folder.join("kubeconfig"),
        &lab.pki().kubeconfig(&addresses.api_url(), &pair)?.to_string(),
    )?;
    fs::copy(lab.folder().join("kube-proxy.kubeconfig"), folder.join("kube-proxy.kubeconfig"))?;
    fs::write(folder.join("ca.crt"), lab.pki().authority()?)?;
    fs::write(folder.join("machine_id"), format!("{}\n", node.state().machine_id))?;
    fs::write(folder.join("resolv.conf"), format!("nameserver {}\n", addresses.dns_service()))?;
    fs::write(
        folder.join("kubelet.json"),
        kubelet_config(node.state(), &addresses.dns_service().to_string()),
    )?;
    fs::write(folder.join("cni/10-lab.conflist"), cni_config(&addresses.pods_of(index).to_string()))?;
    fs::write(folder.join("containerd.toml"), containerd_config()?)?;
    Ok(())
}

/// Switches the machine on and starts its programs, without waiting for the node to be Ready.
pub(crate) fn switch_on(node: &Node) -> Result<()> {
    let (lab, layout) = (node.lab(), Layout::detect()?);
    let group = group(node, &layout);
    group.create()?;
    let mut command = joining(&group.entrances());
    command
        .args(["unshare", "--net", "--mount", "--uts", "--pid", "--cgroup", "--fork", "--kill-child"])
        .args(["--propagation", "private", "--mount-proc", "--"])
        .arg(Tool::Probe.path(lab.home()))
        .arg("pause");
    let holder = process::spawn(lab.owner(), &machine_role(node), &log_file(node, "machine"), command)?;
    let pid = network::holder(lab.owner(), &machine_role(node), &holder)?;
    group.settle()?;
    network::connect(lab.owner(), lab.addresses(), node.state().index, pid)?;
    let mut boot = inside(node)?;
    boot.args(["sh", "-s", "--"]).arg(node.folder()).arg(lab.home().tools()).arg(node.name());
    process::run_with_text(boot.args(layout.mount_arguments()), BOOT)?;

    let containerd =
        start(node, Tool::Containerd, &["--config".to_owned(), format!("{FOLDER_INSIDE}/containerd.toml")])?;
    process::wait_for(&format!("containerd on {}", node.name()), START_LIMIT, &[&containerd], || {
        process::run(inside(node)?.args(["ctr", "version"])).map(Some)
    })?;
    for archive in image::base(lab.home())?.into_iter().chain(image::kept(&lab.images())?) {
        import(node, &archive)?;
    }
    start(node, Tool::Kubelet, &kubelet_flags(node))?;
    start_kube_proxy(node)
}

/// Cuts the power. The Node object stays, and so does the disk.
pub(crate) fn switch_off(node: &Node) -> Result<()> {
    let lab = node.lab();
    let (machine, programs) = (machine_role(node), format!("{}/", machine_role(node)));
    process::kill(lab.owner(), |role| role == machine || role.starts_with(&programs))?;
    network::disconnect(lab.owner(), lab.addresses(), node.state().index)?;
    group(node, &Layout::detect()?).remove()
}

/// Whether the machine has power.
pub(crate) fn is_on(node: &Node) -> bool {
    pid(node).is_ok()
}

/// A command inside the machine; its program and arguments are still missing.
pub(crate) fn inside(node: &Node) -> Result<Command> {
    let mut command = joining(&group(node, &Layout::detect()?).inner_entrances());
    command
        .args(["nsenter", "--target", &pid(node)?.to_string()])
        .args(["--mount", "--net", "--pid", "--uts", "--cgroup", "--"])
        .env("PATH", tools::path_variable(Path::new(TOOLS_INSIDE)));
    Ok(command)
}

/// Starts kube-proxy, also again after it was killed.
pub(crate) fn start_kube_proxy(node: &Node) -> Result<()> {
    let flags = [
        format!("--kubeconfig={FOLDER_INSIDE}/kube-proxy.kubeconfig"),
        format!("--hostname-override={}", node.name()),
        format!("--cluster-cidr={}", node.lab().addresses().pods()),
        "--proxy-mode=nftables".to_owned(),
        "--conntrack-max-per-core=0".to_owned(), // a namespace may not change the machine's limit
    ];
    start(node, Tool::KubeProxy, &flags)?;
    Ok(())
}

/// Whether one of the machine's programs is running.
pub(crate) fn runs(node: &Node, program: Tool) -> Result<bool> {
    process::is_running(node.lab().owner(), &role(node, program))
}

/// Looks until there is something to see. Gives up at once if one of `programs` ends, and shows their last words
/// whenever it gives up.
pub(crate) fn wait_watching<T>(
    node: &Node,
    programs: &[Tool],
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let last_words = |program: Tool| {
        let log = log(node, program);
        format!("the last lines of {}:\n{}", log.display(), process::tail_or_reason(&log))
    };
    let waited = process::wait_for(&format!("node {} {what}", node.name()), limit, &[], || {
        for program in programs {
            if !runs(node, *program)? {
                let ended = anyhow!("{} on {} ended; {}", program.name(), node.name(), last_words(*program));
                return Ok(Some(Err(ended)));
            }
        }
        Ok(look()?.map(Ok))
    });
    // The reason first: the logs are long.
    waited.map_err(|err| {
        let logs: Vec<_> = programs.iter().map(|program| last_words(*program)).collect();
        anyhow!("{err:#}\n{}", logs.join("\n"))
    })?
}

/// Waits until pods of the node can reach the API server by its ClusterIP.
pub(crate) fn wait_for_api_service(node: &Node) -> Result<()> {
    wait_for_service(node, &format!("{} . tcp . 443", node.lab().addresses().api_service()))
}

/// Waits until pods of the node can reach the cluster's DNS.
pub(crate) fn wait_for_dns_service(node: &Node) -> Result<()> {
    wait_for_service(node, &format!("{} . udp . 53", node.lab().addresses().dns_service()))
}

/// Waits until kube-proxy leads a Service, written as `ADDRESS . PROTOCOL . PORT`, to an endpoint.
fn wait_for_service(node: &Node, service: &str) -> Result<()> {
    let rule = format!("{service} : goto service-");
    wait_watching(node, &[Tool::KubeProxy], &format!("to know the Service {service}"), START_LIMIT, || {
        let table = process::run(inside(node)?.args(["nft", "list", "table", "ip", "kube-proxy"]))?;
        Ok(table.contains(&rule).then_some(()))
    })
}

/// Role of one of the machine's programs in the process table.
pub(crate) fn role(node: &Node, program: Tool) -> String {
    format!("{}/{}", machine_role(node), program.name())
}

/// Log of one of the machine's programs.
pub(crate) fn log(node: &Node, program: Tool) -> PathBuf {
    log_file(node, &program.name())
}

/// Brings an image archive onto the machine. It is unpacked when the first pod uses it.
pub(crate) fn import(node: &Node, archive: &Path) -> Result<()> {
    let (file, _) = fs::File::open(archive)?.into_parts();
    let mut command = inside(node)?;
    command.args(["ctr", "--namespace", "k8s.io", "images", "import", "--no-unpack", "-"]);
    process::run_with_file(&mut command, file)
        .with_context(|| format!("cannot load {} into {}", archive.display(), node.name()))?;
    Ok(())
}

fn start(node: &Node, program: Tool, arguments: &[String]) -> Result<Daemon> {
    let mut command = inside(node)?;
    command.arg(program.name()).args(arguments).args(node.lab().flags(program));
    process::spawn(node.lab().owner(), &role(node, program), &log(node, program), command)
}

/// Nodes have a name space of their own: one may be called `etcd`.
fn machine_role(node: &Node) -> String {
    format!("node/{}", node.name())
}

fn log_file(node: &Node, what: &str) -> PathBuf {
    node.lab().log(&format!("{}/{what}", machine_role(node)))
}

fn pid(node: &Node) -> Result<i32> {
    process::find_program(node.lab().owner(), &machine_role(node), network::HOLDER)?
        .with_context(|| format!("node {} is switched off: `lab node reboot {0}` starts it", node.name()))
}

fn group(node: &Node, layout: &Layout) -> Group {
    Group::new(layout, node.lab().owner(), node.name())
}

fn joining(entrances: &[PathBuf]) -> Command {
    let mut command = host::command("sh");
    command.current_dir("/").args(["-c", JOIN, "join"]).args(entrances).arg("--");
    command
}

fn kubelet_flags(node: &Node) -> Vec<String> {
    let state = node.state();
    let labels: Vec<_> = state.labels.iter().map(ToString::to_string).collect();
    vec![
        format!("--config={FOLDER_INSIDE}/kubelet.json"),
        format!("--kubeconfig={FOLDER_INSIDE}/kubeconfig"),
        format!("--hostname-override={}", node.name()),
        format!("--node-ip={}", node.lab().addresses().node(state.index)),
        format!("--node-labels={}", labels.join(",")),
        "--v=2".to_owned(),
    ]
}

fn kubelet_config(state: &NodeState, dns: &str) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "authentication": {
            "anonymous": { "enabled": false }, "webhook": { "enabled": true },
            "x509": { "clientCAFile": format!("{FOLDER_INSIDE}/ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": format!("{FOLDER_INSIDE}/kubelet.crt"),
        "tlsPrivateKeyFile": format!("{FOLDER_INSIDE}/kubelet.key"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [dns], "clusterDomain": "cluster.local",
        // The machine's own resolv.conf would leak its search domains into pods.
        "resolvConf": format!("{FOLDER_INSIDE}/resolv.conf"),
        "failSwapOn": false,
        "evictionHard": { "memory.available": "50Mi" },
        // A collected image could not be pulled again.
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "5s",
        "registerWithTaints": state.taints,
        // The default is a folder of the machine, which the node shares.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    })
    .to_string()
}

/// `ptp` rather than `bridge`: every packet of a pod then passes the machine's forward hook, even to a pod on the
/// same machine, where a fault can catch it. Addresses are kept in /run: they must not survive a reboot.
fn cni_config(pods: &str) -> String {
    json!({
        "cniVersion": "1.0.0", "name": "lab",
        "plugins": [
            { "type": "ptp", "ipMasq": false, "ipam": {
                "type": "host-local", "dataDir": "/run/cni-addresses",
                "ranges": [[{ "subnet": pods }]], "routes": [{ "dst": "0.0.0.0/0" }],
            }},
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
    .to_string()
}

fn containerd_config() -> Result<String> {
    let plugins = host::cni_folder().context("no CNI plugins are installed")?;
    Ok(format!(
        r#"version = 3
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{}"
[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{FOLDER_INSIDE}/cni"
"#,
        image::PAUSE
    ))
}

//! One replica of the controller, as a process on this machine.

use std::ffi::OsStr;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use fs_err as fs;
use lab::Program;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};
use crate::config::Config;
use crate::forwarder::{Forwarder, Outage};
use crate::http::{self, Answer};
use crate::metrics::Metrics;
use crate::product;
use crate::story::PATIENCE;

/// The controller's service account.
pub const ACCOUNT: &str = "kube-node-ready-controller";
/// Below the ephemeral ports of the kernel.
const PORTS: std::ops::Range<u16> = 18000..20000;

/// A replica of the controller. It has exactly the permissions of the controller's service account, and a connection of
/// its own to the API server, which can be cut. It ends with the test, however that ends.
#[derive(Debug)]
pub struct Controller<'c> {
    cluster: &'c Cluster,
    name: String,
    folder: PathBuf,
    port: u16,
    arguments: Vec<String>,
    forwarder: Forwarder,
    program: Program,
}

impl<'c> Controller<'c> {
    /// Starts a replica. Its name must be valid for a pod.
    pub fn start(cluster: &'c Cluster, config: &Config, name: &str) -> Result<Self> {
        Self::start_with(cluster, config, name, &[])
    }

    /// The same with additional arguments, such as `--dry-run`.
    pub fn start_with(cluster: &'c Cluster, config: &Config, name: &str, arguments: &[&str]) -> Result<Self> {
        cluster.permit(config)?;
        let folder = cluster.folder().join("replicas").join(name);
        fs::create_dir_all(&folder)?;
        let port = free_port()?;
        let forwarder = Forwarder::start(cluster.api().address())?;
        write_config(&folder, config, port)?;
        write_kubeconfig(cluster, &folder.join("kubeconfig"), forwarder.address())?;
        let arguments: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let program = spawn(cluster, name, &folder, &arguments)?;
        Ok(Self { cluster, name: name.to_owned(), folder, port, arguments, forwarder, program })
    }

    /// Its name, as it appears in the API server's audit log and in the lease.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A kubeconfig with its connection to the API server and its permissions.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Its process.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Kills it, as a crash would.
    pub fn kill(&self) -> Result<()> {
        self.program.kill()
    }

    /// Asks it to end and returns its exit status.
    pub fn terminate(&self) -> Result<ExitStatus> {
        self.program.terminate()?;
        self.program.wait(PATIENCE)
    }

    /// Suspends it: when it continues, it believes that no time has passed.
    pub fn freeze(&self) -> Result<()> {
        self.program.freeze()
    }

    /// Resumes it.
    pub fn thaw(&self) -> Result<()> {
        self.program.thaw()
    }

    /// Starts it again, under the same name, after it has ended.
    pub fn restart(&mut self) -> Result<()> {
        ensure!(self.program.exit_status().is_some(), "replica {} is still running", self.name);
        self.program = spawn(self.cluster, &self.name, &self.folder, &self.arguments)?;
        Ok(())
    }

    /// Replaces its configuration file while it runs.
    pub fn reconfigure(&self, config: &Config) -> Result<()> {
        self.cluster.permit(config)?;
        write_config(&self.folder, config, self.port)
    }

    /// Replaces its configuration file and waits until the change is in force.
    #[track_caller]
    pub fn reload(&self, config: &Config) -> Result<()> {
        let before = self.reloads()?;
        self.reconfigure(config)?;
        let what = format!("replica {} to use its new configuration", self.name);
        self.cluster.eventually(&what, || Ok(self.reloads()? > before))
    }

    /// How often a changed configuration has come into force.
    pub fn reloads(&self) -> Result<f64> {
        let reloads = self.metrics()?.value("kube_node_ready_config_reloads_total", &[("outcome", "ok")]);
        reloads.context("reloads are not counted")
    }

    /// Cuts its connection to the API server.
    pub fn cut_off(&self, outage: Outage) {
        self.forwarder.cut(outage);
    }

    /// Restores its connection to the API server.
    pub fn reconnect(&self) {
        self.forwarder.fix();
    }

    /// Its log, including earlier runs: a JSON object for each line, or the text of a line that is not JSON.
    pub fn log(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.program.log())?;
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
        Ok(text.lines().map(parse).collect())
    }

    /// Fetches a path from its server.
    pub fn get(&self, path: &str) -> Result<Answer> {
        http::get(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), path)
    }

    /// Its metrics.
    pub fn metrics(&self) -> Result<Metrics> {
        let answer = self.get("/metrics")?;
        ensure!(answer.status == 200, "/metrics: {}: {}", answer.status, answer.body);
        Ok(Metrics::parse(&answer.body))
    }

    /// Waits until it reports that it is ready.
    #[track_caller]
    pub fn wait_until_ready(&self) -> Result<()> {
        self.cluster.wait_for(&format!("replica {} to be ready", self.name), || {
            let answer = self.get("/readyz")?;
            ensure!(answer.status == 200, "/readyz: {}: {}", answer.status, answer.body);
            Ok(Some(()))
        })
    }

    /// Waits until it holds the lease.
    #[track_caller]
    pub fn wait_until_leading(&self) -> Result<()> {
        self.cluster.wait_for(&format!("replica {} to lead", self.name), || {
            let leader = self.cluster.leader()?;
            ensure!(leader.as_deref() == Some(&self.name), "the leader is {leader:?}");
            Ok(Some(()))
        })
    }
}

impl Drop for Controller<'_> {
    fn drop(&mut self) {
        if let Err(err) = self.kill() {
            eprintln!("cannot end replica {}: {err:#}", self.name);
        }
    }
}

fn spawn(cluster: &Cluster, name: &str, folder: &Path, arguments: &[String]) -> Result<Program> {
    let mut command = Command::new(product::path()?);
    command
        .arg("controller")
        .args([OsStr::new("--config"), folder.join("config.yaml").as_os_str()])
        .args([OsStr::new("--kubeconfig"), folder.join("kubeconfig").as_os_str()])
        .args(arguments)
        .env("POD_NAMESPACE", NAMESPACE)
        .env("POD_NAME", name);
    let program = cluster.spawn(name, command)?;
    cluster.add_replica(name, program.clone());
    Ok(program)
}

/// The file is renamed into place, so that a replica that watches it never sees half of it.
fn write_config(folder: &Path, config: &Config, port: u16) -> Result<()> {
    let config = config.clone().set("metrics.port", port).set("health.port", port);
    let fresh = folder.join("config.yaml.new");
    fs::write(&fresh, config.text())?;
    Ok(fs::rename(&fresh, folder.join("config.yaml"))?)
}

/// Writes a kubeconfig with the permissions of the service account, through a forwarder. The server's certificate is
/// valid for every address of this machine that a forwarder can have.
fn write_kubeconfig(cluster: &Cluster, path: &Path, server: SocketAddr) -> Result<()> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{ "name": "lab", "cluster": {
            "server": format!("https://{server}"),
            "certificate-authority-data": BASE64_STANDARD.encode(cluster.authority()?),
        }}],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "lab", "namespace": NAMESPACE } }],
        "users": [{ "name": "lab", "user": { "token": cluster.api().token(NAMESPACE, ACCOUNT)? } }],
    });
    let options = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path);
    let mut file = options.with_context(|| path.display().to_string())?;
    Ok(file.write_all(config.to_string().as_bytes())?)
}

/// Returns a different port for each replica of this process, and none that is in use.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent test processes begin at different ports.
    let start = u16::try_from(std::process::id() % u32::from(PORTS.end - PORTS.start))?;
    for _ in PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(start);
        let port = PORTS.start + step % (PORTS.end - PORTS.start);
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port between {} and {} is free", PORTS.start, PORTS.end)
}

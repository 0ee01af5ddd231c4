//! The subject of a measurement: the product or the baseline, as a separate process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use knr_core::config::Config;
use lab::{Lab, Program};

use crate::bare;
use crate::objects::NAMESPACE;

pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// The precision with which the time to become ready is measured.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The program that opens the gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Baseline,
    Product,
}

/// A running subject. It ends with this handle.
pub(crate) struct Subject {
    pub(crate) program: Program,
    /// A part of its user agent in the audit log.
    pub(crate) agent: String,
    /// The time from its start until it was ready.
    pub(crate) start_to_ready: Duration,
    address: SocketAddr,
}

/// The product's configuration: the defaults, except for the namespace, the timeouts and the number of workers.
pub(crate) fn config(workers: usize, more: &str) -> String {
    format!(
        "worker: {{namespace: {NAMESPACE}, timeoutSeconds: 3600, pendingTimeoutSeconds: 600{more}}}\n\
         limits: {{maxConcurrentWorkers: {workers}}}\n"
    )
}

impl Subject {
    /// Starts the baseline and waits until it is ready. A name can be used only once.
    pub(crate) fn baseline(lab: &Lab, name: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bare").arg(lab.kubeconfig());
        let (program, began) = (lab.spawn(name, command)?, Instant::now());
        let agent = "bare".to_owned();
        let subject = Self { program, agent, start_to_ready: Duration::ZERO, address: nowhere() };
        subject.wait(began, || Ok(fs::read_to_string(subject.program.log())?.contains(bare::READY)))?;
        Ok(subject)
    }

    /// Starts a build of the product and waits until it is ready. A name can be used only once.
    pub(crate) fn product(build: &Path, lab: &Lab, config: &str, name: &str) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let file = lab.folder().join(format!("{name}.yaml"));
        fs::write(&file, format!("{config}metrics: {{port: {port}}}\nhealth: {{port: {port}}}\n"))?;
        Config::parse(&fs::read_to_string(&file)?).map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
        let mut command = Command::new(build);
        command.arg("controller").arg("--config").arg(&file).arg("--kubeconfig").arg(lab.kubeconfig());
        command.args(["--namespace", NAMESPACE, "--identity", name]);
        let began = Instant::now();
        let program = lab.spawn(name, command)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut subject =
            Self { program, agent: format!("({name}_"), start_to_ready: Duration::ZERO, address };
        subject
            .wait(began, || Ok(knr_e2e::get(address, "/readyz").is_ok_and(|answer| answer.status == 200)))?;
        subject.start_to_ready = began.elapsed();
        Ok(subject)
    }

    fn wait(&self, began: Instant, is_ready: impl Fn() -> Result<bool>) -> Result<()> {
        while !is_ready()? {
            if let Some(status) = self.program.exit_status() {
                bail!("it ended ({status}), see {}", self.program.log().display());
            }
            if began.elapsed() > PATIENCE {
                bail!("it is not ready, see {}", self.program.log().display());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// The product's metrics.
    pub(crate) fn metrics(&self) -> Result<knr_e2e::Metrics> {
        Ok(knr_e2e::Metrics::parse(&knr_e2e::get(self.address, "/metrics")?.body))
    }

    /// Waits until the product has nothing more to do. The baseline does not report that.
    pub(crate) fn until_at_rest(&self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let orders = self.metrics()?.value("kube_node_ready_queue_orders", &[]);
            if orders.context("it does not report how many orders there are")? < 0.5 {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the product does not come to rest: {orders:?} orders");
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Asks it to end, so that it releases its lease, and waits for that.
    pub(crate) fn stop(&self) -> Result<()> {
        self.program.terminate()?;
        self.program.wait(PATIENCE).map(drop)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("cannot end a subject of the bench: {error:#}");
        }
    }
}

fn nowhere() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
}

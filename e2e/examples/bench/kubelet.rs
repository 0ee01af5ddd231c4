//! Real kubelets: nodes join one after another, in turn with the gate and with a bare pod.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::{Home, Image, Lab, TemporaryLab};
use tokio::runtime::Runtime;

use crate::api::Api;
use crate::fleet::NODES;
use crate::mirror::{Mirror, SeenNode, SeenPod};
use crate::objects::{self, NAMESPACE};
use crate::process;
use crate::report::{Report, Unit, median};
use crate::subject::{self, Subject};

const REPOSITORY: &str = "lab.local/kube-node-ready";
const TAG: &str = "bench";
const USER: u32 = 65532;
const PATIENCE: Duration = Duration::from_mins(2);
const BARE_PODS: &str = "/api/v1/namespaces/bench/pods?timeoutSeconds=3600&labelSelector=bench%3Dbare";
const LOOK_AGAIN: Duration = Duration::from_millis(2);

struct Real<'a> {
    runtime: &'a Runtime,
    api: Api,
    nodes: Mirror<SeenNode>,
    pods: Mirror<SeenPod>,
    /// Dropped last.
    lab: TemporaryLab,
}

/// Measures, and reports the results.
pub(crate) fn measure(runtime: &Runtime, joins: usize, report: &mut Report) -> Result<()> {
    let lab = Lab::builder(&Home::from_env()?, "bench-real").nodes(1).temporary()?;
    let archive = image(&lab)?;
    lab.load_image(&archive)?;
    lab.apply(&objects::setting())?;
    permit(&lab)?;
    let _in_runtime = runtime.enter();
    let api = runtime.block_on(Api::open(&lab.kubeconfig(), "bench"))?;
    let (nodes, pods) = (Mirror::start(api.clone(), NODES), Mirror::start(api.clone(), BARE_PODS));
    let real = Real { runtime, api, nodes, pods, lab };
    let image = format!(", image: {{repository: {REPOSITORY}, tag: {TAG}, pullPolicy: Never}}");
    let subject = Subject::product(
        &knr_e2e::product::path()?,
        &real.lab,
        &subject::config(10, &image),
        "kubelet-product",
    )?;
    let (mut opened, mut bare) = (Vec::new(), Vec::new());
    let mut memory = 0;
    for number in 0..=joins {
        let (took, peak) = real.product_opens(&format!("p{number}"), number == 0)?;
        memory = memory.max(peak);
        let finished = real.bare_pod_ends(&format!("b{number}"))?;
        eprintln!("join {number}: open after {took:?}, bare pod after {finished:?}");
        // The first join of each kind is a warm-up.
        if number > 0 {
            opened.push(took.as_secs_f64());
            bare.push(finished.as_secs_f64());
        }
    }
    drop(subject);
    let (bare, opened) = (median(bare), median(opened));
    report.section(&format!("Real kubelets, {joins} nodes each: from Ready"));
    report.add("to the end of a bare pod with one DNS query", format!("{bare:.2} s"));
    report.add("to the open gate", format!("{opened:.2} s"));
    report.at_most("product to bare pod", Unit::Times, opened / bare, 1.3);
    report.add("memory of a worker at its peak", mebibytes(memory));
    #[allow(clippy::cast_precision_loss)] // far below what a float holds exactly
    let size = fs_err::metadata(&archive)?.len() as f64 / 1e6;
    report.add("size of the image", format!("{size:.1} MB"));
    Ok(())
}

/// Grants the permissions that the product says it needs.
fn permit(lab: &Lab) -> Result<()> {
    let file = lab.folder().join("permit.yaml");
    fs_err::write(&file, subject::config(1, ""))?;
    lab.apply(&knr_e2e::product::permissions(NAMESPACE, &file)?)
}

fn mebibytes(kibibytes: u64) -> String {
    match kibibytes {
        0 => "not seen".to_owned(),
        #[allow(clippy::cast_precision_loss)] // far below what a float holds exactly
        kibibytes => format!("{:.1} MiB", kibibytes as f64 / 1024.0),
    }
}

fn image(lab: &Lab) -> Result<PathBuf> {
    let archive = lab.folder().join("product.tar");
    let program = knr_e2e::product::path()?;
    let tag = format!("{REPOSITORY}:{TAG}");
    Image { program: &program, tags: &[&tag], arguments: &[], user: Some(USER) }.write(&archive)?;
    Ok(archive)
}

impl Real<'_> {
    /// Lets a node with the gate join. Returns the time from Ready to the open gate and, if requested, the peak memory
    /// of its worker.
    fn product_opens(&self, name: &str, look_at_memory: bool) -> Result<(Duration, u64)> {
        let spy = look_at_memory.then(Spy::start);
        let node =
            self.lab.add_node(name).taint("node-ready/unverified=true:NoSchedule".parse()?).switch_on()?;
        let (ready, opened) =
            self.runtime.block_on(self.nodes.wait("the gate to open", PATIENCE, |nodes| {
                let node = nodes.get(name)?;
                Some((node.ready_at?, node.opened_at?))
            }))?;
        let peak = spy.map_or(0, Spy::stop);
        node.remove()?;
        Ok((since(opened, ready), peak))
    }

    /// Lets a node without the gate join, and puts a pod on it as soon as it is seen. Returns the time from Ready until
    /// the pod was seen to have ended.
    fn bare_pod_ends(&self, name: &str) -> Result<Duration> {
        let put = async {
            self.nodes.wait("the node", PATIENCE, |nodes| nodes.get(name).map(drop)).await?;
            self.api.create(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), &objects::bare_pod(name)).await
        };
        let lab: &Lab = &self.lab;
        let (node, put) = std::thread::scope(|scope| {
            let joins = scope.spawn(|| lab.add_node(name).switch_on());
            let put = self.runtime.block_on(put);
            (joins.join(), put)
        });
        let node = node.ok().context("the thread that switches a node on panicked")??;
        put?;
        let (ready, ended) = self.runtime.block_on(async {
            let ended =
                self.pods.wait("the bare pod to end", PATIENCE, |pods| pods.get(name)?.ended_at).await?;
            let ready = self.nodes.wait("Ready", PATIENCE, |nodes| nodes.get(name)?.ready_at).await?;
            anyhow::Ok((ready, ended))
        })?;
        node.remove()?;
        Ok(since(ended, ready))
    }
}

/// The time since Ready, which is zero for an event before it.
fn since(event: Instant, ready: Instant) -> Duration {
    event.saturating_duration_since(ready)
}

/// Measures the peak memory of a worker's process.
struct Spy {
    stop: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Spy {
    fn start() -> Self {
        let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, highest) = (Arc::clone(&stop), Arc::clone(&peak));
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                highest.fetch_max(
                    process::peak_of("/kube-node-ready", "worker").unwrap_or(0),
                    Ordering::Relaxed,
                );
                std::thread::sleep(LOOK_AGAIN);
            }
        });
        Self { stop, peak, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.peak.load(Ordering::Relaxed)
    }
}

//! Shows on a real cluster what kube-node-ready does: `make demo`.
//!
//! The chart is installed with Helm. Two healthy nodes join, and one whose pods get no answer from DNS; a workload
//! waits for all three. Exits with an error if anything does not happen as announced.

mod watch;

use std::process::ExitCode;
use std::time::Duration;

use anstream::println;
use anyhow::{Context, Error, Result};
use knr_core::VERSION;
use knr_e2e::{GATE, chart, product};
use lab::{Fault, Home, Image, Lab, PROBE_IMAGE};

use watch::{Sight, Watch};

const LAB: &str = "demo";
const NEW: &str = "example.com/pool=new";
const SOUND: [&str; 2] = ["n2", "n3"];
const BROKEN: &str = "n4";
/// The user that runs the program in its image.
const USER: u32 = 1000;
/// How long any step may take on a slow machine.
const PATIENCE: Duration = Duration::from_mins(2);

fn main() -> ExitCode {
    let keeps = std::env::var("KEEP").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    let lab = match begin() {
        Ok(lab) => lab,
        Err(error) => return failed(&error),
    };
    // The outcome is printed at once: removing the cluster takes a while, and may fail too.
    let shown = show(&lab).map_err(|error| failed(&error));
    let ended = if keeps {
        how_to_look_around(&lab);
        Ok(())
    } else {
        lab.down().map_err(|error| failed(&error.context("the cluster cannot be ended")))
    };
    shown.and(ended).err().unwrap_or(ExitCode::SUCCESS)
}

fn failed(error: &Error) -> ExitCode {
    eprintln!("demo: {error:#}");
    ExitCode::FAILURE
}

/// Starts a new cluster. One that an earlier run left has other nodes than the demo announces.
fn begin() -> Result<Lab> {
    let home = Home::from_env()?;
    if let Some(left) = Lab::find(&home, LAB)? {
        eprintln!("demo: ending the cluster that an earlier run left");
        left.down()?;
    }
    Lab::builder(&home, LAB).nodes(1).up()
}

fn show(lab: &Lab) -> Result<()> {
    println!("\n1. A cluster with one node. Helm installs kube-node-ready {VERSION}.\n");
    load_image(lab)?;
    install(lab)?;
    println!(
        "   {}\n",
        lab.kubectl([
            "--namespace",
            "kube-system",
            "get",
            "deployment",
            "kube-node-ready-controller",
            "--no-headers"
        ])?
        .trim()
    );

    println!("2. A workload that needs three new nodes, and waits for them.\n");
    lab.apply(&workload())?;
    println!("   deployment shop, 3 replicas, one for each node with the label {NEW}\n");

    println!("3. Three nodes join with the taint {GATE}. DNS answers do not reach the pods on {BROKEN}.\n");
    let mut watch = Watch::begin(lab)?;
    watch.during(|| join(lab))?;
    watch.until(PATIENCE, "two nodes open and one that fails", |nodes| {
        SOUND.iter().all(|name| nodes.get(*name).is_some_and(Sight::is_at_work))
            && nodes.get(BROKEN).is_some_and(|node| node.reason.starts_with("Dns"))
    })?;

    println!("\n4. {BROKEN} is fixed. The next attempt opens it.\n");
    lab.node(BROKEN)?.heal()?;
    watch.fixed(BROKEN);
    watch.until(PATIENCE, "all nodes open and at work", |nodes| {
        nodes.len() == 3 && nodes.values().all(Sight::is_at_work)
    })?;

    println!("\n5. How long it took.\n");
    watch.summary();
    Ok(())
}

fn join(lab: &Lab) -> Result<()> {
    for name in SOUND.into_iter().chain([BROKEN]) {
        let node = lab.add_node(name).label(NEW.parse()?).taint(GATE.parse()?).switch_on()?;
        if name == BROKEN {
            node.inject(Fault::Dns)?;
        }
    }
    Ok(())
}

/// Loads the image under the name that the chart asks for, so that nothing has to be pulled.
fn load_image(lab: &Lab) -> Result<()> {
    let archive = lab.folder().join("kube-node-ready.tar");
    let tag = format!("ghcr.io/kube-node-ready/kube-node-ready:{VERSION}");
    Image { program: &product::path()?, tags: &[&tag], arguments: &[], user: Some(USER) }.write(&archive)?;
    lab.load_image(&archive)
}

fn install(lab: &Lab) -> Result<()> {
    let chart = chart();
    let chart = chart.to_str().context("the folder of the chart is no text")?;
    // Attempts that fail fast enough for an audience.
    let patience = "controller.config.worker.checkTimeoutSeconds=2,controller.config.worker.retries=0";
    let arguments =
        ["upgrade", "--install", "kube-node-ready", chart, "--namespace", "kube-system", "--set", patience];
    lab.helm(arguments.into_iter().chain(["--wait", "--timeout", "2m"]))?;
    Ok(())
}

fn workload() -> String {
    let labels = serde_json::json!({ "app": "shop" });
    let (key, value) = NEW.split_once('=').unwrap_or_default();
    serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "shop", "namespace": "default" },
        "spec": { "replicas": 3, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": {
                "nodeSelector": { key: value },
                "terminationGracePeriodSeconds": 0,
                "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                    { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
                ]}},
                "containers": [{ "name": "shop", "image": PROBE_IMAGE, "imagePullPolicy": "Never" }],
            },
        }},
    })
    .to_string()
}

fn how_to_look_around(lab: &Lab) {
    println!("\nThe cluster keeps running. To explore it:\n");
    println!("   export KUBECONFIG={}", lab.kubeconfig().display());
    println!("   cargo run -q -p lab -- --name {LAB} kubectl get nodes --label-columns node-ready/verified");
    println!("   cargo run -q -p lab -- --name {LAB} kubectl describe node {BROKEN}");
    println!("   cargo run -q -p lab -- --name {LAB} helm test kube-node-ready --namespace kube-system");
    println!("   cargo run -q -p lab -- --name {LAB} node break {BROKEN} dns");
    println!(
        "   cargo run -q -p lab -- --name {LAB} kubectl label node {BROKEN} node-ready/verified-    # verifies it again"
    );
    println!("\nEnd it with: cargo run -q -p lab -- --name {LAB} down");
}

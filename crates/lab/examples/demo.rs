//! Shows the problem that kube-node-ready exists for, on a real cluster: `make demo`.
//!
//! DNS breaks for the pods of one node. Kubernetes goes on calling the node Ready and sends it work.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::{Fault, Home, Lab, PROBE_IMAGE};

const LAB: &str = "demo";
const QUESTION: &str = "kubernetes.default.svc.cluster.local";
const PATIENCE: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let keep = std::env::var_os("KEEP").is_some_and(|value| !value.is_empty());
    let result = Home::from_env().and_then(|home| {
        let lab = Lab::builder(&home, LAB).nodes(2).up()?;
        let told = tell(&lab);
        if keep {
            println!("\nThe cluster stays up: export KUBECONFIG={}", lab.kubeconfig().display());
            println!("End it with: cargo run -p lab -- down --name {LAB}");
        } else {
            lab.down()?;
        }
        told
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("demo: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn tell(lab: &Lab) -> Result<()> {
    println!("\n1. Two nodes, a pod on each; both pods can look up a name.\n");
    for node in ["n1", "n2"] {
        start_pod(lab, node)?;
        eventually(&format!("DNS on {node}"), || ask(lab, node))?;
        println!("   pod on {node}: {}", ask(lab, node)?);
    }
    println!(
        "\n2. DNS breaks for the pods of n1. Kubernetes sees nothing of it: the node is Ready, and gets work.\n"
    );
    lab.node("n1")?.inject(Fault::Dns)?;
    print_indented(&lab.kubectl(["get", "nodes"])?);
    let failure = ask(lab, "n1").err().context("DNS still works on n1")?;
    println!("\n   pod on n1: {failure}\n   pod on n2: {}", ask(lab, "n2")?);
    let ready = lab.kubectl([
        "get",
        "node",
        "n1",
        "-o",
        "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}",
    ])?;
    ensure!(ready == "True", "n1 was expected to be Ready, but Ready is {ready}");
    println!("\n3. Mended.\n");
    lab.node("n1")?.heal()?;
    eventually("DNS on n1 after healing", || ask(lab, "n1"))?;
    println!("   pod on n1: {}", ask(lab, "n1")?);
    println!("\nA gate that opens only after DNS was proven on the node itself is what this project builds.");
    Ok(())
}

fn start_pod(lab: &Lab, node: &str) -> Result<()> {
    lab.apply(&format!(
        "{{ apiVersion: v1, kind: Pod, metadata: {{ name: on-{node} }}, spec: {{ nodeName: {node}, \
         terminationGracePeriodSeconds: 0, containers: [{{ name: probe, image: \"{PROBE_IMAGE}\", \
         imagePullPolicy: Never }}] }} }}"
    ))
}

fn ask(lab: &Lab, node: &str) -> Result<String> {
    let pod = format!("on-{node}");
    match lab.kubectl(["exec", &pod, "--", "/probe", "dns", QUESTION]) {
        Ok(address) => Ok(format!("{QUESTION} is {}", address.trim())),
        Err(err) => {
            let text = err.to_string();
            bail!(
                "{}",
                text.lines()
                    .find_map(|line| line.split_once("probe: "))
                    .map_or(text.as_str(), |(_, why)| why)
            )
        }
    }
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Err(err) if Instant::now() > deadline => return Err(err.context(format!("{what}: gave up"))),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
            done => return done,
        }
    }
}

fn print_indented(text: &str) {
    text.lines().for_each(|line| println!("   {line}"));
}

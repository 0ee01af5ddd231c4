//! The program, run by hand by an operator.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use knr_e2e::{Cluster, Config, NAMESPACE, PATIENCE, in_checkout};
use lab::Fault;
use serde_json::{Value, json};

use crate::process::{Printed, file, on_a_terminal, program, run};

/// The character with which colours begin.
const ESCAPE: char = '\u{1b}';
/// An operator's check, and a worker that logs everything.
const CHECK_POD: &str = "apiVersion: v1
kind: Pod
metadata: { name: check, namespace: kube-node-ready }
spec:
  nodeName: n2
  restartPolicy: Never
  serviceAccountName: kube-node-ready-worker
  securityContext: { runAsNonRoot: true, seccompProfile: { type: RuntimeDefault } }
  containers:
  - name: check
    image: lab.local/kube-node-ready:e2e
    imagePullPolicy: Never
    args: [check, -o, json, --node, n2]
    securityContext: &restricted { allowPrivilegeEscalation: false, capabilities: { drop: [ALL] } }
  - name: worker
    image: lab.local/kube-node-ready:e2e
    imagePullPolicy: Never
    args: [worker]
    env: [{ name: LOG_LEVEL, value: trace }, { name: NODE_NAME, value: n2 }]
    securityContext: *restricted
";

pub(crate) fn everything(cluster: &Cluster) -> Result<()> {
    without_a_kubeconfig_only_what_needs_the_api_server_is_skipped(cluster)?;
    on_a_node_all_checks_run_and_a_broken_network_is_seen(cluster)?;
    in_a_pod_the_service_account_is_used_and_never_shown(cluster)?;
    a_broken_configuration_is_reported_whole_and_ends_the_program(cluster)?;
    on_a_terminal_the_controller_speaks_to_people(cluster)
}

fn without_a_kubeconfig_only_what_needs_the_api_server_is_skipped(cluster: &Cluster) -> Result<()> {
    let config =
        Config::new().set("worker.checks", json!([{ "name": "shell", "file": { "path": "/bin/sh" } }]));
    let on_node = file(cluster, "on-node.yaml", &config.text())?;
    let mut check = check_on(&cluster.node("n2")?.machine()?)?;
    check.arg("--config").arg(&on_node);
    let printed = run(&mut check)?;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let missing = "there is no kubeconfig at /nonexistent/.kube/config";
    let skipped = ["kubernetes", "network", "services"].map(|name| (name, "skipped"));
    assert_eq!(
        results(&printed.out)[1..6],
        [("dns", "pass"), skipped[0], skipped[1], skipped[2], ("shell", "pass")]
    );
    assert_eq!(printed.out.matches(missing).count(), 3, "{}", printed.out);
    assert!(!printed.out.contains(ESCAPE), "a pipe gets no colours");

    let printed = run(&mut on_a_terminal(&check))?;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(printed.out.contains(&format!("{ESCAPE}[32mpass")), "{:?}", printed.out);

    // Elsewhere the names of the cluster do not resolve.
    let elsewhere = file(cluster, "elsewhere.yaml", &config.set("worker.skipChecks", json!(["dns"])).text())?;
    let printed = run(program(["check", "-o", "json", "--config"])?.arg(&elsewhere))?;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let report: Value = serde_json::from_str(&printed.out)?;
    assert_eq!(report["checks"][1]["outcome"]["skipped"], missing, "{report:#}");
    assert_eq!(report["checks"][4]["outcome"], "pass", "{report:#}");
    Ok(())
}

/// A command that runs the checks in the network of a node and with the cluster's DNS, as pods do.
fn check_on(machine: &lab::Node) -> Result<Command> {
    let mut inside = machine.command()?;
    let resolver = "mount --bind /run/lab/node/resolv.conf /etc/resolv.conf && exec \"$0\" \"$@\"";
    inside
        .env("HOME", "/nonexistent")
        .env_remove("KUBECONFIG")
        .args(["unshare", "--mount", "sh", "-c", resolver]);
    inside.arg(knr_e2e::product::path()?).arg("check");
    Ok(inside)
}

/// The first two words of each line of a table.
fn results(table: &str) -> Vec<(&str, &str)> {
    let words = |line| str::split_whitespace(line);
    table.lines().filter_map(|line| Some((words(line).next()?, words(line).nth(1)?))).collect()
}

fn on_a_node_all_checks_run_and_a_broken_network_is_seen(cluster: &Cluster) -> Result<()> {
    let machine = cluster.node("n2")?.machine()?;
    let check = |form: &str| -> Result<Printed> {
        let mut check = check_on(&machine)?;
        check.env("CHECK_TIMEOUT", "2s").args(["--node", "n2", "--output", form]);
        run(check.arg("--kubeconfig").arg(cluster.kubeconfig()))
    };
    let fine = check("table")?;
    assert_eq!(fine.code, Some(0), "{fine:?}");
    assert!(fine.out.ends_with("4 passed, 0 failed, 0 skipped\n"), "{}", fine.out);

    machine.inject(Fault::Services)?;
    let broken = check("json");
    machine.heal()?;
    let broken = broken?;
    assert_eq!(broken.code, Some(1), "{broken:?}");
    let report: Value = serde_json::from_str(&broken.out).with_context(|| broken.out.clone())?;
    let of = |name: &str| report["checks"].as_array()?.iter().find(|check| check["name"] == name);
    assert_eq!(
        of("kubernetes").context("kubernetes")?["outcome"],
        "pass",
        "the kubeconfig goes around Services"
    );
    let failure = &of("services").context("services")?["outcome"]["fail"];
    assert_eq!(failure["kind"], "timeout", "{report:#}");
    assert!(failure["hint"].as_str().is_some_and(|hint| hint.contains("kube-proxy")), "{report:#}");
    Ok(())
}

fn in_a_pod_the_service_account_is_used_and_never_shown(cluster: &Cluster) -> Result<()> {
    cluster.apply(CHECK_POD)?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/check");
    cluster.eventually("the pod to succeed", || {
        let phase = cluster.api().get(&path)?["status"]["phase"].clone();
        ensure!(
            phase != "Failed",
            "it has failed: {}",
            cluster.kubectl(["-n", NAMESPACE, "logs", "check", "--all-containers"])?
        );
        Ok(phase == "Succeeded")
    })?;
    let report: Value =
        serde_json::from_str(&cluster.kubectl(["-n", NAMESPACE, "logs", "check", "-c", "check"])?)?;
    let checks = report["checks"].as_array().context("there are no checks")?;
    assert!(checks.len() == 4 && checks.iter().all(|check| check["outcome"] == "pass"), "{report:#}");

    let log = cluster.kubectl(["-n", NAMESPACE, "logs", "check", "-c", "worker"])?;
    let lines: Vec<Value> =
        log.lines().map(serde_json::from_str).collect::<Result<_, _>>().context(log.clone())?;
    assert!(
        lines.iter().any(|line| line["level"] == "trace" && line["target"].is_string()),
        "libraries speak, too"
    );
    // Every service account token begins like this.
    assert!(!log.contains("eyJhbGciOi") && !log.contains("Bearer e"), "{log}");
    cluster.api().delete(&path)
}

fn a_broken_configuration_is_reported_whole_and_ends_the_program(cluster: &Cluster) -> Result<()> {
    let reference = fs::read_to_string(in_checkout("docs/config.md"))?;
    let (_, errors) = reference.split_once("## Errors").context("the reference shows errors")?;
    let block = |kind: &str| -> Result<&str> {
        let (_, rest) = errors.split_once(&format!("```{kind}\n")).context("a block")?;
        Ok(rest.split_once("```").context("its end")?.0)
    };
    let (broken, problems) = (file(cluster, "broken.yaml", block("yaml")?)?, block("text")?);
    for subcommand in [&["controller"][..], &["check"], &["worker"], &["manifests", "rbac"]] {
        let printed = run(program(subcommand)?.arg("--config").arg(&broken))?;
        assert_eq!((printed.code, printed.out.as_str()), (Some(2), ""), "{subcommand:?}: {printed:?}");
        for problem in problems.lines() {
            ensure!(problem.starts_with("line "), "{problem}");
            assert!(
                printed.err.lines().any(|line| line.ends_with(problem)),
                "{problem} is not in {}",
                printed.err
            );
        }
    }
    let printed = run(program(["controller"])?.env("MAX_RETRIES", "many").env("LOG_LEVEL", "loud"))?;
    assert_eq!(printed.code, Some(2), "{printed:?}");
    assert!(printed.err.contains("MAX_RETRIES: ") && printed.err.contains("LOG_LEVEL: "), "{}", printed.err);
    Ok(())
}

fn on_a_terminal_the_controller_speaks_to_people(cluster: &Cluster) -> Result<()> {
    let machine = cluster.node("n1")?.machine()?;
    // Without a configuration file, and in a separate network where the default port is free.
    let mut inside = machine.command()?;
    inside
        .arg(knr_e2e::product::path()?)
        .args(["controller", "--dry-run", "--kubeconfig"])
        .arg(cluster.kubeconfig());
    let terminal = cluster.spawn("terminal", on_a_terminal(&inside))?;
    let text = cluster.wait_for("the controller to say something", || {
        let text = fs::read_to_string(terminal.log())?;
        Ok(text.contains("this replica leads").then_some(text))
    })?;
    terminal.terminate()?;
    terminal.wait(PATIENCE)?;
    let first = text.lines().next().unwrap_or_default();
    assert!(
        first.contains(&format!("{ESCAPE}[1m{ESCAPE}[32mINFO ")) && first.contains(" starting"),
        "{first:?}"
    );
    assert!(first.contains(&format!("dry_run={ESCAPE}[0mtrue")), "{first:?}");
    Ok(())
}

/// The script runs with full permissions here, and so does the controller.
pub(crate) fn the_script_runs_the_controller_of_this_checkout(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("n2")?;
    node.patch(&json!({ "metadata": { "annotations": { "node-ready/state": null }, "labels": { "node-ready/verified": null } } }))?;
    node.close()?;
    let config = Config::new().set("metrics.port", 17_999).set("health.port", 17_999);
    let config = file(cluster, "local.yaml", &config.text())?;
    let script = || {
        let mut script = Command::new(in_checkout("examples/run-controller-local.sh"));
        script.env("CONFIG_FILE", &config).env("KUBECONFIG", cluster.kubeconfig());
        script.envs(std::env::vars_os().filter(|(name, _)| {
            ["HOME", "CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR"].iter().any(|it| name == it)
        }));
        script
    };
    // The script builds the program first. How long that takes depends on earlier and concurrent builds.
    let printed = run(script().arg("--help"))?;
    assert!(printed.out.contains("Usage: kube-node-ready controller"), "{printed:?}");
    let mut dry = script();
    dry.env("DRY_RUN", "1");
    let dry = cluster.spawn("dry-script", dry)?;
    cluster.eventually("the script to say what would be done", || {
        ensure!(dry.exit_status().is_none(), "it has ended: {}", fs::read_to_string(dry.log())?);
        Ok(fs::read_to_string(dry.log())?.contains("dry run, would start worker 1 of n2"))
    })?;
    dry.terminate()?;
    assert!(dry.wait(PATIENCE)?.success(), "it stops at the signal");
    assert_eq!(node.state()?, Value::Null);

    let program = cluster.spawn("script", script())?;
    node.wait_until_open()?;
    assert!(node.is_verified()?);
    program.terminate()?;
    assert!(program.wait(PATIENCE)?.success());
    Ok(())
}

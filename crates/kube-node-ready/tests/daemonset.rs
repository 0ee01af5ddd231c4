//! The subcommand `daemonset` as a process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kube-node-ready");
/// Less than the grace period of a pod.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a kubeconfig for a server that accepts connections and never answers.
fn silent_server() -> (TcpListener, PathBuf) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let file = std::env::temp_dir().join(format!("daemonset-{port}.yaml"));
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: x, contexts: [{{name: x, context: {{cluster: x, user: x}}}}], \
         users: [{{name: x, user: {{token: x}}}}], clusters: [{{name: x, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]}}"
    );
    std::fs::write(&file, text).unwrap();
    (listener, file)
}

fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_clear().envs(environment.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn it_ends_in_the_middle_of_a_check_when_it_is_stopped() {
    let (_listener, kubeconfig) = silent_server();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let environment = [("NODE_NAME", "n1"), ("METRICS_PORT", &free), ("LOG_FORMAT", "json")];
    let timeouts =
        [("INITIAL_TIMEOUT", "300s"), ("CHECK_TIMEOUT", "300s"), ("DNS_TEST_DOMAINS", "127.0.0.1")];
    let config = std::env::temp_dir().join(format!("daemonset-{}.json", std::process::id()));
    std::fs::write(&config, r#"{"kubernetes": {"requestTimeoutSeconds": 1}}"#).unwrap();
    let arguments = ["daemonset", "--kubeconfig", kubeconfig, "--config", config.to_str().unwrap()];
    let mut child = start(&arguments, &[&environment[..], &timeouts[..]].concat());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The node could not be read, so the checks run, and the check of the API server hangs.
    assert!(lines.any(|line| line.contains("the checks show what is wrong")));
    assert!(lines.any(|line| line.contains("nothing to resolve")));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                panic!("it did not end");
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert_eq!(status.code(), Some(0));
    assert!(lines.any(|line| line.contains("stopped")));
    let _ = std::fs::remove_file(kubeconfig);
    let _ = std::fs::remove_file(config);
}

#[test]
fn a_dry_run_without_a_kubeconfig_skips_only_what_needs_the_api_server() {
    let home = std::env::temp_dir();
    let environment = [("HOME", home.to_str().unwrap()), ("DNS_TEST_DOMAINS", "127.0.0.1")];
    let child = start(&["--dry-run", "--log-format=console", "--log-level=debug"], &environment);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("check=dns why=\"127.0.0.1 is an address, nothing to resolve\""), "{said}");
    assert!(said.contains("gate=\"node-ready/unverified=true:NoSchedule\""), "{said}");
    for check in ["kubernetes", "network", "services"] {
        assert!(
            said.contains(&format!("check skipped check={check} why=\"there is no kubeconfig")),
            "{said}"
        );
    }
}

#[test]
fn a_command_for_workers_is_refused() {
    let config = std::env::temp_dir().join(format!("daemonset-command-{}.json", std::process::id()));
    std::fs::write(&config, r#"{"worker": {"command": ["/own"]}}"#).unwrap();
    let output = start(&["daemonset", "--node", "n1", "--config", config.to_str().unwrap()], &[]);
    let output = output.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("worker.command") && said.contains("worker.initContainers"), "{said}");
    let _ = std::fs::remove_file(config);
}

#[test]
fn without_a_node_it_says_what_is_missing() {
    let output = start(&["daemonset"], &[]).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--node") && said.contains("NODE_NAME"), "{said}");
}

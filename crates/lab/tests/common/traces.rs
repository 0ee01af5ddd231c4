//! What a lab could leave behind on the machine, as a set that can be compared.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Everything of interest that is there now, one line each.
pub(crate) fn all() -> BTreeSet<String> {
    let mut traces = BTreeSet::new();
    traces.extend(processes_and_namespaces());
    traces.extend(lines("mount", &fs::read_to_string("/proc/self/mounts").unwrap()));
    for (kind, command) in [
        ("link", &["ip", "-brief", "link"][..]),
        ("route", &["ip", "route"]),
        ("rule", &["ip", "rule"]),
        ("netns", &["ip", "netns"]),
        ("nft", &["nft", "list", "tables"]),
    ] {
        let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
        assert!(output.status.success(), "{command:?}");
        traces.extend(lines(kind, &String::from_utf8_lossy(&output.stdout)));
    }
    for setting in SETTINGS {
        let value = fs::read_to_string(Path::new("/proc/sys").join(setting)).unwrap();
        traces.insert(format!("setting {setting} {}", value.trim()));
    }
    for folder in ["/", "/etc", "/opt", "/usr/lib", "/usr/libexec", "/var/lib", "/run"] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        traces.extend(entries.map(|entry| format!("file {}", entry.path().display())));
    }
    control_groups(Path::new("/sys/fs/cgroup"), 2, &mut traces);
    traces
}

/// What a kubelet or a router would like to have otherwise, for the whole machine.
const SETTINGS: [&str; 7] = [
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

fn lines(kind: &str, text: &str) -> Vec<String> {
    text.lines().map(|line| format!("{kind} {line}")).collect()
}

/// Kernel threads come and go by themselves; they have no command line.
fn processes_and_namespaces() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if command.is_empty() || pid == std::process::id() {
            continue;
        }
        found.push(format!("process {pid} {}", String::from_utf8_lossy(&command).replace('\0', " ").trim()));
        for kind in ["net", "mnt", "pid", "uts", "cgroup"] {
            if let Ok(namespace) = fs::read_link(entry.path().join("ns").join(kind)) {
                found.push(format!("namespace {}", namespace.display()));
            }
        }
    }
    found
}

fn control_groups(folder: &Path, depth: u8, traces: &mut BTreeSet<String>) {
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // Those of others come and go.
            if entry.file_name().to_string_lossy().starts_with("knr-lab-") {
                traces.insert(format!("cgroup {}", entry.path().display()));
            }
            control_groups(&entry.path(), depth - 1, traces);
        }
    }
}

//! The programs a cluster is made of: pinned, built from Go modules on first use, cached by their pins.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use sha2::{Digest, Sha256};

use crate::home::{self, Home};
use crate::host;
use crate::progress::Step;

/// A program of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Tool {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubelet,
    KubeProxy,
    Kubectl,
    Containerd,
    #[value(name = "containerd-shim-runc-v2")]
    ContainerdShim,
    Ctr,
    Coredns,
    /// The lab's own helper: pause container, pid 1 of a node, and network probe for tests.
    Probe,
    Helm,
    Helm4,
    Kwok,
}

/// What a control plane without nodes consists of.
pub(crate) const CONTROL_PLANE: &[Tool] =
    &[Tool::Etcd, Tool::KubeApiserver, Tool::KubeControllerManager, Tool::KubeScheduler, Tool::Kubectl];

/// What nodes need on top of it.
pub(crate) const NODES: &[Tool] = &[
    Tool::Probe,
    Tool::Kubelet,
    Tool::KubeProxy,
    Tool::Containerd,
    Tool::ContainerdShim,
    Tool::Ctr,
    Tool::Coredns,
];

/// One Go module folder under `tools/`. Each has its own pins, because they need different versions of the
/// same libraries.
struct Module {
    name: &'static str,
    /// The module whose version is the version of the programs; `None` for our own source.
    pin: Option<&'static str>,
    files: &'static [(&'static str, &'static str)],
    /// Tool, its package, and what `go build` calls the result.
    programs: &'static [(Tool, &'static str, &'static str)],
}

macro_rules! files {
    ($folder:literal: $($file:literal),+) => {
        &[$(($file, include_str!(concat!("../tools/", $folder, "/", $file)))),+]
    };
}

const MODULES: &[Module] = &[
    Module {
        name: "probe",
        pin: None,
        files: files!("probe": "go.mod", "main.go"),
        programs: &[(Tool::Probe, ".", "probe")],
    },
    Module {
        name: "etcd",
        pin: Some("go.etcd.io/etcd/server/v3"),
        files: files!("etcd": "go.mod", "go.sum"),
        programs: &[(Tool::Etcd, "go.etcd.io/etcd/server/v3", "server")],
    },
    Module {
        name: "kubernetes",
        pin: Some("k8s.io/kubernetes"),
        files: files!("kubernetes": "go.mod", "go.sum"),
        programs: &[
            (Tool::KubeApiserver, "k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
            (
                Tool::KubeControllerManager,
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                "kube-controller-manager",
            ),
            (Tool::KubeScheduler, "k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"),
            (Tool::Kubectl, "k8s.io/kubernetes/cmd/kubectl", "kubectl"),
            (Tool::Kubelet, "k8s.io/kubernetes/cmd/kubelet", "kubelet"),
            (Tool::KubeProxy, "k8s.io/kubernetes/cmd/kube-proxy", "kube-proxy"),
        ],
    },
    Module {
        name: "containerd",
        pin: Some("github.com/containerd/containerd/v2"),
        files: files!("containerd": "go.mod", "go.sum"),
        programs: &[
            (Tool::Containerd, "github.com/containerd/containerd/v2/cmd/containerd", "containerd"),
            (
                Tool::ContainerdShim,
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                "containerd-shim-runc-v2",
            ),
            (Tool::Ctr, "github.com/containerd/containerd/v2/cmd/ctr", "ctr"),
        ],
    },
    Module {
        name: "coredns",
        pin: Some("github.com/coredns/coredns"),
        files: files!("coredns": "go.mod", "go.sum"),
        programs: &[(Tool::Coredns, "github.com/coredns/coredns", "coredns")],
    },
    Module {
        name: "helm",
        pin: Some("helm.sh/helm/v3"),
        files: files!("helm": "go.mod", "go.sum"),
        programs: &[(Tool::Helm, "helm.sh/helm/v3/cmd/helm", "helm")],
    },
    Module {
        name: "helm4",
        pin: Some("helm.sh/helm/v4"),
        files: files!("helm4": "go.mod", "go.sum"),
        programs: &[(Tool::Helm4, "helm.sh/helm/v4/cmd/helm", "helm")],
    },
    Module {
        name: "kwok",
        pin: Some("sigs.k8s.io/kwok"),
        files: files!("kwok": "go.mod", "go.sum"),
        programs: &[(Tool::Kwok, "sigs.k8s.io/kwok/cmd/kwok", "kwok")],
    },
];

impl Tool {
    /// The name of its program.
    #[must_use]
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether it runs as long as the cluster, or its node, does.
    fn is_daemon(self) -> bool {
        match self {
            Self::Kubectl
            | Self::ContainerdShim
            | Self::Ctr
            | Self::Coredns
            | Self::Probe
            | Self::Helm
            | Self::Helm4 => false,
            Self::Etcd
            | Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Containerd
            | Self::Kwok => true,
        }
    }

    /// All of them.
    pub fn daemons() -> impl Iterator<Item = Self> {
        <Self as clap::ValueEnum>::value_variants().iter().copied().filter(|tool| tool.is_daemon())
    }

    /// What is built when nobody names anything. Helm 4 is left out: it takes minutes, and few want both.
    pub(crate) fn usual() -> Vec<Self> {
        let all = <Self as clap::ValueEnum>::value_variants().iter().copied();
        all.filter(|tool| *tool != Self::Helm4).collect()
    }

    /// The Helm that labs are served with: Helm 3, or Helm 4 where `LAB_HELM` is 4.
    pub fn helm() -> Result<Self> {
        Self::helm_of(&std::env::var("LAB_HELM").unwrap_or_default())
    }

    fn helm_of(version: &str) -> Result<Self> {
        match version {
            "" | "3" => Ok(Self::Helm),
            "4" => Ok(Self::Helm4),
            other => bail!("LAB_HELM is {other:?}; it can be 3 or 4"),
        }
    }

    /// Name of the folder, below [`Home::tools`], that its program is in. It changes with any pin.
    pub(crate) fn folder(self) -> String {
        MODULES
            .iter()
            .find(|module| module.programs.iter().any(|(tool, ..)| *tool == self))
            .map(Module::folder)
            .unwrap_or_default()
    }

    /// Where its program is, once built.
    #[must_use]
    pub fn path(self, home: &Home) -> PathBuf {
        home.tools().join(self.folder()).join(self.name())
    }
}

impl Module {
    fn version(&self) -> &'static str {
        let pinned = self.pin.and_then(|module| {
            let go_mod = self.files.iter().find(|(name, _)| *name == "go.mod")?.1;
            pinned_version(go_mod, module)
        });
        pinned.unwrap_or("v0")
    }

    fn folder(&self) -> String {
        let mut hash = Sha256::new();
        for (name, text) in self.files {
            hash.update(format!("{name} {}\n", text.len()));
            hash.update(text);
        }
        hash.update(self.ldflags());
        format!("{}-{}-{}", self.name, self.version(), &home::hex(&hash.finalize())[..12])
    }

    /// Kubernetes programs call themselves v0.0.0-master unless told who they are.
    fn ldflags(&self) -> String {
        if self.name != "kubernetes" {
            return "-s -w".to_owned();
        }
        let (version, package) = (self.version(), "k8s.io/component-base/version");
        let minor = version.split('.').nth(1).unwrap_or_default();
        format!(
            "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}"
        )
    }

    fn missing(&self, home: &Home, wanted: &[Tool]) -> Vec<&'static (Tool, &'static str, &'static str)> {
        self.programs.iter().filter(|(tool, ..)| wanted.contains(tool) && !tool.path(home).exists()).collect()
    }

    fn build(&self, home: &Home, wanted: &[Tool]) -> Result<()> {
        let folder = home.tools().join(self.folder());
        fs::create_dir_all(&folder)?;
        // Another process may be building the same: wait for it, then look again.
        let lock = File::create(folder.join(".lock"))?;
        lock.lock()?;
        let missing = self.missing(home, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let source = folder.join("source");
        // A folder of its own for each attempt: after a kill, an orphaned compiler may still write into the last one.
        let fresh = folder.join(format!("fresh-{}", host::random_id()?));
        fs::create_dir_all(&source)?;
        fs::create_dir_all(&fresh)?;
        for (name, text) in self.files {
            fs::write(source.join(name), text)?;
        }
        self.go_build(&source, &fresh, &missing)?;
        for (tool, _, built_as) in missing {
            fs::rename(fresh.join(built_as), folder.join(tool.name()))?;
        }
        Ok(fs::remove_dir_all(&fresh)?)
    }

    fn go_build(&self, source: &Path, into: &Path, what: &[&(Tool, &str, &str)]) -> Result<()> {
        let log = source.join("build.log");
        let out = File::create(&log)?;
        let status = Command::new("go")
            .current_dir(source)
            .env("CGO_ENABLED", "0")
            .args(["build", "-mod=readonly", "-buildvcs=false", "-ldflags", &self.ldflags(), "-o"])
            .arg(into)
            .args(what.iter().map(|(_, package, _)| package))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .status()
            .context(
                "cannot run `go`: the lab builds Kubernetes from source and needs Go 1.26 or newer on PATH",
            )?;
        if !status.success() {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("go: downloading")).collect();
            bail!("go build of {} failed ({status}):\n{}", self.name, lines.join("\n"));
        }
        Ok(())
    }
}

/// Builds those of the `wanted` programs that are not in the cache yet, and shows how far it is.
pub fn ensure(home: &Home, wanted: &[Tool]) -> Result<()> {
    let todo: Vec<_> = MODULES.iter().filter(|module| !module.missing(home, wanted).is_empty()).collect();
    for (done, module) in todo.iter().enumerate() {
        let names: Vec<_> = module.missing(home, wanted).iter().map(|(tool, ..)| tool.name()).collect();
        let names = if names == [module.name] { String::new() } else { format!(" ({})", names.join(", ")) };
        let text =
            format!("building {} of {}: {} {}{names}", done + 1, todo.len(), module.name, module.version());
        let step = Step::begin(&text);
        module.build(home, wanted)?;
        step.done();
    }
    Ok(())
}

/// A `PATH` on which all built programs are found, for machines whose tools live at `tools`.
pub(crate) fn path_variable(tools: &Path) -> String {
    let folders = MODULES.iter().map(|module| tools.join(module.folder()).display().to_string());
    folders.chain([host::path()]).collect::<Vec<_>>().join(":")
}

fn pinned_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten().filter(|word| word.starts_with('v'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_module_and_every_module_a_pinned_version() {
        for tool in <Tool as clap::ValueEnum>::value_variants() {
            assert!(!tool.folder().is_empty(), "{tool:?}");
        }
        for module in MODULES {
            assert_eq!(module.version() == "v0", module.pin.is_none(), "{}", module.name);
        }
    }

    #[test]
    fn helm_3_is_usual_and_helm_4_for_who_asks() {
        assert_eq!([Tool::helm_of("").unwrap(), Tool::helm_of("3").unwrap()], [Tool::Helm; 2]);
        assert_eq!(Tool::helm_of("4").unwrap(), Tool::Helm4);
        assert!(Tool::helm_of("v4").is_err());
        assert!(Tool::Helm4.folder().starts_with("helm4-v4."), "{}", Tool::Helm4.folder());
        assert!(Tool::usual().contains(&Tool::Helm) && !Tool::usual().contains(&Tool::Helm4));
    }

    #[test]
    fn the_kubernetes_version_is_read_from_its_pin() {
        assert!(Tool::Kubelet.folder().starts_with("kubernetes-v1.36.3-"), "{}", Tool::Kubelet.folder());
    }

    #[test]
    fn a_tool_line_or_a_replacement_is_not_a_pin() {
        let go_mod = "tool k8s.io/kubernetes/cmd/kubectl\nreplace (\n\tk8s.io/api => k8s.io/api v0.1.0\n)\n\
                      require k8s.io/kubernetes v1.2.3 // indirect\n";
        assert_eq!(pinned_version(go_mod, "k8s.io/kubernetes"), Some("v1.2.3"));
        assert_eq!(pinned_version(go_mod, "k8s.io/api"), None);
    }
}

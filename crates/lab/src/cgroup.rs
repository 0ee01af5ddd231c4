//! A control group for each node, so that every kubelet has a tree of its own. Without it all kubelets of the
//! machine share one, and each removes the pods of the others as orphans.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use fs_err as fs;

use crate::process;

const REMOVE_LIMIT: Duration = Duration::from_secs(15);
const ROOT: &str = "/sys/fs/cgroup";

/// How control groups are mounted on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One tree for each controller, or pair of them (also what systemd calls "hybrid").
    V1(Vec<PathBuf>),
    /// One tree.
    V2(PathBuf),
}

/// The control group of one node.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    layout: Layout,
    name: String,
}

impl Layout {
    pub(crate) fn detect() -> Result<Self> {
        Self::parse(&fs::read_to_string("/proc/mounts")?)
    }

    fn parse(mounts: &str) -> Result<Self> {
        let mounted = |kind: &str| {
            let lines = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let paths =
                lines.filter(|words| words.get(2) == Some(&kind)).map(|words| PathBuf::from(words[1]));
            let mut paths: Vec<_> = paths.filter(|path| path.starts_with(ROOT)).collect();
            paths.sort();
            paths.dedup();
            paths
        };
        let v1 = mounted("cgroup");
        if !v1.is_empty() {
            return Ok(Self::V1(v1));
        }
        match mounted("cgroup2").into_iter().next() {
            Some(root) => Ok(Self::V2(root)),
            None => bail!("no control groups are mounted below {ROOT}: nodes need them"),
        }
    }

    fn trees(&self) -> &[PathBuf] {
        match self {
            Self::V1(trees) => trees,
            Self::V2(root) => std::slice::from_ref(root),
        }
    }

    /// What a node mounts in its own namespaces: `v2`, or the names of the v1 trees.
    pub(crate) fn mount_arguments(&self) -> Vec<String> {
        match self {
            Self::V1(trees) => trees
                .iter()
                .filter_map(|tree| Some(tree.file_name()?.to_string_lossy().into_owned()))
                .collect(),
            Self::V2(_) => vec!["v2".to_owned()],
        }
    }
}

impl Group {
    pub(crate) fn new(layout: &Layout, owner: &str, node: &str) -> Self {
        Self { layout: layout.clone(), name: format!("{}{node}", prefix(owner)) }
    }

    pub(crate) fn create(&self) -> Result<()> {
        for tree in self.layout.trees() {
            let group = tree.join(&self.name);
            fs::create_dir_all(&group)?;
            match &self.layout {
                Layout::V1(_) => inherit_cpuset(tree, &group)?,
                Layout::V2(_) => {
                    enable_controllers(tree);
                    fs::create_dir_all(group.join("init"))?;
                }
            }
        }
        Ok(())
    }

    /// Files into which the node's first process writes its pid before it makes its namespaces: the group it
    /// is in at that moment becomes the root of the node's view.
    pub(crate) fn entrances(&self) -> Vec<PathBuf> {
        self.layout.trees().iter().map(|tree| tree.join(&self.name).join("cgroup.procs")).collect()
    }

    /// The same for every later process of the node.
    pub(crate) fn inner_entrances(&self) -> Vec<PathBuf> {
        match &self.layout {
            Layout::V1(_) => self.entrances(),
            Layout::V2(root) => vec![root.join(&self.name).join("init/cgroup.procs")],
        }
    }

    /// In a v2 tree a group with processes of its own cannot hand controllers to its children: move them down.
    pub(crate) fn settle(&self) -> Result<()> {
        let Layout::V2(root) = &self.layout else { return Ok(()) };
        let group = root.join(&self.name);
        for pid in fs::read_to_string(group.join("cgroup.procs"))?.lines() {
            fs::write(group.join("init/cgroup.procs"), pid)?;
        }
        enable_controllers(&group);
        Ok(())
    }

    pub(crate) fn remove(&self) -> Result<()> {
        self.layout.trees().iter().try_for_each(|tree| remove_tree(&tree.join(&self.name)))
    }
}

/// Removes the control groups of all nodes of a lab.
pub(crate) fn remove_all(owner: &str) -> Result<()> {
    // A machine without control groups has none of ours either.
    let Ok(layout) = Layout::detect() else { return Ok(()) };
    for tree in layout.trees() {
        for entry in fs::read_dir(tree)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix(owner)) {
                remove_tree(&entry.path())?;
            }
        }
    }
    Ok(())
}

fn prefix(owner: &str) -> String {
    format!("knr-lab-{owner}-")
}

/// A new v1 cpuset is empty, and nothing can join it until it has processors and memory.
fn inherit_cpuset(tree: &Path, group: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if tree.join(file).exists() {
            fs::write(group.join(file), fs::read(tree.join(file))?)?;
        }
    }
    Ok(())
}

/// One by one, because a single controller that cannot be enabled refuses the whole line.
fn enable_controllers(group: &Path) {
    let available = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in available.split_whitespace() {
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// The kernel may need a moment to let go of a group whose processes have just died.
fn remove_tree(group: &Path) -> Result<()> {
    process::wait_for(&format!("removal of {}", group.display()), REMOVE_LIMIT, &[], || {
        if !group.exists() {
            return Ok(Some(()));
        }
        remove_children(group)?;
        fs::remove_dir(group)?;
        Ok(Some(()))
    })
}

fn remove_children(group: &Path) -> Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_children(&entry.path())?;
            fs::remove_dir(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_machine_counts_as_v1() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let layout = Layout::parse(mounts).unwrap();
        assert_eq!(layout.mount_arguments(), ["cpu,cpuacct", "memory"]);
    }

    #[test]
    fn a_unified_machine_counts_as_v2() {
        let layout = Layout::parse("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n").unwrap();
        assert_eq!(layout, Layout::V2(PathBuf::from("/sys/fs/cgroup")));
        let group = Group::new(&layout, "abc", "n1");
        assert_eq!(group.entrances(), [PathBuf::from("/sys/fs/cgroup/knr-lab-abc-n1/cgroup.procs")]);
        assert_eq!(
            group.inner_entrances(),
            [PathBuf::from("/sys/fs/cgroup/knr-lab-abc-n1/init/cgroup.procs")]
        );
    }

    #[test]
    fn a_machine_without_control_groups_says_so() {
        assert!(
            Layout::parse("proc /proc proc rw 0 0\n").unwrap_err().to_string().contains("control groups")
        );
    }
}

//! Commands, and what each of them does with the library.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anstyle::AnsiColor;
use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use lab::{Fault, Home, Lab, Label, Taint, Tool};

/// A real Kubernetes cluster on one Linux machine, without Docker.
///
/// Real etcd, API server, controller manager, scheduler, kubelets, kube-proxies, containerd and CoreDNS, built from
/// pinned sources on first use. A node is a set of Linux namespaces. Files are kept in $LAB_HOME, by default
/// kube-node-ready-lab in the user's cache folder.
#[derive(Debug, Parser)]
#[command(name = "lab", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Which lab, where several run side by side; without it `default`, and `status` shows all
    #[arg(long, global = true, env = "LAB_NAME")]
    name: Option<String>,
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a cluster, or complete it; what an interrupted run left behind is removed first
    Up {
        /// How many nodes: n1, n2, ...; 0 needs no root and gives a control plane only
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(..=i64::from(lab::MAX_NODES)))]
        nodes: u8,
        /// An extra flag for a component, for example kube-controller-manager=--node-monitor-grace-period=20s
        #[arg(long = "flag", value_name = "COMPONENT=FLAG", value_parser = component_flag)]
        flags: Vec<(Tool, String)>,
    },
    /// End the cluster and leave nothing of it on the machine
    Down,
    /// Show labs, their components and nodes; exit code 1 if something is not running
    Status,
    /// Print the path of a kubeconfig with all permissions
    Kubeconfig,
    /// Run kubectl
    #[command(disable_help_flag = true)]
    Kubectl(Passed),
    /// Run Helm; without a lab of this name it can only render
    #[command(disable_help_flag = true)]
    Helm(Passed),
    /// Simulate every Node annotated kwok.x-k8s.io/node=fake
    Kwok,
    /// Bring images to all nodes
    #[command(subcommand)]
    Image(ImageVerb),
    /// Add, break, fix and remove nodes
    #[command(subcommand)]
    Node(NodeVerb),
    /// Build programs into the cache without starting anything
    Build {
        /// Which; without any, all but Helm 4, and as root the machine's missing packages are installed too
        tools: Vec<Tool>,
    },
}

#[derive(Debug, Args)]
struct Passed {
    /// Handed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum ImageVerb {
    /// Load an image archive (docker or OCI) into all nodes, also into nodes added later
    Load { file: PathBuf },
}

#[derive(Debug, Subcommand)]
enum NodeVerb {
    /// Add a node and wait until it is Ready
    Add {
        node: String,
        /// A taint from its first moment, KEY=VALUE:EFFECT or KEY:EFFECT; may be repeated
        #[arg(long = "taint", value_name = "TAINT")]
        taints: Vec<Taint>,
        /// A label from its first moment, KEY=VALUE; may be repeated
        #[arg(long = "label", value_name = "LABEL")]
        labels: Vec<Label>,
    },
    /// Take a node away for good, machine and Node object
    Remove { node: String },
    /// Cut a node's power; its Node object stays
    Kill { node: String },
    /// Reboot a node, or start one that was killed: new boot ID, same disk, same Node object
    Reboot { node: String },
    /// Break something for the pods of a node; faults add up
    Break {
        node: String,
        #[arg(required = true)]
        faults: Vec<Fault>,
    },
    /// Fix everything that was broken on a node
    Heal { node: String },
    /// Run a command on a node
    Exec {
        node: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

pub(crate) fn run(Cli { name: given, command }: Cli) -> Result<ExitCode> {
    let home = Home::from_env()?;
    let name = given.clone().unwrap_or_else(|| "default".to_owned());
    let lab = || Lab::open(&home, &name);
    match command {
        Verb::Up { nodes, flags } => up(&home, &name, nodes, &flags)?,
        Verb::Down => down(&home, &name)?,
        Verb::Status => return status(&home, given.as_deref()),
        Verb::Kubeconfig => println!("{}", lab()?.kubeconfig().display()),
        Verb::Kubectl(Passed { arguments }) => become_(lab()?.client(Tool::Kubectl).args(arguments))?,
        Verb::Helm(Passed { arguments }) => {
            let helm = Tool::helm()?;
            lab::build(&home, &[helm])?;
            // Charts can be rendered without a cluster.
            let command = Lab::find(&home, &name)?
                .map_or_else(|| Command::new(helm.path(&home)), |lab| lab.client(helm));
            become_({ command }.args(arguments))?;
        }
        Verb::Kwok => {
            lab()?.start_kwok()?;
            println!("kwok is running");
        }
        Verb::Image(ImageVerb::Load { file }) => {
            let lab = lab()?;
            lab.load_image(&file)?;
            println!("loaded {} into {} nodes, and into those to come", file.display(), lab.nodes()?.len());
        }
        Verb::Node(verb) => node(&lab()?, verb)?,
        Verb::Build { tools } if tools.is_empty() => lab::prepare(&home)?,
        Verb::Build { tools } => lab::build(&home, &tools)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(home: &Home, name: &str, nodes: u8, flags: &[(Tool, String)]) -> Result<()> {
    let builder = Lab::builder(home, name).nodes(nodes);
    let lab = flags.iter().fold(builder, |builder, (tool, flag)| builder.flag(*tool, flag)).up()?;
    println!("lab {name} is up; its kubeconfig is {}", lab.kubeconfig().display());
    Ok(())
}

/// Ending what is not there is no mistake: a script may call it to be sure.
fn down(home: &Home, name: &str) -> Result<()> {
    if Lab::find(home, name)?.is_none() {
        println!("lab {name} is not up");
        return Ok(());
    }
    // More than once, if another process was just making it again.
    while let Some(lab) = Lab::find(home, name)? {
        lab.down()?;
    }
    println!("lab {name} is down");
    Ok(())
}

fn node(lab: &Lab, verb: NodeVerb) -> Result<()> {
    match verb {
        NodeVerb::Add { node, taints, labels } => {
            let builder = taints.into_iter().fold(lab.add_node(&node), lab::NodeBuilder::taint);
            labels.into_iter().fold(builder, lab::NodeBuilder::label).start()?;
            println!("node {node} is Ready");
        }
        NodeVerb::Remove { node } => {
            lab.node(&node)?.remove()?;
            println!("node {node} is removed");
        }
        NodeVerb::Kill { node } => {
            lab.node(&node)?.kill()?;
            println!(
                "node {node} is off; it becomes NotReady when the controller manager misses it, after 50 s"
            );
        }
        NodeVerb::Reboot { node } => {
            lab.node(&node)?.reboot()?;
            println!("node {node} is Ready again");
        }
        NodeVerb::Break { node, faults } => {
            faults.iter().try_for_each(|fault| lab.node(&node)?.inject(*fault))?;
            println!("node {node} is broken; `lab node heal {node}` fixes it");
        }
        NodeVerb::Heal { node } => {
            lab.node(&node)?.heal()?;
            println!("node {node} is healed");
        }
        NodeVerb::Exec { node, command } => become_(lab.node(&node)?.command()?.args(command))?,
    }
    Ok(())
}

fn status(home: &Home, only: Option<&str>) -> Result<ExitCode> {
    let mut labs = Lab::all(home)?;
    labs.retain(|lab| only.is_none_or(|name| lab.name() == name));
    if labs.is_empty() {
        anstream::println!("no lab is up");
    }
    let mut well = true;
    for lab in labs {
        anstream::println!("lab {} in {}", lab.name(), lab.folder().display());
        for lab::ComponentStatus { name, pid } in lab.components()? {
            let state =
                pid.map_or_else(|| bad("not running"), |pid| format!("{}, pid {pid}", good("running")));
            anstream::println!("  {name:<24} {state}");
            well &= pid.is_some();
        }
        for node in lab.nodes()? {
            let dead = node.dead_programs()?;
            let state = match (node.is_complete(), node.is_on()) {
                (false, _) => bad("half made"),
                (true, false) => bad("off"),
                (true, true) if dead.is_empty() => good("on"),
                (true, true) => bad(&format!("on, {} not running", dead.join(", "))),
            };
            well &= node.is_complete() && node.is_on() && dead.is_empty();
            anstream::println!(
                "  node {:<19} {state}, {}, pods {}",
                node.name(),
                node.address(),
                node.pod_range()
            );
        }
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Colours for a terminal; `anstream` leaves them out elsewhere.
fn good(text: &str) -> String {
    painted(text, AnsiColor::Green)
}

fn bad(text: &str) -> String {
    painted(text, AnsiColor::Red)
}

fn painted(text: &str, colour: AnsiColor) -> String {
    let style = colour.on_default();
    format!("{style}{text}{style:#}")
}

/// Hands the terminal, the signals and the exit code over to the command. Returns only if it cannot start.
fn become_(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    Err(command.exec()).with_context(|| format!("cannot run {name}"))
}

fn component_flag(text: &str) -> Result<(Tool, String)> {
    let (component, flag) = text.split_once('=').context("write COMPONENT=FLAG")?;
    let tool = Tool::daemons().find(|tool| tool.name() == component).with_context(|| {
        let names: Vec<_> = Tool::daemons().map(Tool::name).collect();
        format!("{component:?} is not a component; they are {}", names.join(", "))
    })?;
    Ok((tool, flag.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_readme_knows_every_command_every_fault_and_the_probe() {
        let readme = include_str!("../README.md");
        let mut words = vec![<Cli as clap::CommandFactory>::command()];
        while let Some(command) = words.pop() {
            let name = command.get_name();
            assert!(readme.contains(&format!("`{name}")) || readme.contains(&format!(" {name} ")), "{name}");
            words.extend(command.get_subcommands().cloned());
        }
        let probe = include_str!("../tools/probe/main.go");
        let usage = probe.split('`').nth(1).unwrap();
        assert!(readme.contains(usage.trim_end()), "the usage of the probe");
        for fault in <Fault as clap::ValueEnum>::value_variants() {
            let name = clap::ValueEnum::to_possible_value(fault).unwrap();
            assert!(readme.contains(&format!("| `{}` |", name.get_name())), "{fault:?}");
        }
    }

    #[test]
    fn a_flag_names_its_component() {
        let (tool, flag) = component_flag("kubelet=--v=4").unwrap();
        assert_eq!((tool, flag.as_str()), (Tool::Kubelet, "--v=4"));
        for wrong in ["kublet=--v=4", "kubectl=--v=4", "kubelet"] {
            assert!(component_flag(wrong).is_err(), "{wrong}");
        }
    }
}

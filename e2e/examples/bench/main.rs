//! Compares the speed of the product with the fastest possible baseline: a program that only opens nodes.
//!
//! ```text
//! make bench                      both parts, about ten minutes
//! ... --part kwok --rounds 4      thousands of simulated nodes, more often
//! ... --part kubelet              real kubelets
//! ... --program A --program B     several builds of the product, side by side: processor time only
//! ... --part surge                ten thousand simulated nodes at a hundred a second, about ten minutes
//! ```
//!
//! | module | content |
//! |---|---|
//! | `crowd` | simulated nodes by the thousand: one round with one subject, and its results |
//! | `kubelet` | real nodes that join one after another |
//! | `surge` | more simulated nodes at once than an API server on this machine keeps up with |
//! | `subject`, `bare` | the product as a process, and the baseline |
//! | `fleet`, `mirror`, `objects`, `api` | nodes and pods: made, ended, watched |
//! | `traffic`, `process` | the counts of the API server and the kernel |
//! | `report` | limits, verdicts, the table |

mod api;
mod bare;
mod crowd;
mod fleet;
mod kubelet;
mod mirror;
mod objects;
mod process;
mod report;
mod subject;
mod surge;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use tokio::runtime::{Builder, Runtime};

use report::Report;

/// Measures the product's speed.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only this part; without it, all but the surge
    #[arg(long)]
    part: Option<Part>,
    /// How often each scenario is run with each subject; medians count
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Simulated nodes
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Speed alone: no idle minute, and no further nodes
    #[arg(long)]
    speed_only: bool,
    /// A build of the product. Several are run in turn, and only their processor time is measured
    #[arg(long = "program", conflicts_with = "part")]
    programs: Vec<PathBuf>,
    /// Simulated nodes in a surge
    #[arg(long, default_value_t = 10_000)]
    surge_nodes: usize,
    /// Real nodes for each of product and bare pod
    #[arg(long, default_value_t = 5)]
    joins: usize,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Kwok,
    Kubelet,
    Surge,
}

/// What the bench starts itself as.
#[derive(Debug, Subcommand)]
enum Role {
    /// The baseline
    #[command(hide = true)]
    Bare { kubeconfig: PathBuf },
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("another TLS provider is installed already");
    }
    if let Some(Role::Bare { kubeconfig }) = &arguments.role {
        // The product is single-threaded as well.
        Builder::new_current_thread().enable_all().build()?.block_on(bare::run(kubeconfig))?;
        return Ok(ExitCode::SUCCESS);
    }
    measure(&arguments, &Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn measure(arguments: &Arguments, runtime: &Runtime) -> Result<ExitCode> {
    let product = knr_e2e::product::path().context("which program to measure")?;
    let mut report = Report::new(&product)?;
    if !arguments.programs.is_empty() {
        let size = crowd::Size { nodes: arguments.nodes, rounds: arguments.rounds };
        crowd::Crowd::compare(runtime, size, &arguments.programs, &mut report)?;
        println!("{report}");
        return Ok(ExitCode::SUCCESS);
    }
    if matches!(arguments.part, None | Some(Part::Kwok)) {
        let size = crowd::Size { nodes: arguments.nodes, rounds: arguments.rounds };
        let crowd = crowd::Crowd::measure(runtime, size, &mut report)?;
        if !arguments.speed_only {
            crowd.measure_thrift(&mut report)?;
        }
    }
    if matches!(arguments.part, None | Some(Part::Kubelet)) {
        kubelet::measure(runtime, arguments.joins, &mut report)?;
    }
    if arguments.part == Some(Part::Surge) {
        surge::measure(runtime, arguments.surge_nodes, &mut report)?;
    }
    println!("{report}");
    Ok(if report.all_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

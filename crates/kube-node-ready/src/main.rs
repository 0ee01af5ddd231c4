//! kube-node-ready: keeps new Kubernetes nodes closed until they have proven that they can do their work.
//!
//! One program, one image; what it does and with which rights depends on the subcommand, see [`cmd`].

mod alias;
mod clock;
mod cmd;
mod controller;
mod daemonset;
mod exit;
mod journal;
mod serve;
mod shutdown;
mod telemetry;
mod version;

use std::process::ExitCode;

use clap::Parser;

/// The allocator of musl takes a fifth of the controller's processor time.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = cmd::Cli::parse_from(alias::resolve(std::env::args_os().collect()));
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anstream::eprintln!("error: another TLS provider is installed already");
        return exit::FAILED.into();
    }
    // One is enough for thousands of nodes, and nothing has to be passed between threads.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            anstream::eprintln!("error: no threads can be started: {error}");
            return exit::FAILED.into();
        }
    };
    let code = match runtime.block_on(cmd::run(cli)) {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            exit::of(&error).into()
        }
    };
    // What still runs in the background must not keep the process.
    runtime.shutdown_background();
    code
}

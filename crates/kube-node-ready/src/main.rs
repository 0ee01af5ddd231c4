//! kube-node-ready: keeps new Kubernetes nodes closed until they have proven that they can do their work.
//!
//! One program, one image: the subcommand determines what it does and which permissions it needs, see [`cmd`].

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

/// musl's allocator takes a fifth of the controller's CPU time.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = cmd::Cli::parse_from(alias::resolve(std::env::args_os().collect()));
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anstream::eprintln!("error: another TLS provider is installed already");
        return exit::FAILED.into();
    }
    // One thread is enough for thousands of nodes, and nothing has to be passed between threads.
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
    // Background tasks must not keep the process alive.
    runtime.shutdown_background();
    code
}

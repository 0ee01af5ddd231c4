//! The command line of the lab.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(err) => {
            eprintln!("lab: {err:#}");
            ExitCode::FAILURE
        }
    }
}

//! `kube-node-ready manifests`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use knr_k8s::api::Namespaces;
use knr_k8s::rbac;

use super::{Loaded, Overrides};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Service accounts, roles and bindings, generated from the list of all requests that are ever sent
    Rbac(Rbac),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the objects were printed, 1 something failed, 2 the configuration is invalid."
)]
struct Rbac {
    /// Configuration file: features that it disables need no permissions
    #[arg(long, env = "CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Namespace of the controller
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE", default_value = "kube-system")]
    namespace: String,
}

/// Prints the objects.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let What::Rbac(Rbac { config, namespace }) = args.what;
    let Loaded { config, .. } = Overrides::from_environment().load(config.as_deref())?;
    let objects = rbac::manifests(&config, &Namespaces::of(&config, &namespace));
    for object in objects {
        let text = serde_saphyr::to_string(&object).context("an object cannot be written as YAML")?;
        anstream::print!("---\n{text}");
    }
    Ok(ExitCode::SUCCESS)
}

//! `kube-node-ready controller`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use knr_core::config::Config;

use super::{Loaded, Overrides, demands_of, kubeconfig_of};
use crate::controller::{self, Lead, Settings};
use crate::shutdown;
use crate::telemetry::{self, Output};
use crate::version;

const SERVICE_ACCOUNT_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const FALLBACK_NAMESPACE: &str = "kube-system";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The environment variables in docs/config.md override the file.\n\nExit codes: 0 clean shutdown, 1 something \
                        failed, 2 the configuration is invalid, 3 a permission is missing."
)]
pub(crate) struct Args {
    /// Configuration file; changes take effect without a restart
    #[arg(long, env = "CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig, to run outside a cluster [default: the pod's service account, or what kubectl would use]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Report what would be done, and do nothing, not even take the lease
    #[arg(long)]
    dry_run: bool,
    /// Namespace of the controller, of its lease and of its ledger [default: that of the pod, or kube-system]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Name of this replica in the lease and in events [default: the host name]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
}

/// Runs the controller.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let Args { config, kubeconfig, dry_run, namespace, identity } = args;
    let overrides = Overrides::from_environment().and(demands_of(dry_run));
    let Loaded { config, file, format } = overrides.load(config.as_deref())?;
    let telemetry = telemetry::init(config.logging.level, format, Output::Stdout)?;
    let stop = shutdown::on_signal()?;
    let leader_election = config.leader_election.enabled;
    let settings = Settings {
        kubeconfig: kubeconfig_of(kubeconfig, &config),
        config,
        file,
        overrides,
        lead: match (dry_run, leader_election) {
            (true, _) => Lead::LookingOn,
            (false, true) => Lead::ByLease,
            (false, false) => Lead::Alone,
        },
        namespace: namespace.unwrap_or_else(own_namespace),
        identity: unique(&identity.unwrap_or_else(machine)),
        telemetry,
    };
    tracing::info!(
        version = knr_core::VERSION,
        commit = version::COMMIT,
        identity = settings.identity,
        namespace = settings.namespace,
        gate = gate(&settings.config),
        dry_run = settings.config.reconciliation.dry_run,
        "starting"
    );
    controller::run(settings, stop).await
}

/// The taints that make a node managed, for operators who wonder why a node is left alone.
pub(super) fn gate(config: &Config) -> String {
    let taints: Vec<String> = config.node_management.taints.iter().map(ToString::to_string).collect();
    taints.join(", ")
}

/// Returns the namespace of this pod, or the fallback outside a pod.
pub(super) fn own_namespace() -> String {
    let text = std::fs::read_to_string(SERVICE_ACCOUNT_NAMESPACE).unwrap_or_default();
    match text.trim() {
        "" => FALLBACK_NAMESPACE.to_owned(),
        namespace => namespace.to_owned(),
    }
}

fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "controller".to_owned(),
        name => name.to_owned(),
    }
}

/// Makes a name unique. A pod may be restarted under the same name; to the lease it is a different holder.
fn unique(name: &str) -> String {
    format!("{name}_{:08x}", RandomState::new().build_hasher().finish() >> 32)
}

//! Reloads the configuration file when it changes. An invalid file changes nothing, and is logged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use knr_core::config::Config;
use knr_k8s::access::Missing;
use knr_k8s::api::Failed;
use knr_web::{ConfigReload, Metrics};
use tokio::sync::watch;

use crate::cmd::Overrides;

/// How often the file is read. The kubelet replaces a mounted file by swapping a symlink, which a watch on the file
/// does not see.
const LOOK: Duration = Duration::from_secs(2);

/// A setting that cannot change while the process runs.
struct Fixed {
    key: &'static str,
    differs: fn(&Config, &Config) -> bool,
    keep: fn(&mut Config, &Config),
}

const FIXED: [Fixed; 7] = [
    Fixed {
        key: "worker.namespace",
        differs: |a, b| a.worker.namespace != b.worker.namespace,
        keep: |new, old| new.worker.namespace.clone_from(&old.worker.namespace),
    },
    Fixed {
        key: "leaderElection",
        differs: |a, b| a.leader_election != b.leader_election,
        keep: |new, old| new.leader_election.clone_from(&old.leader_election),
    },
    Fixed {
        key: "metrics.enabled",
        differs: |a, b| a.metrics.enabled != b.metrics.enabled,
        keep: |new, old| new.metrics.enabled = old.metrics.enabled,
    },
    Fixed {
        key: "metrics.port",
        differs: |a, b| a.metrics.port != b.metrics.port,
        keep: |new, old| new.metrics.port = old.metrics.port,
    },
    Fixed {
        key: "health.port",
        differs: |a, b| a.health.port != b.health.port,
        keep: |new, old| new.health.port = old.health.port,
    },
    Fixed {
        key: "logging.format",
        differs: |a, b| a.logging.format != b.logging.format,
        keep: |new, old| new.logging.format = old.logging.format,
    },
    Fixed {
        key: "kubernetes.kubeconfig",
        differs: |a, b| a.kubernetes.kubeconfig != b.kubernetes.kubeconfig,
        keep: |new, old| new.kubernetes.kubeconfig.clone_from(&old.kubernetes.kubeconfig),
    },
];

/// Returns the permissions that a configuration lacks.
pub(super) type Permits =
    Box<dyn Fn(Arc<Config>) -> BoxFuture<'static, Result<Vec<Missing>, Failed>> + Send + Sync>;

/// Polls the file for changes.
pub(super) struct Reload {
    pub(super) path: PathBuf,
    /// The content that was handled last; at first, the content at process start.
    pub(super) text: String,
    /// Settings that override the file.
    pub(super) overrides: Overrides,
    pub(super) config: watch::Sender<Arc<Config>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) set_level: Box<dyn Fn(&Config) + Send + Sync>,
    pub(super) permits: Permits,
    /// The content that was last warned about. It is taken up again until its permissions are known.
    pub(super) warned: String,
}

/// Logs a warning, or for debugging what was warned of before.
macro_rules! repeated {
    ($is_new:expr, $($what:tt)*) => {
        if $is_new { tracing::warn!($($what)*) } else { tracing::debug!($($what)*) }
    };
}

/// The outcome of a changed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakenUp {
    /// It is in force, or it was rejected.
    Settled,
    /// The permissions that it needs could not be checked.
    AskAgain,
}

impl Reload {
    /// Polls the file indefinitely.
    pub(super) async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK);
        loop {
            look.tick().await;
            // A file that is missing for a moment is about to be replaced.
            let Ok(text) = tokio::fs::read_to_string(&self.path).await else { continue };
            if text != self.text && self.take_up(&text).await == TakenUp::Settled {
                self.text = text;
            }
        }
    }

    async fn take_up(&mut self, text: &str) -> TakenUp {
        let mut config = match Config::parse(text).and_then(|file| self.overrides.apply(file)) {
            Ok(config) => config,
            Err(problems) => {
                self.metrics.config_reload(ConfigReload::Rejected);
                tracing::error!(
                    file = %self.path.display(), %problems,
                    "the changed configuration is wrong; the last good one stays in force"
                );
                return TakenUp::Settled;
            }
        };
        let is_new = self.warned != text;
        text.clone_into(&mut self.warned);
        let old = Arc::clone(&self.config.borrow());
        let fixed: Vec<&str> = keep_what_is_fixed(&mut config, &old);
        if !fixed.is_empty() {
            repeated!(is_new, keys = fixed.join(", "), "these changes take effect after a restart");
        }
        let config = Arc::new(config);
        match (self.permits)(Arc::clone(&config)).await {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                self.metrics.config_reload(ConfigReload::Rejected);
                let permissions: Vec<String> = missing.iter().map(ToString::to_string).collect();
                tracing::error!(
                    file = %self.path.display(), permissions = permissions.join(", "),
                    "the changed configuration needs permissions that are missing; the last good one stays in force"
                );
                return TakenUp::Settled;
            }
            Err(error) => {
                repeated!(is_new, %error, "the API server cannot be asked for permissions; trying again");
                return TakenUp::AskAgain;
            }
        }
        self.metrics.config_reload(ConfigReload::Ok);
        tracing::info!(file = %self.path.display(), "the changed configuration is in force");
        (self.set_level)(&config);
        self.config.send_replace(config);
        TakenUp::Settled
    }
}

/// Keeps the old values of settings that cannot change while the process runs, and returns their keys.
fn keep_what_is_fixed(new: &mut Config, old: &Config) -> Vec<&'static str> {
    let changed: Vec<&Fixed> = FIXED.iter().filter(|fixed| (fixed.differs)(new, old)).collect();
    for fixed in &changed {
        (fixed.keep)(new, old);
    }
    changed.iter().map(|fixed| fixed.key).collect()
}

#[cfg(test)]
mod tests {
    use knr_core::config::Level;
    use knr_k8s::calls::Call;

    use super::*;
    use crate::telemetry::tests::Captured;

    fn config(yaml: &str) -> Config {
        Config::parse(yaml).unwrap()
    }

    #[test]
    fn what_cannot_change_is_named_and_kept() {
        let old = config("");
        let mut new = config(
            "worker: {namespace: other}\nhealth: {port: 1}\nmetrics: {port: 2, enabled: false}\n\
             leaderElection: {leaseName: x}\nkubernetes: {kubeconfig: /k}\nlogging: {format: console}\n\
             reconciliation: {maxRetries: 9}",
        );
        let named = keep_what_is_fixed(&mut new, &old);
        assert_eq!(named.len(), FIXED.len(), "{named:?}");
        assert_eq!(new, config("reconciliation: {maxRetries: 9}"));
        assert!(keep_what_is_fixed(&mut config("reconciliation: {maxRetries: 2}"), &old).is_empty());
    }

    #[tokio::test]
    async fn a_warning_about_the_same_file_is_repeated_only_for_debugging() {
        let (mut reload, _changes) = reload();
        let log = Captured::start(Level::Debug);
        let warnings = |log: &Captured| {
            let messages = log.messages();
            messages.iter().filter(|(level, _)| level == "warn").count()
        };
        let text = "{gates: [{name: a}], health: {port: 1}}";
        assert_eq!(reload.take_up(text).await, TakenUp::AskAgain);
        assert_eq!(warnings(&log), 2);
        assert_eq!(reload.take_up(text).await, TakenUp::AskAgain);
        assert_eq!(warnings(&log), 0);
        assert_eq!(reload.take_up("{gates: [{name: b}], health: {port: 1}}").await, TakenUp::AskAgain);
        assert_eq!(warnings(&log), 2, "it is another file");
    }

    fn reload() -> (Reload, watch::Receiver<Arc<Config>>) {
        let (config, changes) = watch::channel(Arc::new(Config::default()));
        let environment = [("CHECK_TIMEOUT".to_owned(), "7s".to_owned())];
        let overrides = Overrides::of(environment.into()).and(|config| config.reconciliation.dry_run = true);
        let reload = Reload {
            path: "config.yaml".into(),
            text: String::new(),
            overrides,
            config,
            metrics: Arc::new(Metrics::new(false)),
            set_level: Box::new(|_| {}),
            permits: Box::new(|config| {
                let lacks = config.node_management.backfill;
                let missing = Missing { call: Call::ListPodsOfNode, namespace: None };
                Box::pin(async move {
                    if config.gates.is_empty() {
                        Ok(lacks.then_some(missing).into_iter().collect())
                    } else {
                        Err(Failed::NoConnection(String::new()))
                    }
                })
            }),
            warned: String::new(),
        };
        (reload, changes)
    }

    #[tokio::test]
    async fn a_wrong_file_changes_nothing_and_a_corrected_one_does() {
        let (mut reload, changes) = reload();
        assert_eq!(reload.take_up("reconciliation: {maxRetries: many}").await, TakenUp::Settled);
        // Wrong only in combination with the environment.
        reload.take_up("worker: {timeoutSeconds: 5, checkTimeoutSeconds: 5}").await;
        // Not permitted, or not known to be.
        assert_eq!(reload.take_up("nodeManagement: {backfill: true}").await, TakenUp::Settled);
        assert_eq!(reload.take_up("gates: [{name: a}]").await, TakenUp::AskAgain);
        assert!(!changes.has_changed().unwrap());
        reload.take_up("reconciliation: {maxRetries: 3}").await;
        let now = changes.borrow();
        assert_eq!(now.reconciliation.max_retries, 3);
        assert!(now.reconciliation.dry_run, "the command line overrides the file");
        assert_eq!(now.worker.check_timeout_seconds, 7, "and so does the environment");
    }
}

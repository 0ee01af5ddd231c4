//! Whose fault a failure is. Every way in which a check or its worker can fail is in one of the tables below, and
//! `docs/failures.md` is generated from them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whose fault a failure is. If several checks of a report fail, the first variant in this order decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// The node's own fault. Costs an attempt; may lead to the deletion of the node, but only after a reference run.
    Node,
    /// The fault of the cluster or of something the checks depend on. The checks are retried; the node is never deleted
    /// for it, and an open node stays open.
    Cluster,
    /// The fault of the node or of the cluster. Costs an attempt, but counts as the cluster's until the same checks have
    /// passed on a verified node: before that no open node is closed and no node is deleted for it. A closed node counts
    /// as failed before that only if no verified node can make a reference run.
    Unclear,
    /// The fault of the installation: its image, its configuration or its permissions. Reported on the node at once;
    /// costs no attempt.
    Installation,
}

macro_rules! failures {
    (
        $(#[$about:meta])*
        pub enum $name:ident {
            $($kind:ident $word:literal $blame:ident $meaning:literal $remedy:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $meaning] $kind,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The word in reports and conditions.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$kind => $word,)* }
            }

            /// The name of the variant.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind),)* }
            }

            /// Whose fault it is.
            #[must_use]
            pub const fn blame(self) -> Blame {
                match self { $(Self::$kind => Blame::$blame,)* }
            }

            /// The meaning, as a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$kind => $meaning,)* }
            }

            /// Where to look for the cause.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$kind => $remedy,)* }
            }
        }
    };
}

failures! {
    /// The kind of failure of a check.
    pub enum Kind {
        Timeout "timeout" Unclear "There was no answer in time."
            "routes, firewall rules and kube-proxy of the node, then the peer",
        UdpTimeout "udp-timeout" Unclear "There was no answer over UDP, but there was one over TCP."
            "firewall rules and security groups for UDP port 53",
        TcpTimeout "tcp-timeout" Unclear "There was no answer over TCP, but there was one over UDP."
            "firewall rules and security groups for TCP port 53",
        Refused "refused" Unclear "The address was reached, but nothing listens there."
            "kube-proxy of the node, then the peer",
        Unreachable "unreachable" Unclear "There is no route to the address."
            "routes and CNI plugin of the node, then the routers on the way",
        HostUnreachable "host-unreachable" Unclear "There is a route to the address, but its host does not answer."
            "the peer and its machine, then neighbours and firewall rules of the node",
        Closed "closed" Unclear "The connection was closed by the peer or on the way to it."
            "firewalls and load balancers on the way, then the peer",
        Io "io" Unclear "The system reported another error."
            "the worker's log and the limits of the node",
        Resolve "resolve" Unclear "The name of the peer could not be resolved."
            "DNS, and whether the name is right",
        NoNameserver "no-nameserver" Node "No nameserver is configured."
            "clusterDNS in the configuration of the kubelet",
        Nxdomain "nxdomain" Unclear "The nameserver reports that the name does not exist."
            "clusterDNS and clusterDomain of the kubelet, and whether the name is right",
        NoRecords "no-records" Unclear "The name exists, but has no address."
            "whether the name is right, and the nameserver",
        Servfail "servfail" Cluster "The nameserver could not resolve the name."
            "the log of the DNS server and the servers it forwards to",
        QueryRefused "query-refused" Cluster "The nameserver refuses to answer."
            "the configuration of the DNS server",
        BadAnswer "bad-answer" Unclear "The answer is invalid."
            "what listens at the address",
        TlsTimeout "tls-timeout" Unclear "The TCP connection was made, but the TLS handshake does not complete."
            "the MTU of the pod network",
        Untrusted "untrusted" Unclear "The certificate is not trusted."
            "the clock of the node, then the certificate of the peer",
        Tls "tls" Unclear "The TLS handshake failed for another reason."
            "what listens at the address",
        NoAnswer "no-answer" Unclear "The connection was made, but no answer came in time."
            "the MTU of the pod network, then the peer",
        Unauthorized "unauthorized" Installation "The API server does not accept the credentials."
            "the service account of the worker",
        Forbidden "forbidden" Installation "The API server forbids the request."
            "the permissions of the worker's service account",
        Busy "busy" Cluster "The server is overloaded or not ready (429, 503, 504)."
            "the load and the log of the server: for built-in checks the API server",
        ServerError "server-error" Cluster "The server reports an internal error (another 5xx)."
            "the log of the server: for built-in checks the API server",
        BadStatus "bad-status" Unclear "The response does not have the expected status."
            "what listens at the address, and its log",
        NoAccess "no-access" Installation "There is no address of the API server, or no credentials for it."
            "the service account of the worker, or the kubeconfig",
        Api "api" Unclear "What the check needs to know could not be read from the API server."
            "the result of the check `kubernetes`",
        NotFound "not-found" Installation "The Service does not exist."
            "the names in `worker.services`",
        NoEndpoints "no-endpoints" Cluster "The Service has no ready pods."
            "the pods of the Service",
        NoDnsEndpoints "no-dns-endpoints" Cluster "The DNS Service has no ready pods, so no node can resolve names."
            "the pods of the DNS Service",
        NoClusterIp "no-cluster-ip" Installation "The Service has no cluster IP."
            "the names in `worker.services`",
        ServiceUnreachable "service-unreachable" Unclear "The `kubernetes` Service cannot be reached."
            "kube-proxy of the node",
        PodsUnreachable "pods-unreachable" Unclear "Pods cannot be reached at their own addresses."
            "the CNI plugin of the node",
        Missing "missing" Unclear "The file does not exist."
            "the node, and `worker.volumes` and `worker.volumeMounts`",
        RequestLost "request-lost" Unclear "Small packets arrive, but a large request is not answered."
            "the MTU of the pod network",
        AnswerLost "answer-lost" Unclear "Small packets arrive, but a large answer does not."
            "the MTU of the pod network",
        Deadline "deadline" Unclear "The check did not finish in time."
            "the load of the node, and `worker.timeoutSeconds`",
        Crashed "crashed" Installation "The check crashed."
            "the worker's log; please report it",
    }
}

failures! {
    /// The kind of failure of a worker that left no report of a failed check.
    pub enum WorkerFailure {
        Pending "WorkerPending" Unclear "The worker did not start in time."
            "the events of the worker pod: usually the CNI plugin or the kubelet of the node",
        Timeout "Timeout" Unclear "The worker did not finish in time."
            "the worker's log, the load of the node, and `worker.timeoutSeconds`",
        NotEnded "WorkerNotEnded" Unclear "A worker that was deleted did not go away."
            "the kubelet of the node, then finalizers on the pod",
        Failed "WorkerFailed" Unclear "The worker or an init container exited with an error and without a report."
            "the worker's log",
        Misconfigured "WorkerMisconfigured" Installation "The worker could not run its checks."
            "the configuration of the worker: the message says what is wrong with it",
        ImagePull "ImagePullFailed" Installation "The image of the worker cannot be pulled."
            "`worker.image.repository`, `worker.image.tag`, `worker.image.pullSecrets` and the registry",
        NotStarted "WorkerNotStarted" Installation "A container of the worker cannot be started."
            "the architecture of the image, and command, environment, volumes and security context of the worker",
        Refused "WorkerRefused" Installation "The API server refused to create the worker."
            "quotas, admission policies and the Pod Security level of the worker's namespace",
    }
}

/// The faults of the installation, each as one word. There are few, so each can have its own series in the metrics.
pub fn installation_faults() -> impl Iterator<Item = &'static str> {
    let workers = WorkerFailure::ALL.iter().filter(|failure| failure.blame() == Blame::Installation);
    let checks = Kind::ALL.iter().filter(|kind| kind.blame() == Blame::Installation);
    workers.map(|failure| failure.word()).chain(checks.map(|kind| kind.name()))
}

/// The fault of the installation behind a cause that a node shows; `None` if the cause is something else. The cause of
/// a failed check starts with the name of the check: `KubernetesForbidden`.
#[must_use]
pub fn installation_fault(cause: &str) -> Option<&'static str> {
    let is_worker = |word: &&str| WorkerFailure::ALL.iter().any(|failure| failure.word() == *word);
    installation_faults().find(|word| cause == *word || !is_worker(word) && cause.ends_with(word))
}

/// Reasons by which the kubelet says that a container will not start until somebody changes something. Any other
/// reason is ordinary waiting.
pub const WAITING_REASONS: [(&str, WorkerFailure); 9] = [
    ("ErrImagePull", WorkerFailure::ImagePull),
    ("ImagePullBackOff", WorkerFailure::ImagePull),
    ("InvalidImageName", WorkerFailure::ImagePull),
    ("ErrImageNeverPull", WorkerFailure::ImagePull),
    ("RegistryUnavailable", WorkerFailure::ImagePull),
    ("SignatureValidationFailed", WorkerFailure::ImagePull),
    ("CreateContainerConfigError", WorkerFailure::NotStarted),
    ("CreateContainerError", WorkerFailure::NotStarted),
    ("RunContainerError", WorkerFailure::NotStarted),
];

/// The failure behind a container's waiting reason; `None` for ordinary waiting.
#[must_use]
pub fn waiting_failure(reason: &str) -> Option<WorkerFailure> {
    WAITING_REASONS.iter().find(|(known, _)| *known == reason).map(|(_, failure)| *failure)
}

/// Whose fault a container's waiting reason is; `None` for ordinary waiting.
#[must_use]
pub fn waiting_blame(reason: &str) -> Option<Blame> {
    waiting_failure(reason).map(WorkerFailure::blame)
}

/// The kind of a failure as reported. The worker image may be of another version or custom, so the word may not be in
/// the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ReportedKind {
    /// A kind from the table.
    Known(Kind),
    /// Any other word.
    Foreign(String),
}

impl ReportedKind {
    /// The word in the report.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::Known(kind) => kind.word(),
            Self::Foreign(word) => word,
        }
    }

    /// Whose fault it is. With an unknown kind, that is unclear.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Known(kind) => kind.blame(),
            Self::Foreign(_) => Blame::Unclear,
        }
    }
}

impl From<String> for ReportedKind {
    fn from(word: String) -> Self {
        match Kind::ALL.iter().find(|kind| kind.word() == word) {
            Some(kind) => Self::Known(*kind),
            None => Self::Foreign(word),
        }
    }
}

impl From<ReportedKind> for String {
    fn from(kind: ReportedKind) -> Self {
        kind.word().to_owned()
    }
}

impl From<Kind> for ReportedKind {
    fn from(kind: Kind) -> Self {
        Self::Known(kind)
    }
}

impl fmt::Display for ReportedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_failure_has_a_word_of_its_own() {
        let kinds: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
        let workers: BTreeSet<&str> = WorkerFailure::ALL.iter().map(|failure| failure.word()).collect();
        assert_eq!(workers.len(), WorkerFailure::ALL.len());
    }

    #[test]
    fn a_kind_is_read_back_from_its_word() {
        for kind in Kind::ALL {
            let json = serde_json::to_string(&ReportedKind::from(*kind)).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.word()));
            assert_eq!(serde_json::from_str::<ReportedKind>(&json).unwrap(), ReportedKind::Known(*kind));
        }
    }

    #[test]
    fn what_the_installation_is_to_blame_for_is_known_by_its_cause() {
        assert_eq!(installation_faults().collect::<BTreeSet<_>>().len(), 10);
        for (cause, fault) in [
            ("ImagePullFailed", Some("ImagePullFailed")),
            ("WorkerRefused", Some("WorkerRefused")),
            ("KubernetesForbidden", Some("Forbidden")),
            ("ServicesNotFound", Some("NotFound")),
            ("MyImagePullFailed", None),
            ("WorkerPending", None),
            ("DnsTimeout", None),
            ("", None),
        ] {
            assert_eq!(installation_fault(cause), fault, "{cause}");
        }
    }

    #[test]
    fn a_word_that_is_not_in_the_table_is_kept_and_may_be_the_nodes_fault_or_the_clusters() {
        let foreign: ReportedKind = serde_json::from_str(r#""gpu-lost""#).unwrap();
        assert_eq!((foreign.to_string().as_str(), foreign.blame()), ("gpu-lost", Blame::Unclear));
        assert_eq!(serde_json::to_string(&foreign).unwrap(), r#""gpu-lost""#);
    }

    #[test]
    fn what_is_clear_decides_first_and_the_installation_last() {
        assert!([Blame::Node, Blame::Cluster, Blame::Unclear, Blame::Installation].is_sorted());
        assert_eq!(serde_json::to_string(&Blame::Installation).unwrap(), r#""installation""#);
    }

    #[test]
    fn only_a_container_that_will_never_start_is_the_fault_of_the_installation() {
        for reason in ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "RunContainerError"]
        {
            assert_eq!(waiting_blame(reason), Some(Blame::Installation), "{reason}");
        }
        for reason in ["", "ContainerCreating", "PodInitializing", "Unschedulable", "CrashLoopBackOff"] {
            assert_eq!(waiting_blame(reason), None, "{reason}");
        }
    }
}

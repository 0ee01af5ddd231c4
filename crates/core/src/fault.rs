//! Whose fault a failure is. Every way in which a check or its worker can fail is in one of the tables below, and
//! `docs/failures.md` is generated from them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who has to act on a failure. In the order of what decides if several checks of a report fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// The node's own fault, or possibly its own. Costs an attempt; may lead to the deletion of the node, but only after
    /// a comparison with a verified node.
    Node,
    /// The fault of the cluster or of something the checks depend on. The checks are retried; the node is never deleted
    /// for it, and an open node stays open.
    Cluster,
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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The word for it in reports and conditions.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$kind => $word,)* }
            }

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind),)* }
            }

            /// Whose fault it is.
            #[must_use]
            pub const fn blame(self) -> Blame {
                match self { $(Self::$kind => Blame::$blame,)* }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$kind => $meaning,)* }
            }

            /// What to look at.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$kind => $remedy,)* }
            }
        }
    };
}

failures! {
    /// In what way a check failed.
    pub enum Kind {
        Timeout "timeout" Node "Nothing came back in time."
            "routes, firewall rules and kube-proxy of the node, then the peer",
        UdpTimeout "udp-timeout" Node "Nothing came back over UDP, but over TCP it did."
            "firewall rules and security groups for UDP port 53",
        TcpTimeout "tcp-timeout" Node "Nothing came back over TCP, but over UDP it did."
            "firewall rules and security groups for TCP port 53",
        Refused "refused" Node "The address was reached, and nothing listens there."
            "kube-proxy of the node, then the peer",
        Unreachable "unreachable" Node "There is no way to the address."
            "routes and CNI plugin of the node",
        Closed "closed" Node "The connection was ended by the other side or on the way."
            "firewalls and load balancers on the way, then the peer",
        Io "io" Node "The system reported another error."
            "the worker's log and the limits of the node",
        Resolve "resolve" Node "The name of the peer could not be resolved."
            "DNS, and whether the name is right",
        NoNameserver "no-nameserver" Node "There is no nameserver to ask."
            "clusterDNS in the configuration of the kubelet",
        Nxdomain "nxdomain" Node "The nameserver says that there is no such name."
            "clusterDNS and clusterDomain of the kubelet, and whether the name is right",
        NoRecords "no-records" Node "The name exists, but has no address."
            "whether the name is right, and the nameserver",
        Servfail "servfail" Cluster "The nameserver could not find out."
            "the log of the DNS server and the servers it forwards to",
        QueryRefused "query-refused" Cluster "The nameserver refuses to answer."
            "the configuration of the DNS server",
        BadAnswer "bad-answer" Node "The answer made no sense."
            "what listens at the address",
        TlsTimeout "tls-timeout" Node "The TCP connection stands, but the TLS handshake does not end."
            "the MTU of the pod network",
        Untrusted "untrusted" Node "The certificate is not trusted."
            "the clock of the node, then the certificate of the peer",
        Tls "tls" Node "The TLS handshake failed for another reason."
            "what listens at the address",
        NoAnswer "no-answer" Node "The connection stands, but no answer came in time."
            "the MTU of the pod network, then the peer",
        Unauthorized "unauthorized" Installation "The API server does not accept the credentials."
            "the service account of the worker",
        Forbidden "forbidden" Installation "The API server does not allow this."
            "the permissions of the worker's service account",
        Busy "busy" Cluster "The server is overloaded or not ready (429, 503, 504)."
            "the load and the log of the server: for built-in checks the API server",
        ServerError "server-error" Cluster "The server reports an error of its own (another 5xx)."
            "the log of the server: for built-in checks the API server",
        BadStatus "bad-status" Node "The answer has another status than expected."
            "what listens at the address, and its log",
        NoAccess "no-access" Installation "It is not known how to reach the API server, or as whom."
            "the service account of the worker, or the kubeconfig",
        Api "api" Node "What the check needs to know could not be read from the API server."
            "the result of the check `kubernetes`",
        NotFound "not-found" Installation "The API server knows no such Service."
            "the names in `worker.services`",
        NoEndpoints "no-endpoints" Cluster "The Service has no ready pods."
            "the pods of the Service",
        NoDnsEndpoints "no-dns-endpoints" Cluster "The DNS Service has no ready pods, so no node can resolve names."
            "the pods of the DNS Service",
        NoClusterIp "no-cluster-ip" Installation "The Service has no address of its own."
            "the names in `worker.services`",
        ServiceUnreachable "service-unreachable" Node "The `kubernetes` Service is out of reach."
            "kube-proxy of the node",
        PodsUnreachable "pods-unreachable" Node "Pods are out of reach at their own addresses."
            "the CNI plugin of the node",
        Missing "missing" Node "There is no such file."
            "the node, and `worker.volumes` and `worker.volumeMounts`",
        RequestLost "request-lost" Node "Small packets arrive, but a large request is not answered."
            "the MTU of the pod network",
        AnswerLost "answer-lost" Node "Small packets arrive, but a large answer does not."
            "the MTU of the pod network",
        Deadline "deadline" Node "The check did not end in time."
            "the load of the node, and `worker.timeoutSeconds`",
        Crashed "crashed" Installation "The check crashed."
            "the worker's log; please report it",
    }
}

failures! {
    /// In what way a worker failed without the report of a check.
    pub enum WorkerFailure {
        Pending "WorkerPending" Node "The worker did not start in time."
            "the events of the worker pod: usually the CNI plugin or the kubelet of the node",
        Timeout "Timeout" Node "The worker did not end in time."
            "the worker's log, the load of the node, and `worker.timeoutSeconds`",
        NotEnded "WorkerNotEnded" Node "The kubelet did not end a worker that was deleted."
            "the kubelet of the node",
        Failed "WorkerFailed" Node "The worker or an init container exited with an error and without a report."
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

/// The faults of the installation, each by one word. There are few, so each can have a series in the metrics.
pub fn installation_faults() -> impl Iterator<Item = &'static str> {
    let workers = WorkerFailure::ALL.iter().filter(|failure| failure.blame() == Blame::Installation);
    let checks = Kind::ALL.iter().filter(|kind| kind.blame() == Blame::Installation);
    workers.map(|failure| failure.word()).chain(checks.map(|kind| kind.name()))
}

/// The fault of the installation behind the cause that a node shows; `None` if it has another cause. The cause of a failed
/// check begins with the name of the check: `KubernetesForbidden`.
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

/// The failure behind the reason for which a container waits; `None` if it is ordinary waiting.
#[must_use]
pub fn waiting_failure(reason: &str) -> Option<WorkerFailure> {
    WAITING_REASONS.iter().find(|(known, _)| *known == reason).map(|(_, failure)| *failure)
}

/// Whose fault it is that a container waits for this reason; `None` if it is ordinary waiting.
#[must_use]
pub fn waiting_blame(reason: &str) -> Option<Blame> {
    waiting_failure(reason).map(WorkerFailure::blame)
}

/// The kind of a failure as it is in a report. The image of a worker may be of another version or somebody else's, so
/// it can be a word that is not in the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ReportedKind {
    /// One of the table.
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

    /// Whose fault it is: what is not known may be the node's.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Known(kind) => kind.blame(),
            Self::Foreign(_) => Blame::Node,
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
    fn a_word_that_is_not_in_the_table_is_kept_and_may_be_the_nodes_fault() {
        let foreign: ReportedKind = serde_json::from_str(r#""gpu-lost""#).unwrap();
        assert_eq!((foreign.to_string().as_str(), foreign.blame()), ("gpu-lost", Blame::Node));
        assert_eq!(serde_json::to_string(&foreign).unwrap(), r#""gpu-lost""#);
    }

    #[test]
    fn the_node_decides_before_the_cluster_and_the_cluster_before_the_installation() {
        assert!(Blame::Node < Blame::Cluster && Blame::Cluster < Blame::Installation);
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

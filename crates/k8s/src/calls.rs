//! Every request that we ever send. Requests are built from this list and permissions are printed from it, so the two
//! cannot drift apart.

use knr_core::config::Config;

/// What is done to a resource, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Be told of changes.
    Watch,
    /// Make one.
    Create,
    /// Replace one.
    Update,
    /// Change one.
    Patch,
    /// Delete one.
    Delete,
}

impl Verb {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    pub(crate) const fn method(self) -> http::Method {
        match self {
            Self::Get | Self::List | Self::Watch => http::Method::GET,
            Self::Create => http::Method::POST,
            Self::Update => http::Method::PUT,
            Self::Patch => http::Method::PATCH,
            Self::Delete => http::Method::DELETE,
        }
    }
}

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The controller.
    Controller,
    /// A worker.
    Worker,
    /// A pod of the `DaemonSet`.
    Daemonset,
    /// What opens all gates when everything is uninstalled.
    Release,
    /// What tries an installation.
    Doctor,
}

/// Where the resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In no namespace, or in all of them.
    Cluster,
    /// In the namespace of the workers.
    Workers,
    /// In the namespace of the controller.
    Own,
    /// In the namespace of the lease.
    Lease,
    /// In the namespace where events about nodes are kept.
    NodeEvents,
    /// In the namespaces that the startup gates name.
    Gates,
}

/// When a request is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Always.
    Always,
    /// Several controllers may run.
    LeaderElection,
    /// Failed nodes are deleted.
    Deletion,
    /// Nodes that never had the gate are closed if nothing runs there.
    Backfill,
    /// There are startup gates.
    StartupGates,
}

impl When {
    /// Whether a configuration asks for it.
    #[must_use]
    pub fn is_asked_for(self, config: &Config) -> bool {
        match self {
            Self::Always => true,
            Self::LeaderElection => config.leader_election.enabled,
            Self::Deletion => config.node_management.delete_failed_nodes,
            Self::Backfill => config.node_management.backfill,
            Self::StartupGates => !config.gates.is_empty(),
        }
    }
}

/// What a request is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Who sends it.
    pub who: &'static [Who],
    /// What is done.
    pub verb: Verb,
    /// The API group; empty for the core.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The resource, and its part after a slash.
    pub resource: &'static str,
    /// Where.
    pub place: Place,
    /// When it is needed.
    pub when: When,
}

impl Rule {
    /// The resource without its part.
    pub(crate) fn plural(&self) -> &'static str {
        self.resource.split('/').next().unwrap_or(self.resource)
    }

    /// The part of the resource, such as `status`.
    pub(crate) fn part(&self) -> Option<&'static str> {
        self.resource.split_once('/').map(|(_, part)| part)
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident: $($who:ident)|+ => $verb:ident $group:literal $version:literal $resource:literal $place:ident $when:ident;)*) => {
        /// One kind of request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Call {
            $($(#[$doc])* $name,)*
        }

        impl Call {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it is made of.
            #[must_use]
            pub const fn rule(self) -> Rule {
                match self {
                    $(Self::$name => Rule {
                        who: &[$(Who::$who),+],
                        verb: Verb::$verb,
                        group: $group,
                        version: $version,
                        resource: $resource,
                        place: Place::$place,
                        when: When::$when,
                    },)*
                }
            }
        }
    };
}

calls! {
    /// Nodes at the start, after a broken watch, and single ones by name.
    ListNodes: Controller|Release|Doctor => List "" "v1" "nodes" Cluster Always;
    /// Nodes from then on.
    WatchNodes: Controller => Watch "" "v1" "nodes" Cluster Always;
    /// A pod of the `DaemonSet` looks at its own node.
    GetNode: Daemonset => Get "" "v1" "nodes" Cluster Always;
    /// A gate is opened or closed, a result recorded.
    PatchNode: Controller|Daemonset|Release => Patch "" "v1" "nodes" Cluster Always;
    /// The verdict as a condition.
    PatchNodeStatus: Controller|Daemonset|Release => Patch "" "v1" "nodes/status" Cluster Always;
    /// A node that failed for good is deleted.
    DeleteNode: Controller => Delete "" "v1" "nodes" Cluster Deletion;
    /// Workers at the start, and single ones by name.
    ListWorkers: Controller|Release|Doctor => List "" "v1" "pods" Workers Always;
    /// Workers from then on.
    WatchWorkers: Controller => Watch "" "v1" "pods" Workers Always;
    /// A worker is made.
    CreateWorker: Controller|Doctor => Create "" "v1" "pods" Workers Always;
    /// A worker is removed.
    DeleteWorker: Controller|Release|Doctor => Delete "" "v1" "pods" Workers Always;
    /// People are told.
    CreateEvent: Controller|Daemonset => Create "events.k8s.io" "v1" "events" NodeEvents Always;
    /// Init pods at the start.
    ListInitPods: Controller => List "" "v1" "pods" Gates StartupGates;
    /// Init pods from then on.
    WatchInitPods: Controller => Watch "" "v1" "pods" Gates StartupGates;
    /// What runs on a node that never had the gate.
    ListPodsOfNode: Controller => List "" "v1" "pods" Cluster Backfill;
    /// Karpenter's pools at the start, if there is Karpenter.
    ListPools: Controller|Daemonset => List "karpenter.sh" "v1" "nodepools" Cluster Always;
    /// Karpenter's pools from then on.
    WatchPools: Controller => Watch "karpenter.sh" "v1" "nodepools" Cluster Always;
    /// The claim of a node of Karpenter is looked at before it is deleted.
    GetClaim: Controller => Get "karpenter.sh" "v1" "nodeclaims" Cluster Deletion;
    /// A node of Karpenter is deleted by its claim.
    DeleteClaim: Controller => Delete "karpenter.sh" "v1" "nodeclaims" Cluster Deletion;
    /// The ledger of deletions is read.
    GetLedger: Controller => Get "" "v1" "configmaps" Own Deletion;
    /// The ledger is made.
    CreateLedger: Controller => Create "" "v1" "configmaps" Own Deletion;
    /// The ledger is written.
    UpdateLedger: Controller => Update "" "v1" "configmaps" Own Deletion;
    /// Whether the pods of an installation are ready, or gone.
    ListOwnPods: Release|Doctor => List "" "v1" "pods" Own Always;
    /// What the accounts of an installation may do.
    ReviewAccess: Doctor => Create "authorization.k8s.io" "v1" "subjectaccessreviews" Cluster Always;
    /// The lease is read.
    GetLease: Controller|Doctor => Get "coordination.k8s.io" "v1" "leases" Lease LeaderElection;
    /// The lease is watched by those who wait for it.
    WatchLease: Controller => Watch "coordination.k8s.io" "v1" "leases" Lease LeaderElection;
    /// The lease is made.
    CreateLease: Controller => Create "coordination.k8s.io" "v1" "leases" Lease LeaderElection;
    /// The lease is taken, renewed, given back.
    UpdateLease: Controller => Update "coordination.k8s.io" "v1" "leases" Lease LeaderElection;
    /// A Service that is to be checked is looked up.
    GetService: Worker|Daemonset => Get "" "v1" "services" Cluster Always;
    /// Its endpoints are listed.
    ListEndpoints: Worker|Daemonset => List "discovery.k8s.io" "v1" "endpointslices" Cluster Always;
}

impl Call {
    /// All that a configuration asks of somebody.
    pub fn needed(who: Who, config: &Config) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |call| {
            let rule = call.rule();
            rule.who.contains(&who) && rule.when.is_asked_for(config)
        })
    }

    /// A short name for metrics and messages: `patch nodes`.
    #[must_use]
    pub fn describe(self) -> String {
        let Rule { verb, group, resource, .. } = self.rule();
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let (plural, part) = resource
            .split_once('/')
            .map_or((resource, String::new()), |(plural, part)| (plural, format!("/{part}")));
        format!("{} {plural}{group}{part}", verb.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_configuration_asks_for_no_deletion_and_no_foreign_pods() {
        let needed: Vec<_> = Call::needed(Who::Controller, &Config::default()).collect();
        assert!(needed.contains(&Call::PatchNode) && needed.contains(&Call::UpdateLease));
        for call in
            [Call::DeleteNode, Call::DeleteClaim, Call::ListPodsOfNode, Call::ListInitPods, Call::GetLedger]
        {
            assert!(!needed.contains(&call), "{call:?}");
        }
    }

    #[test]
    fn a_worker_changes_nothing() {
        for call in Call::ALL.iter().filter(|call| call.rule().who.contains(&Who::Worker)) {
            assert!(matches!(call.rule().verb, Verb::Get | Verb::List), "{call:?}");
        }
    }

    #[test]
    fn calls_are_described_as_rbac_names_them() {
        assert_eq!(Call::PatchNodeStatus.describe(), "patch nodes/status");
        assert_eq!(Call::DeleteClaim.describe(), "delete nodeclaims.karpenter.sh");
    }
}

//! Every request that is ever sent. Requests are built from this list and permissions are printed from it, so the two
//! cannot drift apart.

use knr_core::config::Config;

/// An RBAC verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many objects.
    List,
    /// Receive changes.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Change an object.
    Patch,
    /// Delete an object.
    Delete,
}

impl Verb {
    /// Returns the verb as RBAC spells it.
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

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The controller.
    Controller,
    /// A worker.
    Worker,
    /// A pod of the `DaemonSet`.
    Daemonset,
    /// The job that opens all gates on uninstall.
    Release,
    /// The test of an installation.
    Doctor,
}

/// The location of a resource.
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
    /// In the namespace of events about nodes.
    NodeEvents,
    /// In the namespaces that the startup gates name.
    Gates,
}

/// When a request is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Always.
    Always,
    /// Leader election is enabled.
    LeaderElection,
    /// Failed nodes are deleted.
    Deletion,
    /// Idle nodes that never had the gate are closed.
    Backfill,
    /// There are startup gates.
    StartupGates,
}

impl When {
    /// Returns whether a configuration asks for it.
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

/// The parts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The senders of the request.
    pub who: &'static [Who],
    /// The verb.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version of the API group.
    pub version: &'static str,
    /// The resource, with its subresource after a slash.
    pub resource: &'static str,
    /// The location of the resource.
    pub place: Place,
    /// When the request is needed.
    pub when: When,
}

impl Rule {
    /// Returns the resource without its subresource.
    pub(crate) fn plural(&self) -> &'static str {
        self.resource.split('/').next().unwrap_or(self.resource)
    }

    /// Returns the subresource, such as `status`.
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
            /// All calls.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the parts of the request.
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
    /// Lists nodes at the start and after a broken watch, and single ones by name.
    ListNodes: Controller|Release|Doctor => List "" "v1" "nodes" Cluster Always;
    /// Watches nodes from then on.
    WatchNodes: Controller => Watch "" "v1" "nodes" Cluster Always;
    /// A pod of the `DaemonSet` reads its own node.
    GetNode: Daemonset => Get "" "v1" "nodes" Cluster Always;
    /// Opens or closes a gate, or records a result.
    PatchNode: Controller|Daemonset|Release => Patch "" "v1" "nodes" Cluster Always;
    /// Sets the condition with the verdict.
    PatchNodeStatus: Controller|Daemonset|Release => Patch "" "v1" "nodes/status" Cluster Always;
    /// Deletes a node whose attempts are used up.
    DeleteNode: Controller => Delete "" "v1" "nodes" Cluster Deletion;
    /// Lists workers at the start, and single ones by name.
    ListWorkers: Controller|Release|Doctor => List "" "v1" "pods" Workers Always;
    /// Watches workers from then on.
    WatchWorkers: Controller => Watch "" "v1" "pods" Workers Always;
    /// Creates a worker.
    CreateWorker: Controller|Doctor => Create "" "v1" "pods" Workers Always;
    /// Deletes a worker.
    DeleteWorker: Controller|Release|Doctor => Delete "" "v1" "pods" Workers Always;
    /// Creates a Kubernetes event for operators.
    CreateEvent: Controller|Daemonset => Create "events.k8s.io" "v1" "events" NodeEvents Always;
    /// Lists init pods at the start.
    ListInitPods: Controller => List "" "v1" "pods" Gates StartupGates;
    /// Watches init pods from then on.
    WatchInitPods: Controller => Watch "" "v1" "pods" Gates StartupGates;
    /// Lists what runs on a node that never had the gate.
    ListPodsOfNode: Controller => List "" "v1" "pods" Cluster Backfill;
    /// Lists Karpenter's pools at the start, if Karpenter is installed.
    ListPools: Controller|Daemonset => List "karpenter.sh" "v1" "nodepools" Cluster Always;
    /// Watches Karpenter's pools from then on.
    WatchPools: Controller => Watch "karpenter.sh" "v1" "nodepools" Cluster Always;
    /// Reads the claim of a Karpenter node before it is deleted.
    GetClaim: Controller => Get "karpenter.sh" "v1" "nodeclaims" Cluster Deletion;
    /// Deletes a Karpenter node through its claim.
    DeleteClaim: Controller => Delete "karpenter.sh" "v1" "nodeclaims" Cluster Deletion;
    /// Reads the ledger of deletions.
    GetLedger: Controller => Get "" "v1" "configmaps" Own Deletion;
    /// Creates the ledger.
    CreateLedger: Controller => Create "" "v1" "configmaps" Own Deletion;
    /// Replaces the ledger.
    UpdateLedger: Controller => Update "" "v1" "configmaps" Own Deletion;
    /// Lists the pods of an installation, to see whether they are ready or gone.
    ListOwnPods: Release|Doctor => List "" "v1" "pods" Own Always;
    /// Checks the permissions of an installation's service accounts.
    ReviewAccess: Doctor => Create "authorization.k8s.io" "v1" "subjectaccessreviews" Cluster Always;
    /// Reads the lease.
    GetLease: Controller|Doctor => Get "coordination.k8s.io" "v1" "leases" Lease LeaderElection;
    /// Watches the lease while this process is a standby.
    WatchLease: Controller => Watch "coordination.k8s.io" "v1" "leases" Lease LeaderElection;
    /// Creates the lease.
    CreateLease: Controller => Create "coordination.k8s.io" "v1" "leases" Lease LeaderElection;
    /// Takes, renews and releases the lease.
    UpdateLease: Controller => Update "coordination.k8s.io" "v1" "leases" Lease LeaderElection;
    /// Reads a Service that is checked.
    GetService: Worker|Daemonset => Get "" "v1" "services" Cluster Always;
    /// Lists the endpoints of a Service.
    ListEndpoints: Worker|Daemonset => List "discovery.k8s.io" "v1" "endpointslices" Cluster Always;
}

impl Call {
    /// Returns the calls that `who` needs for a configuration.
    pub fn needed(who: Who, config: &Config) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |call| {
            let rule = call.rule();
            rule.who.contains(&who) && rule.when.is_asked_for(config)
        })
    }

    /// Returns a short name for messages: `patch nodes`.
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

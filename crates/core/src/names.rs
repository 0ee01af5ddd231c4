//! Every name that other programs and people see on Kubernetes objects. No other file spells one out.

/// Taint of the verification gate.
pub const UNVERIFIED_TAINT: &str = "node-ready/unverified";
/// Its value.
pub const UNVERIFIED_VALUE: &str = "true";
/// Label of a node that passed.
pub const VERIFIED_LABEL: &str = "node-ready/verified";
/// Its value.
pub const VERIFIED_VALUE: &str = "true";
/// Annotation on the node: what we know of it, as small versioned JSON.
pub const STATE_ANNOTATION: &str = "node-ready/state";
/// Annotation by which a person keeps our hands off one node.
pub const PAUSED_ANNOTATION: &str = "node-ready/paused";
/// Annotation by which a person asks for an attempt at once. Any value will do.
pub const RETRY_ANNOTATION: &str = "node-ready/retry";
/// Condition on the node: the verdict for people and other controllers.
pub const CONDITION: &str = "NodeReadyVerified";

/// Taint of the startup gate.
pub const STARTUP_TAINT: &str = "startup.k8s.io/initializing";
/// Its value.
pub const STARTUP_VALUE: &str = "wait";
/// Label of init pods, which open the startup gate.
pub const INIT_POD_LABEL: &str = "startup.k8s.io/component";
/// Its value.
pub const INIT_POD_VALUE: &str = "init";
/// Annotation by which an init pod says that it is done, whatever its readiness.
pub const READY_ANNOTATION: &str = "startup.k8s.io/ready";
/// Annotation on the node: when the startup gate opened, in unix seconds.
pub const COMPLETED_ANNOTATION: &str = "startup.k8s.io/completedAt";

/// The verification gate, where gates are named.
pub const VERIFICATION_GATE: &str = "verification";

/// Labels of a worker pod.
pub const WORKER_LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "kube-node-ready"), ("app.kubernetes.io/component", "worker")];
/// Labels of a pod that tries whether a worker would run. They are others, so that no controller takes it for a worker.
pub const TRIAL_LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "kube-node-ready"), ("app.kubernetes.io/component", "trial")];
/// The container of a worker pod that runs the checks.
pub const WORKER_CONTAINER: &str = "worker";
/// Annotation on a worker: the name of its node, which may be too long for a label.
pub const WORKER_NODE_ANNOTATION: &str = "node-ready/node";
/// Annotation on a worker: the UID of its node.
pub const WORKER_NODE_UID_ANNOTATION: &str = "node-ready/node-uid";
/// Annotation on a worker: the boot of its node when the worker was made.
pub const WORKER_BOOT_ANNOTATION: &str = "node-ready/boot-id";
/// Annotation on a worker: its number in the life of the node.
pub const WORKER_SERIAL_ANNOTATION: &str = "node-ready/serial";
/// Annotation on a worker: which attempt it is.
pub const WORKER_ATTEMPT_ANNOTATION: &str = "node-ready/attempt";
/// Annotation on a worker: what its result is for.
pub const WORKER_PURPOSE_ANNOTATION: &str = "node-ready/purpose";
/// Annotation on a worker: the policy that asked for it.
pub const WORKER_POLICY_ANNOTATION: &str = "node-ready/policy";
/// Annotation on a worker: a fingerprint of what it was to check.
pub const WORKER_REQUIRES_ANNOTATION: &str = "node-ready/requires";
/// Who writes, in the managed fields of objects and in events.
pub const MANAGER: &str = "kube-node-ready";
/// The `ConfigMap` that says which nodes were deleted lately.
pub const LEDGER: &str = "kube-node-ready-deletions";
/// Service account of the controller.
pub const CONTROLLER_ACCOUNT: &str = "kube-node-ready-controller";

/// A worker pod is called this and a hash of its node's UID.
pub const WORKER_PREFIX: &str = "node-ready-worker-";
/// A pod that tries whether a worker would run is called this and a random number.
pub const TRIAL_PREFIX: &str = "node-ready-trial-";
/// Environment variable in which a worker gets its [`CheckPlan`](crate::config::CheckPlan) as JSON.
pub const CHECKS_VARIABLE: &str = "KUBE_NODE_READY_CHECKS";
/// Environment variable with the name of the node on which a worker runs.
pub const NODE_NAME_VARIABLE: &str = "NODE_NAME";

/// Labels of control plane nodes.
pub const CONTROL_PLANE_LABELS: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// The label with the operating system of a node. Its kubelet sets it.
pub const OS_LABEL: &str = "kubernetes.io/os";
/// The value of that label on nodes where workers can run.
pub const LINUX: &str = "linux";
/// Karpenter's label with the name of the `NodePool` of a node.
pub const KARPENTER_POOL_LABEL: &str = "karpenter.sh/nodepool";
/// Karpenter's label for a node on which it has put the startup taints; before that it would restore them.
pub const KARPENTER_REGISTERED_LABEL: &str = "karpenter.sh/registered";

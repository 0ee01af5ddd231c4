//! Every name that is visible on Kubernetes objects. No other file spells one out.

/// Taint of the verification gate.
pub const UNVERIFIED_TAINT: &str = "node-ready/unverified";
/// Its value.
pub const UNVERIFIED_VALUE: &str = "true";
/// Label of a node that passed.
pub const VERIFIED_LABEL: &str = "node-ready/verified";
/// Its value.
pub const VERIFIED_VALUE: &str = "true";
/// Annotation on the node: its recorded state, as small versioned JSON.
pub const STATE_ANNOTATION: &str = "node-ready/state";
/// Annotation by which an operator excludes one node from all actions of the controller.
pub const PAUSED_ANNOTATION: &str = "node-ready/paused";
/// Annotation by which an operator requests an immediate attempt. It may have any value.
pub const RETRY_ANNOTATION: &str = "node-ready/retry";
/// Condition on the node: the verdict, for operators and other controllers.
pub const CONDITION: &str = "NodeReadyVerified";

/// Taint of the startup gate.
pub const STARTUP_TAINT: &str = "startup.k8s.io/initializing";
/// Its value.
pub const STARTUP_VALUE: &str = "wait";
/// Label of init pods, which open the startup gate.
pub const INIT_POD_LABEL: &str = "startup.k8s.io/component";
/// Its value.
pub const INIT_POD_VALUE: &str = "init";
/// Annotation by which an init pod reports that it is done, regardless of its readiness.
pub const READY_ANNOTATION: &str = "startup.k8s.io/ready";
/// Annotation on the node: when the startup gate opened, in unix seconds.
pub const COMPLETED_ANNOTATION: &str = "startup.k8s.io/completedAt";

/// The name of the verification gate.
pub const VERIFICATION_GATE: &str = "verification";

/// Labels of a worker pod.
pub const WORKER_LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "kube-node-ready"), ("app.kubernetes.io/component", "worker")];
/// Labels of a trial pod, which tests whether a worker would run. They differ from [`WORKER_LABELS`], so that no
/// controller takes the pod for a worker.
pub const TRIAL_LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "kube-node-ready"), ("app.kubernetes.io/component", "trial")];
/// The container of a worker pod that runs the checks.
pub const WORKER_CONTAINER: &str = "worker";
/// Annotation on a worker: the name of its node, which may be too long for a label.
pub const WORKER_NODE_ANNOTATION: &str = "node-ready/node";
/// Annotation on a worker: the UID of its node.
pub const WORKER_NODE_UID_ANNOTATION: &str = "node-ready/node-uid";
/// Annotation on a worker: the boot of its node when the worker was created.
pub const WORKER_BOOT_ANNOTATION: &str = "node-ready/boot-id";
/// Annotation on a worker: its serial number among the workers of the node.
pub const WORKER_SERIAL_ANNOTATION: &str = "node-ready/serial";
/// Annotation on a worker: the number of the attempt.
pub const WORKER_ATTEMPT_ANNOTATION: &str = "node-ready/attempt";
/// Annotation on a worker: what its result is for.
pub const WORKER_PURPOSE_ANNOTATION: &str = "node-ready/purpose";
/// Annotation on a worker: the policy that it was created for.
pub const WORKER_POLICY_ANNOTATION: &str = "node-ready/policy";
/// Annotation on a worker: a fingerprint of what it has to check.
pub const WORKER_REQUIRES_ANNOTATION: &str = "node-ready/requires";
/// The writer, in the managed fields of objects and in events.
pub const MANAGER: &str = "kube-node-ready";
/// The `ConfigMap` that lists the nodes that were deleted recently.
pub const LEDGER: &str = "kube-node-ready-deletions";
/// Service account of the controller.
pub const CONTROLLER_ACCOUNT: &str = "kube-node-ready-controller";

/// The name of a worker pod is this prefix and a hash of its node's UID.
pub const WORKER_PREFIX: &str = "node-ready-worker-";
/// The name of a trial pod is this prefix and a random number.
pub const TRIAL_PREFIX: &str = "node-ready-trial-";
/// Environment variable that carries the [`CheckPlan`](crate::config::CheckPlan) of a worker as JSON.
pub const CHECKS_VARIABLE: &str = "KUBE_NODE_READY_CHECKS";
/// Environment variable with the name of the node on which a worker runs.
pub const NODE_NAME_VARIABLE: &str = "NODE_NAME";

/// Labels of control plane nodes.
pub const CONTROL_PLANE_LABELS: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// The label with the operating system of a node. The kubelet sets it.
pub const OS_LABEL: &str = "kubernetes.io/os";
/// The value of that label on nodes where workers can run.
pub const LINUX: &str = "linux";
/// Karpenter's label with the name of the `NodePool` of a node.
pub const KARPENTER_POOL_LABEL: &str = "karpenter.sh/nodepool";
/// Karpenter's label for a node that it has registered. Until then it would restore startup taints that are removed.
pub const KARPENTER_REGISTERED_LABEL: &str = "karpenter.sh/registered";

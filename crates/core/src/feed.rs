//! Feeds: the kinds of objects that are watched, with one feed for each watch.
//!
//! To watch a new kind:
//!
//! | in | add |
//! |---|---|
//! | this file | an [`ObjectKind`] with its two properties, and its feeds in [`Feed::all`] |
//! | [`crate::world`] | its facts, which feed each of them comes from (`Fact::feed`), and a file that learns them |
//! | `knr-k8s` | one implementation of `Observed`, see `watch/kinds.rs` there |
//! | `knr-sim` | an `Object` of its API server, and how it is listed and watched, see `api.rs` and `api/read.rs` there |
//!
//! The compiler names what is missing. Everything else is derived from [`Feed::all`]: which watches run, what has to be known before anything is decided,
//! what is forgotten when a watch is no longer needed, health, metrics and logs.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::config::Selector;
use crate::policy::Policies;
use crate::view::InitPodView;

/// A kind of object that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    Nodes,
    /// Worker pods.
    Workers,
    /// Pods that startup gates wait for.
    InitPods,
    /// Karpenter NodePools.
    Pools,
}

impl ObjectKind {
    /// Its name in metrics, logs and health.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Workers => "workers",
            Self::InitPods => "init-pods",
            Self::Pools => "nodepools",
        }
    }

    /// Returns whether nothing is decided before this kind is known, and the controller is unhealthy if it cannot watch
    /// it. Pools concern only Karpenter nodes, and those are not closed until their pools are known.
    #[must_use]
    pub const fn is_essential(self) -> bool {
        match self {
            Self::Nodes | Self::Workers | Self::InitPods => true,
            Self::Pools => false,
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The objects of one watch: all objects of a kind, or the pods of one namespace that a selector matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Feed {
    kind: ObjectKind,
    pods: Option<Arc<Pods>>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pods {
    namespace: String,
    selector: Selector,
}

impl Feed {
    /// All feeds that the policies need. Init pods have one feed for each namespace and selector, so that no watch is
    /// wider than a gate needs.
    #[must_use]
    pub fn all(policies: &Policies) -> BTreeSet<Self> {
        let whole = [ObjectKind::Nodes, ObjectKind::Workers, ObjectKind::Pools].map(Self::of);
        whole.into_iter().chain(Self::of_init_pods(policies)).collect()
    }

    /// The feeds of init pods.
    #[must_use]
    pub fn of_init_pods(policies: &Policies) -> BTreeSet<Self> {
        let required = policies.iter().flat_map(|policy| policy.pod_requirements());
        required
            .flat_map(|pods| pods.namespaces.iter().map(|namespace| (namespace, &pods.selector)))
            .map(|(namespace, selector)| Self::init_pods(namespace, selector))
            .collect()
    }

    /// All objects of a kind.
    #[must_use]
    pub const fn of(kind: ObjectKind) -> Self {
        Self { kind, pods: None }
    }

    /// The pods of one namespace that a selector matches.
    #[must_use]
    pub fn init_pods(namespace: &str, selector: &Selector) -> Self {
        let pods = Pods { namespace: namespace.to_owned(), selector: selector.clone() };
        Self { kind: ObjectKind::InitPods, pods: Some(Arc::new(pods)) }
    }

    /// The kind of its objects.
    #[must_use]
    pub const fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// The namespace that it is restricted to, if any.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.pods.as_ref().map(|pods| pods.namespace.as_str())
    }

    /// The selector that it is restricted to, if any.
    #[must_use]
    pub fn selector(&self) -> Option<&Selector> {
        self.pods.as_ref().map(|pods| &pods.selector)
    }

    /// Returns whether it shows this pod.
    #[must_use]
    pub fn shows(&self, pod: &InitPodView) -> bool {
        let is_shown =
            |pods: &Arc<Pods>| pods.namespace == pod.namespace && pods.selector.matches(&pod.labels);
        self.kind == ObjectKind::InitPods && self.pods.as_ref().is_some_and(is_shown)
    }
}

impl fmt::Display for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.pods.as_ref().map_or(Ok(()), |pods| write!(f, " ({} in {})", pods.selector, pods.namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn shown(yaml: &str) -> Vec<String> {
        Feed::all(&Policies::from(&Config::parse(yaml).unwrap())).iter().map(ToString::to_string).collect()
    }

    /// A gate that differs from the default one in everything but its pods, which are given.
    fn gate(pods: &str) -> String {
        format!("{{name: b, taint: {{key: b, effect: NoSchedule}}, completedAnnotation: c, {pods}}}")
    }

    #[test]
    fn there_is_one_feed_for_each_namespace_and_selector() {
        assert_eq!(shown(""), ["nodes", "workers", "nodepools"]);
        let default = "init-pods (startup.k8s.io/component=init in kube-system)";
        for (gates, expected) in [
            ("{name: a}".to_owned(), vec![default]),
            (format!("{{name: a}}, {}", gate("minimumHoldSeconds: 5")), vec![default]),
            (
                format!("{{name: a}}, {}", gate("podSelector: x=y")),
                vec![default, "init-pods (x=y in kube-system)"],
            ),
            (
                format!("{{name: a}}, {}", gate("podSelector: x=y, namespaces: [one, two]")),
                vec![default, "init-pods (x=y in one)", "init-pods (x=y in two)"],
            ),
        ] {
            let mut feeds = shown(&format!("gates: [{gates}]"));
            feeds.retain(|feed| feed.starts_with("init-pods"));
            feeds.sort_unstable();
            assert_eq!(feeds, expected, "{gates}");
        }
    }
}

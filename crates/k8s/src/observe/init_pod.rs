//! Init pods, which startup gates wait for.

use knr_core::texts::Texts;
use knr_core::view::InitPodView;
use serde::{Deserialize, Deserializer};

use super::condition::{SlimCondition, of_type};
use super::{ContainerStatus, Meta};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimInitPod {
    pub(crate) metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(rename = "conditions", deserialize_with = "readiness")]
    readiness: Option<SlimCondition>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

fn readiness<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SlimCondition>, D::Error> {
    of_type("Ready", deserializer)
}

impl SlimInitPod {
    /// Returns the pod, if it is on a node.
    pub(crate) fn view(self) -> Option<InitPodView> {
        let Self { metadata, spec, status } = self;
        if spec.node_name.is_empty() {
            return None;
        }
        Some(InitPodView {
            uid: metadata.uid.as_str().into(),
            version: metadata.version(),
            host: spec.node_name.into(),
            created: metadata.created(),
            ready: status.readiness.is_some_and(|readiness| readiness.status == "True"),
            containers: containers(status.container_statuses.as_deref().unwrap_or_default()),
            leaving: metadata.deletion_timestamp.is_some(),
            namespace: metadata.namespace,
            name: metadata.name,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.iter().flat_map(Texts::iter).map(owned).collect(),
        })
    }
}

fn owned((name, text): (&str, &str)) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

/// Returns the identifiers of the containers, which change with every start.
fn containers(statuses: &[ContainerStatus]) -> String {
    let one = |status: &ContainerStatus| format!("{}#{}", status.container_id, status.restart_count);
    statuses.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample;
    use super::*;

    #[test]
    fn a_pod_is_seen_once_it_is_on_a_node() {
        let mut pod = json!({
            "metadata": { "name": "p", "namespace": "kube-system", "uid": "p1", "resourceVersion": "4",
                          "labels": { "startup.k8s.io/component": "init" } },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "containerStatuses": [{ "name": "c", "containerID": "containerd://1", "restartCount": 2 }],
            },
        });
        assert!(sample::<SlimInitPod>(pod.clone()).view().is_none());
        pod["spec"] = json!({ "nodeName": "n1" });
        let view = sample::<SlimInitPod>(pod.clone()).view().unwrap();
        assert!(view.ready);
        assert_eq!((view.host.as_str(), view.containers.as_str()), ("n1", "containerd://1#2"));
        pod["status"]["conditions"][0]["status"] = json!("False");
        assert!(!sample::<SlimInitPod>(pod).view().unwrap().ready);
    }
}

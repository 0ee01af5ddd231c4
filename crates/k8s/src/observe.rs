//! Kubernetes objects as the rules see them. Only the fields that matter are read. The rest of an object, above all its
//! images and managed fields, is never kept.

mod condition;
mod init_pod;
mod node;
mod pool;
mod worker;

use jiff::Timestamp;
use knr_core::ids::Version;
use knr_core::texts::Texts;
use serde::Deserialize;
use serde::de::IgnoredAny;

pub(crate) use init_pod::SlimInitPod;
pub(crate) use node::SlimNode;
pub(crate) use pool::SlimPool;
pub(crate) use worker::{SlimWorker, purpose_word};

/// The metadata that matters.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) creation_timestamp: Option<Timestamp>,
    /// Not parsed: the client that deletes an object chooses the grace period, so the time may be out of range.
    pub(crate) deletion_timestamp: Option<IgnoredAny>,
    pub(crate) labels: Option<Texts>,
    pub(crate) annotations: Option<Texts>,
    pub(crate) owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Meta {
    pub(crate) fn version(&self) -> Version {
        version(&self.resource_version)
    }

    pub(crate) fn created(&self) -> Timestamp {
        self.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }
}

/// Resource versions are increasing numbers. One that is not a number counts as the oldest.
pub(crate) fn version(text: &str) -> Version {
    Version(text.parse().unwrap_or(0))
}

/// A container as its kubelet reports it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    #[serde(rename = "containerID")]
    pub(crate) container_id: String,
    pub(crate) restart_count: i32,
    pub(crate) state: Option<ContainerState>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<WaitingState>,
    pub(crate) running: Option<IgnoredAny>,
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WaitingState {
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[cfg(test)]
pub(crate) fn sample<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

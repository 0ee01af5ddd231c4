//! The product's configuration in a test.

use serde_json::{Map, Value, json};

use crate::cluster::NAMESPACE;
use crate::product;

/// A configuration for the product. It starts with values that suit a test: the image under test, and short timeouts.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    value: Value,
}

impl Config {
    /// The defaults for tests, on top of the product's own.
    #[must_use]
    pub fn new() -> Self {
        Self {
            value: json!({
                "worker": {
                    "image": { "repository": product::REPOSITORY, "tag": product::TAG, "pullPolicy": "Never" },
                    "namespace": NAMESPACE,
                    "timeoutSeconds": 20,
                    "pendingTimeoutSeconds": 30,
                    "checkTimeoutSeconds": 3,
                },
                "reconciliation": { "intervalSeconds": 5, "retryDelaySeconds": 1, "maxRetryDelaySeconds": 4 },
                // As short as a busy machine with two cores can manage.
                "leaderElection": { "leaseDurationSeconds": 6, "renewDeadlineSeconds": 4, "retryPeriodSeconds": 1 },
                "logging": { "level": "debug", "format": "json" },
                "kubernetes": { "requestTimeoutSeconds": 5 },
            }),
        }
    }

    /// Sets a key, which is written with dots: `worker.timeoutSeconds`.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let mut place = &mut self.value;
        for part in key.split('.') {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[part];
        }
        *place = value.into();
        self
    }

    /// As values of the chart.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// As a file: JSON, which is also YAML.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:#}\n", self.value)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_accepts_what_tests_start_with() {
        let config = knr_core::config::Config::parse(&Config::new().text()).unwrap();
        assert_eq!(config.worker.namespace, "kube-node-ready");
        assert_eq!(config.worker.timeout_seconds, 20);
    }

    #[test]
    fn a_key_is_set_wherever_it_is() {
        let config = Config::new()
            .set("worker.timeoutSeconds", 7)
            .set("nodeManagement.onReboot", "close")
            .set("gates", json!([{ "name": "cni" }]));
        let config = knr_core::config::Config::parse(&config.text()).unwrap();
        assert_eq!(config.worker.timeout_seconds, 7);
        assert_eq!(config.worker.namespace, "kube-node-ready", "its neighbours stay");
        assert_eq!(config.gates[0].name, "cni");
    }
}

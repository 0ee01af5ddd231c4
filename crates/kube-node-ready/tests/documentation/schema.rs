//! Keys in the values of the chart: Helm itself checks the rest.

use knr_core::config::Config;
use serde_json::Value;

/// The schema of the values.
pub(crate) struct Values {
    schema: Value,
}

impl Values {
    pub(crate) fn new() -> Self {
        let text = crate::read("deploy/helm/kube-node-ready/values.schema.json");
        Self { schema: serde_json::from_str(&text).unwrap() }
    }

    /// Finds the first mistake in values.
    pub(crate) fn wrong(&self, values: &Value) -> Option<String> {
        if let Some(key) = self.unknown(&self.schema, values) {
            return Some(format!("the chart has no value {key}, nor is it a key of the configuration"));
        }
        // JSON is YAML.
        let config = values.pointer("/controller/config")?.to_string();
        Config::parse(&config).err().map(|problems| problems.to_string())
    }

    /// Returns true if the chart has such a value: `controller.replicas`.
    pub(crate) fn has(&self, path: &str) -> bool {
        let nested = path.rsplit('.').fold(Value::Null, |below, key| serde_json::json!({ key: below }));
        self.unknown(&self.schema, &nested).is_none()
    }

    /// The first key that is not in a schema.
    fn unknown(&self, schema: &Value, values: &Value) -> Option<String> {
        let values = values.as_object()?;
        let schemas = self.expanded(schema);
        values.iter().find_map(|(key, value)| {
            let below = schemas.iter().find_map(|schema| schema["properties"].get(key));
            let is_open = schemas.iter().all(|schema| schema.get("properties").is_none());
            match below {
                None if is_open => None,
                None => Some(key.clone()),
                Some(below) => self.unknown(below, value).map(|deeper| format!("{key}.{deeper}")),
            }
        })
    }

    /// A schema with everything that it refers to.
    fn expanded<'s>(&'s self, schema: &'s Value) -> Vec<&'s Value> {
        let referred =
            schema["$ref"].as_str().and_then(|path| self.schema.pointer(path.trim_start_matches('#')));
        let parts = schema["allOf"].as_array().into_iter().flatten().chain(referred);
        std::iter::once(schema)
            .filter(|schema| schema.get("$ref").is_none())
            .chain(parts.flat_map(|part| self.expanded(part)))
            .collect()
    }
}

#[test]
fn values_are_found_at_every_depth() {
    let values = Values::new();
    for path in [
        "uninstall",
        "controller.replicas",
        "image.tag",
        "controller.config.worker.image.tag",
        "controller.config.limits.deletion",
    ] {
        assert!(values.has(path), "{path}");
    }
    for path in [
        "uninstal",
        "controller.replica",
        "image.tags",
        "controller.config.worker.image.tags",
        "controller.config.limits.delete",
    ] {
        assert!(!values.has(path), "{path}");
    }
}

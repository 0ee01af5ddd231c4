//! Karpenter's pools.

use knr_core::view::PoolView;
use serde::Deserialize;

use super::Meta;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimPool {
    pub(crate) metadata: Meta,
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    template: Template,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Template {
    spec: TemplateSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplateSpec {
    startup_taints: Option<Vec<SlimTaint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimTaint {
    key: String,
}

impl From<SlimPool> for PoolView {
    fn from(pool: SlimPool) -> Self {
        let taints = pool.spec.template.spec.startup_taints.unwrap_or_default();
        Self { name: pool.metadata.name, startup_taints: taints.into_iter().map(|taint| taint.key).collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample;
    use super::*;

    #[test]
    fn the_startup_taints_are_read() {
        let taints = json!([{ "key": "node-ready/unverified", "value": "true", "effect": "NoSchedule" }]);
        let pool = json!({
            "metadata": { "name": "p" }, "spec": { "template": { "spec": { "startupTaints": taints } } },
        });
        let view = PoolView::from(sample::<SlimPool>(pool));
        assert_eq!(view.startup_taints.into_iter().collect::<Vec<_>>(), ["node-ready/unverified"]);
        let none = PoolView::from(sample::<SlimPool>(json!({ "metadata": { "name": "p" } })));
        assert!(none.startup_taints.is_empty());
    }
}

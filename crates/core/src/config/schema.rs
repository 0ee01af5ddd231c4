//! The JSON Schema of the configuration.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::Config;

impl Config {
    /// The JSON Schema of a configuration file, for editors and for the validation in [`Config::parse`].
    #[must_use]
    pub fn schema() -> Value {
        let generated =
            SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Self>().to_value();
        // Humans read the file too, so the title comes first.
        let mut schema = Map::new();
        schema.insert("$schema".to_owned(), generated["$schema"].clone());
        schema.insert("title".to_owned(), "Configuration of kube-node-ready".into());
        for (keyword, value) in generated.as_object().into_iter().flatten() {
            schema.entry(keyword).or_insert_with(|| value.clone());
        }
        Value::Object(schema)
    }
}

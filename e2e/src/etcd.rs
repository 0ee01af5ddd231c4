//! Changes to etcd that bypass the API server.

use std::path::PathBuf;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use fs_err as fs;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cluster::Cluster;

const ADDRESS_FLAG: &str = "--advertise-client-urls=";

impl Cluster {
    /// The latest resource version in the cluster.
    pub fn version(&self) -> Result<u64> {
        let nodes = self.api().get("/api/v1/nodes?limit=1")?;
        let version = &nodes["metadata"]["resourceVersion"];
        version
            .as_str()
            .and_then(|text| text.parse().ok())
            .with_context(|| format!("{version} is no version"))
    }

    /// Writes until the cluster reaches at least this version.
    pub fn advance_to(&self, version: u64) -> Result<()> {
        let (name, maps) = ("clock", "/api/v1/namespaces/default/configmaps");
        let clock = format!("{maps}/{name}");
        if self.api().find(&clock)?.is_none() {
            self.api().create(maps, &json!({ "metadata": { "name": name } }))?;
        }
        for tick in self.version()?..version {
            self.api().patch(&clock, &json!({ "data": { "tick": tick.to_string() } }))?;
        }
        Ok(())
    }

    /// The first event within a second of a watch on nodes that starts at this version, or null.
    pub fn hear_from(&self, version: u64) -> Result<Value> {
        let watch = format!("/api/v1/nodes?watch=1&timeoutSeconds=1&resourceVersion={version}");
        let heard = self.api().get(&watch)?;
        Ok(if heard == "" { Value::Null } else { heard })
    }

    /// Compacts etcd: a watch can no longer start at an earlier version.
    pub fn compact(&self) -> Result<()> {
        let etcd = Api::open(&self.write_etcd_config()?)?;
        etcd.create("/v3/kv/compaction", &json!({ "revision": self.version()?, "physical": true }))?;
        Ok(())
    }

    /// Writes a kubeconfig for etcd: the client needs the same data for it. The address comes from etcd's command line.
    fn write_etcd_config(&self) -> Result<PathBuf> {
        let found = self.components()?.into_iter().find(|component| component.name == "etcd");
        let pid = found.and_then(|etcd| etcd.pid).context("etcd is not running")?;
        let flags = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
        let server = flags.split('\0').find_map(|flag| flag.strip_prefix(ADDRESS_FLAG));
        let secrets = self.folder().join("pki/etcd");
        let encoded = |file: &str| anyhow::Ok(BASE64_STANDARD.encode(fs::read(secrets.join(file))?));
        let config = json!({
            "clusters": [{ "cluster": {
                "server": server.context("etcd was not told where to listen")?,
                "certificate-authority-data": encoded("ca.crt")?,
            }}],
            "users": [{ "user": {
                "client-certificate-data": encoded("client.crt")?, "client-key-data": encoded("client.key")?,
            }}],
        });
        let path = secrets.join("kubeconfig");
        fs::write(&path, config.to_string())?;
        Ok(path)
    }
}

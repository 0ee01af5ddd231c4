//! What is done to etcd behind the back of the API server.

use std::path::PathBuf;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use fs_err as fs;
use serde_json::json;

use crate::api::Api;
use crate::cluster::Cluster;

const ADDRESS_FLAG: &str = "--advertise-client-urls=";

impl Cluster {
    /// Forgets all that has been: nobody can be told any more what changed up to now.
    pub fn compact(&self) -> Result<()> {
        let nodes = self.api().get("/api/v1/nodes?limit=1")?;
        let version = &nodes["metadata"]["resourceVersion"];
        let etcd = Api::open(&self.write_etcd_config()?)?;
        etcd.create("/v3/kv/compaction", &json!({ "revision": version, "physical": true }))?;
        Ok(())
    }

    /// A kubeconfig is as good for etcd, which listens where it was told to.
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

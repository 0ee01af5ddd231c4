//! A small client for the API server. A request takes milliseconds; kubectl would take a tenth of a second of CPU time
//! that the cluster needs.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine};
use fs_err as fs;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::http::{self, Answer, Request};

/// The API server, as one user sees it.
#[derive(Debug, Clone)]
pub struct Api {
    address: SocketAddr,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    /// Header line that authenticates the user, if no certificate does.
    authorization: String,
    agent: String,
}

impl Api {
    /// Reads server and user from a kubeconfig in JSON with all data inline, as the lab and this crate write them.
    pub fn open(kubeconfig: &Path) -> Result<Self> {
        let config: Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
        let cluster = &config["clusters"][0]["cluster"];
        let user = &config["users"][0]["user"];
        let host = text(&cluster["server"])?.trim_start_matches("https://").to_owned();
        let address = host.to_socket_addrs()?.next().context("the server has no address")?;
        let authorization = user["token"].as_str().map(bearer).unwrap_or_default();
        let name = ServerName::from(address.ip());
        let agent = "knr-e2e".to_owned();
        Ok(Self { address, name, tls: Arc::new(tls(cluster, user)?), authorization, agent })
    }

    /// Sets another user agent, which the audit log shows.
    #[must_use]
    pub fn called(mut self, agent: &str) -> Self {
        agent.clone_into(&mut self.agent);
        self
    }

    /// The address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads an object or a list.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.find(path)?.with_context(|| format!("{path} does not exist"))
    }

    /// Reads an object that may be missing.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        let answer = self.ask("GET", path, "", "")?;
        if answer.status == 404 { Ok(None) } else { object("GET", path, &answer).map(Some) }
    }

    /// The objects of a list.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        match self.get(path)?["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("{path} is no list: {other}"),
        }
    }

    /// Creates an object; `path` is that of its list.
    pub fn create(&self, path: &str, body: &Value) -> Result<Value> {
        object("POST", path, &self.ask("POST", path, "application/json", &body.to_string())?)
    }

    /// Changes an object by a merge patch.
    pub fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        let kind = "application/merge-patch+json";
        object("PATCH", path, &self.ask("PATCH", path, kind, &body.to_string())?)
    }

    /// Deletes an object.
    pub fn delete(&self, path: &str) -> Result<()> {
        object("DELETE", path, &self.ask("DELETE", path, "", "")?)?;
        Ok(())
    }

    /// Requests a token for a service account, valid for an hour.
    pub fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let answer = self.create(&path, &json!({ "spec": { "expirationSeconds": 3600 } }))?;
        Ok(text(&answer["status"]["token"])?.to_owned())
    }

    /// Returns a client with the token of a pod, as if somebody had stolen it; `authority` is the CA of the server.
    pub fn with_token_of(&self, pod: &Value, authority: &str) -> Result<Self> {
        let (namespace, account) =
            (text(&pod["metadata"]["namespace"])?, text(&pod["spec"]["serviceAccountName"])?);
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
        let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid });
        let answer = self.create(&path, &json!({ "spec": { "boundObjectRef": bound } }))?;
        let token = text(&answer["status"]["token"])?;
        let cluster = json!({ "certificate-authority-data": BASE64_STANDARD.encode(authority) });
        let tls = Arc::new(tls(&cluster, &json!({ "token": token }))?);
        Ok(Self { tls, authorization: bearer(token), ..self.clone() })
    }

    fn ask(&self, method: &str, path: &str, kind: &str, body: &str) -> Result<Answer> {
        let connection = ClientConnection::new(Arc::clone(&self.tls), self.name.clone())?;
        let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
        let (agent, authorization) = (&self.agent, &self.authorization);
        let headers = format!("Accept: application/json\r\nUser-Agent: {agent}\r\n{kind}{authorization}");
        let host = self.address.to_string();
        let stream = StreamOwned::new(connection, http::connect(self.address)?);
        http::exchange(stream, &Request { method, path, host: &host, headers: &headers, body })
            .with_context(|| format!("{method} {path}"))
    }
}

/// Returns the object in an answer, or the server's message as an error.
fn object(method: &str, path: &str, answer: &Answer) -> Result<Value> {
    let body: Value =
        serde_json::from_str(&answer.body).unwrap_or_else(|_| Value::from(answer.body.as_str()));
    if (200..300).contains(&answer.status) {
        return Ok(body);
    }
    let message = body["message"].as_str().unwrap_or(&answer.body);
    bail!("{method} {path}: {}: {message}", answer.status)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn tls(cluster: &Value, user: &Value) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&data(&cluster["certificate-authority-data"])?) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    if user["token"].is_string() {
        return Ok(config.with_no_client_auth());
    }
    let chain = CertificateDer::pem_slice_iter(&data(&user["client-certificate-data"])?)
        .collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&data(&user["client-key-data"])?)?;
    Ok(config.with_client_auth_cert(chain, key)?)
}

fn data(value: &Value) -> Result<Vec<u8>> {
    Ok(BASE64_STANDARD.decode(text(value)?)?)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}

//! The lab's certificate authority and what it signs.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine};
use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::{Value, json};

/// A lab's folder of keys and certificates, readable by its owner only.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    folder: PathBuf,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl fmt::Debug for Pair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Pki {
    pub(crate) fn open(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Makes an authority in a new folder.
    pub(crate) fn create(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        let pki = Self { folder };
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "lab-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        lasting(&mut params);
        let key = KeyPair::generate()?;
        pki.write("ca.crt", &params.self_signed(&key)?.pem())?;
        pki.write("ca.key", &key.serialize_pem())?;
        Ok(pki)
    }

    /// Makes the key that signs the tokens of service accounts.
    pub(crate) fn create_account_key(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        self.write("sa.key", &key.serialize_pem())?;
        self.write("sa.pub", &key.public_key_pem())
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The authority's own certificate.
    pub(crate) fn authority(&self) -> Result<String> {
        Ok(fs::read_to_string(self.path("ca.crt"))?)
    }

    /// Signs a certificate for a server or a client. `groups` become organisations, as Kubernetes reads them.
    pub(crate) fn issue(&self, name: &str, groups: &[&str], subjects: &[String]) -> Result<Pair> {
        let issuer = Issuer::from_ca_cert_pem(
            &self.authority()?,
            KeyPair::from_pem(&fs::read_to_string(self.path("ca.key"))?)?,
        )?;
        let mut params = CertificateParams::new(subjects)?;
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        lasting(&mut params);
        let key = KeyPair::generate()?;
        Ok(Pair { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    }

    /// As [`Pki::issue`], kept in the folder as `FILE.crt` and `FILE.key`.
    pub(crate) fn issue_file(
        &self,
        file: &str,
        name: &str,
        groups: &[&str],
        subjects: &[String],
    ) -> Result<Pair> {
        let pair = self.issue(name, groups, subjects)?;
        self.write(&format!("{file}.crt"), &pair.certificate)?;
        self.write(&format!("{file}.key"), &pair.key)?;
        Ok(pair)
    }

    /// A kubeconfig with everything inside, for the holder of `pair`. JSON, which is YAML too.
    pub(crate) fn kubeconfig(&self, server: &str, pair: &Pair) -> Result<Value> {
        Ok(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{ "name": "lab", "cluster": {
                "server": server, "certificate-authority-data": BASE64_STANDARD.encode(self.authority()?),
            }}],
            "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "lab" } }],
            "users": [{ "name": "lab", "user": {
                "client-certificate-data": BASE64_STANDARD.encode(&pair.certificate),
                "client-key-data": BASE64_STANDARD.encode(&pair.key),
            }}],
        }))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        write_secret(&self.path(file), text)
    }
}

/// Writes a file that only its owner can read, from its first byte on.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

/// A lab is thrown away long before this, and a wrong clock must not matter.
fn lasting(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
}

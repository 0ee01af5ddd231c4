//! The checks in the `worker` section, and the plan that is derived from it for a worker.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem::{Problem, Problems};
use super::tree::Node;
use super::worker::Worker;
use super::{check, format};

/// A check that is there without being configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BuiltInCheck {
    /// Names are resolved.
    Dns,
    /// The API server answers and knows the worker.
    Kubernetes,
    /// The `kubernetes` Service and pods of other nodes are reached.
    Network,
    /// Services are found and answer at their addresses.
    Services,
}

impl BuiltInCheck {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 4] = [Self::Dns, Self::Kubernetes, Self::Network, Self::Services];

    /// Its name in reports and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Kubernetes => "kubernetes",
            Self::Network => "network",
            Self::Services => "services",
        }
    }
}

/// A check of the user: a name and one of `tcp`, `http`, `file` and `mtu`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckSpec {
    /// Name of the check in reports. It must be unique.
    #[schemars(regex(pattern = format::DNS_LABEL.pattern))]
    pub name: String,
    /// Passes if a TCP connection can be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSpec>,
    /// Passes if a web server answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSpec>,
    /// Passes if a file or directory exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileSpec>,
    /// Passes if large packets get through in both directions. `{}`: to and from the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<MtuSpec>,
}

/// The kind of a check, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind<'a> {
    /// A TCP connection.
    Tcp(&'a TcpSpec),
    /// A web server.
    Http(&'a HttpSpec),
    /// A file.
    File(&'a FileSpec),
    /// Large packets.
    Mtu(&'a MtuSpec),
}

impl CheckSpec {
    /// The keys that select the kind of a check.
    pub(super) const KINDS: [&'static str; 4] = ["tcp", "http", "file", "mtu"];

    /// Every kind that was given. A valid configuration gives exactly one.
    pub fn kinds(&self) -> impl Iterator<Item = CheckKind<'_>> {
        [
            self.tcp.as_ref().map(CheckKind::Tcp),
            self.http.as_ref().map(CheckKind::Http),
            self.file.as_ref().map(CheckKind::File),
            self.mtu.as_ref().map(CheckKind::Mtu),
        ]
        .into_iter()
        .flatten()
    }
}

/// A TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TcpSpec {
    /// Host and port, such as `registry.example.com:443`, `10.0.0.1:22` or `[2001:db8::1]:22`.
    #[schemars(regex(pattern = format::HOST_AND_PORT.pattern))]
    pub address: String,
}

/// A web server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpSpec {
    /// URL to fetch, with `http` or `https`. Redirects are not followed.
    #[schemars(regex(pattern = format::HTTP_URL.pattern))]
    pub url: String,
    /// Expected status of the response. If absent: any from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 599))]
    pub status: Option<u16>,
    /// Whether any certificate is accepted. Otherwise it must be signed by an authority that the image or the cluster
    /// trusts.
    #[serde(default)]
    pub insecure: bool,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileSpec {
    /// Path of the file or directory as the worker sees it. What is not in its image must be mounted with
    /// `worker.volumes` and `worker.volumeMounts`.
    #[schemars(regex(pattern = format::ABSOLUTE_PATH.pattern))]
    pub path: String,
}

/// Large packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MtuSpec {
    /// URL to fetch with a large request. The response should be larger than 9,000 bytes. If absent: a page of the API
    /// server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = format::HTTP_URL.pattern))]
    pub url: Option<String>,
}

/// The part of the configuration that a worker needs. The controller passes it as JSON in an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckPlan {
    /// See [`Worker::timeout_seconds`].
    pub timeout_seconds: u32,
    /// See [`Worker::check_timeout_seconds`].
    pub check_timeout_seconds: u32,
    /// See [`Worker::retries`].
    pub retries: u32,
    /// See [`Worker::dns_test_domains`].
    pub dns_test_domains: Vec<String>,
    /// See [`Worker::connectivity_matrix`].
    pub connectivity_matrix: bool,
    /// See [`Worker::services`].
    pub services: Vec<String>,
    /// See [`Worker::skip_checks`].
    pub skip_checks: Vec<BuiltInCheck>,
    /// See [`Worker::checks`].
    pub checks: Vec<CheckSpec>,
}

impl Default for CheckPlan {
    fn default() -> Self {
        Worker::default().check_plan()
    }
}

impl CheckPlan {
    /// Reads the plan that the controller passed. It is validated against the same rules as a file.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let unreadable = |error: serde_json::Error| {
            Problems::one(Problem { path: String::new(), location: None, message: error.to_string() })
        };
        let plan: Self = serde_json::from_str(text).map_err(unreadable)?;
        let worker = serde_json::json!({ "worker": serde_json::to_value(&plan).map_err(unreadable)? });
        let tree = Node::from_json(&worker);
        let (_, findings) = check::config(&tree);
        Problems::none_or(plan, findings.into_iter().map(|finding| finding.in_file(&tree)))
    }

    /// How long all checks together may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.into())
    }

    /// How long one try of a check may take.
    #[must_use]
    pub fn check_timeout(&self) -> Duration {
        Duration::from_secs(self.check_timeout_seconds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn a_plan_survives_the_way_to_the_worker() {
        let file = "worker: {retries: 0, services: [], skipChecks: [network], checks: [{name: a, mtu: {}}, \
                    {name: b, http: {url: 'https://a/b', status: 204, insecure: true}}]}";
        let plan = Config::parse(file).unwrap().worker.check_plan();
        assert_eq!((plan.retries, plan.checks.len()), (0, 2));
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(CheckPlan::parse(&text), Ok(plan), "{text}");
        let default = serde_json::to_string(&CheckPlan::default()).unwrap();
        assert_eq!(CheckPlan::parse(&default), Ok(CheckPlan::default()));
    }

    #[test]
    fn a_plan_that_no_controller_would_write_is_refused() {
        let with = |key: &str, value: serde_json::Value| {
            let mut plan = serde_json::to_value(CheckPlan::default()).unwrap();
            plan[key] = value;
            CheckPlan::parse(&plan.to_string()).unwrap_err().to_string()
        };
        assert!(with("retrys", 1.into()).contains("unknown field `retrys`"));
        assert!(with("image", "x".into()).contains("unknown field `image`"));
        assert_eq!(
            with("checkTimeoutSeconds", 0.into()),
            "worker.checkTimeoutSeconds: 0 is out of range; expected 1 to 3600"
        );
        assert!(with("timeoutSeconds", 5.into()).contains("expected one check to take no longer"));
        assert!(CheckPlan::parse("").unwrap_err().to_string().contains("EOF"));
        assert!(CheckPlan::parse("{}").unwrap_err().to_string().contains("missing field"));
    }

    #[test]
    fn the_built_in_checks_have_the_names_of_the_configuration() {
        for check in BuiltInCheck::ALL {
            assert_eq!(serde_json::to_value(check).unwrap(), check.name());
        }
    }

    #[test]
    fn times_are_seconds() {
        let plan = CheckPlan { timeout_seconds: 61, check_timeout_seconds: 7, ..CheckPlan::default() };
        assert_eq!((plan.timeout(), plan.check_timeout()), (Duration::from_secs(61), Duration::from_secs(7)));
    }
}

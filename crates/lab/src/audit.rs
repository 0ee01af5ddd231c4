//! The API server's audit log, as far as tests ask for it.

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use fs_err::File;
use serde::Deserialize;

/// One finished request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// In whose name, for example `system:node:n1` or `system:serviceaccount:default:x`; with impersonation the user
    /// that was taken on.
    pub user: String,
    /// What the client calls itself, as in its `User-Agent`.
    pub agent: String,
    /// What for: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// The kind of object, in plural, with the subresource after a slash: `pods`, `nodes/status`.
    pub resource: String,
    /// Its namespace, empty for objects that have none.
    pub namespace: String,
    /// Its name, empty for lists and for names the server made up.
    pub name: String,
    /// What was asked for, as in the request: path and query.
    pub uri: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When the request came, as the server wrote it.
    pub at: String,
}

impl AuditEvent {
    /// Whether the request was meant to change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    user_agent: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    object_ref: ObjectRef,
    response_status: Option<Status>,
    request_received_timestamp: String,
}

#[derive(Deserialize)]
struct User {
    /// Whoever was not let in has none.
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    code: u16,
}

/// Finished requests in the order of their end. Watches count when they end.
pub(crate) fn read(path: &Path) -> Result<Vec<AuditEvent>> {
    let file = File::open(path)?;
    let mut events = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line?;
        match serde_json::from_str::<Line>(&line) {
            Ok(line) if line.stage == "ResponseComplete" => events.push(line.into()),
            Ok(_) => {}
            // The server may be in the middle of writing the last line.
            Err(err) if err.is_eof() => {}
            Err(err) => return Err(err).with_context(|| format!("{}:{}", path.display(), number + 1)),
        }
    }
    Ok(events)
}

impl From<Line> for AuditEvent {
    fn from(line: Line) -> Self {
        let ObjectRef { mut resource, subresource, namespace, name } = line.object_ref;
        if !subresource.is_empty() {
            resource = format!("{resource}/{subresource}");
        }
        let code = line.response_status.map_or(0, |status| status.code);
        let user = line.impersonated_user.unwrap_or(line.user).username;
        let (agent, verb, at) = (line.user_agent, line.verb, line.request_received_timestamp);
        Self { user, agent, verb, resource, namespace, name, uri: line.request_uri, code, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_requests_are_read_and_half_a_last_line_is_no_error() {
        let path = std::env::temp_dir().join(format!("lab-audit-{}.log", std::process::id()));
        let line = |stage: &str| {
            format!(
                r#"{{"stage":"{stage}","verb":"patch","requestURI":"/api/v1/nodes/n1/status?timeout=5s","user":{{"username":"u"}},"userAgent":"me/1","responseStatus":{{"code":200}},"objectRef":{{"resource":"nodes","subresource":"status","name":"n1"}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z"}}"#
            )
        };
        let unknown = line("ResponseComplete").replace(r#""username":"u""#, "");
        let text = format!(
            "{}\n{}\n{unknown}\n{}",
            line("ResponseStarted"),
            line("ResponseComplete"),
            &line("x")[..40]
        );
        std::fs::write(&path, text).unwrap();
        let events = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let users: Vec<&str> = events.iter().map(|event| event.user.as_str()).collect();
        assert_eq!(users, ["u", ""], "who was not let in is nobody");
        assert_eq!((events[0].resource.as_str(), events[0].name.as_str()), ("nodes/status", "n1"));
        assert_eq!(
            (events[0].agent.as_str(), events[0].uri.as_str()),
            ("me/1", "/api/v1/nodes/n1/status?timeout=5s")
        );
        assert!(events[0].is_write());
    }
}

//! Answers of the API server. Whatever the peer sends, no more of an answer is kept than a limit allows.

use std::io;

use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use knr_core::texts::shortened;
use kube::client::Body;
use kube::core::{Status, WatchEvent};
use serde::de::DeserializeOwned;

use crate::api::{Failed, causes};

/// The largest answer that is ever requested is a page of a list.
const MAX_ANSWER: usize = 64 << 20;
/// An object in etcd has at most 1.5 MiB, and somewhat more as JSON.
const MAX_LINE: usize = 8 << 20;
/// The answer of a proxy in between, perhaps an HTML page, is truncated to this many characters.
const MAX_TOLD_CHARS: usize = 200;

/// Reads an answer as a whole.
pub(crate) async fn whole<T: DeserializeOwned>(response: Response<Body>) -> Result<T, Failed> {
    let body = collected(accepted(response).await?).await?;
    parsed(&body)
}

/// Reads an answer as a stream of events. An event that cannot be parsed does not end the stream.
pub(crate) async fn events<T: DeserializeOwned + Send + 'static>(
    response: Response<Body>,
) -> Result<BoxStream<'static, Result<WatchEvent<T>, Failed>>, Failed> {
    let body = accepted(response).await?;
    let lines = Lines { body, received: Bytes::new(), begun: Vec::new(), is_too_long: false };
    Ok(unfold(lines, |mut lines| async move { Some((lines.next().await?, lines)) }).boxed())
}

/// Validates UTF-8 once for the whole answer, which is several times faster than for each of its hundreds of strings.
fn parsed<T: DeserializeOwned>(answer: &[u8]) -> Result<T, Failed> {
    let text = str::from_utf8(answer).map_err(|error| Failed::Unreadable(error.to_string()))?;
    serde_json::from_str(text).map_err(|error| Failed::Unreadable(error.to_string()))
}

/// Returns the body of an answer, unless it is an error.
async fn accepted(response: Response<Body>) -> Result<Body, Failed> {
    let (code, body) = (response.status(), response.into_body());
    if code.is_client_error() || code.is_server_error() {
        return Err(Failed::Status(Box::new(refusal(code, &collected(body).await?))));
    }
    Ok(body)
}

/// Returns the status that the API server, or a proxy in between, sent with an error.
fn refusal(code: StatusCode, body: &[u8]) -> Status {
    let by_server = parsed::<Status>(body).ok().filter(|status| status.code != 0);
    by_server.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(body);
        Status::failure(&shortened(text.trim(), MAX_TOLD_CHARS), "").with_code(code.as_u16())
    })
}

async fn collected(body: Body) -> Result<Bytes, Failed> {
    match Limited::new(body, MAX_ANSWER).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failed::Unreadable(format!("it is longer than {MAX_ANSWER} bytes")))
        }
        Err(error) => Err(error
            .downcast::<kube::Error>()
            .map_or_else(|error| Failed::NoAnswer(error.to_string()), |error| Failed::from(*error))),
    }
}

/// The rest of a body, split into lines.
struct Lines {
    body: Body,
    /// Received and not processed yet.
    received: Bytes,
    /// The beginning of a line whose end has not been received yet.
    begun: Vec<u8>,
    is_too_long: bool,
}

impl Lines {
    /// Returns the next line, or `None` at the end. An incomplete last line is dropped.
    async fn next<T: DeserializeOwned>(&mut self) -> Option<Result<WatchEvent<T>, Failed>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.received) {
                let line = self.received.split_to(end + 1);
                return Some(self.read(&line));
            }
            self.keep();
            match self.body.frame().await? {
                Ok(frame) => self.received = frame.into_data().unwrap_or_default(),
                Err(error) if is_cut_off(&error) => return None,
                Err(error) => return Some(Err(error.into())),
            }
        }
    }

    /// Parses a line. Most lines arrive in one piece and are parsed in place.
    fn read<T: DeserializeOwned>(&mut self, end: &[u8]) -> Result<WatchEvent<T>, Failed> {
        if std::mem::take(&mut self.is_too_long) {
            return Err(Failed::Unreadable(format!("a line is longer than {MAX_LINE} bytes")));
        }
        if self.begun.is_empty() {
            return parsed(end);
        }
        self.begun.extend_from_slice(end);
        let event = parsed(&self.begun);
        self.begun.clear();
        event
    }

    fn keep(&mut self) {
        let received = std::mem::take(&mut self.received);
        self.is_too_long |= self.begun.len() + received.len() > MAX_LINE;
        if self.is_too_long {
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(&received);
        }
    }
}

/// Returns whether the server closed the connection in the middle of an answer, as every API server does occasionally.
fn is_cut_off(error: &kube::Error) -> bool {
    let is_eof = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    causes(error).any(|cause| cause.downcast_ref().is_some_and(is_eof))
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kube::core::DynamicObject;
    use serde_json::Value;

    use super::*;
    use crate::testing::{Answer, FakeServer};

    async fn response(code: u16, pieces: Vec<Vec<u8>>) -> Response<Body> {
        let server = FakeServer::answering([Answer::Pieces(code, pieces)]);
        server.api().client().send(Request::new(Body::empty())).await.unwrap()
    }

    fn line(name: &str) -> String {
        format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"{name}\"}}}}}}\n")
    }

    async fn lines_of(pieces: Vec<Vec<u8>>) -> Vec<String> {
        let events = events::<DynamicObject>(response(200, pieces).await).await.unwrap();
        events
            .map(|event| match event {
                Ok(WatchEvent::Added(object)) => object.metadata.name.unwrap(),
                Ok(other) => format!("{other:?}"),
                Err(failed) => failed.to_string(),
            })
            .collect()
            .await
    }

    #[tokio::test]
    async fn lines_are_the_same_however_they_are_cut() {
        let text = [line("a"), line("b"), line("c")].concat().into_bytes();
        for size in 1..=text.len() {
            let pieces = text.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(lines_of(pieces).await, ["a", "b", "c"], "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_not_whole_is_no_line() {
        let text = [line("a"), line("b")].concat();
        assert_eq!(lines_of(vec![text.as_bytes()[..text.len() - 1].to_vec()]).await, ["a"]);
    }

    #[tokio::test]
    async fn what_cannot_be_read_does_not_hide_what_follows() {
        let no_letter = line("?").into_bytes().into_iter().map(|byte| if byte == b'?' { 0xff } else { byte });
        let unreadable = [b"nonsense\n{}\n".to_vec(), no_letter.collect()].concat();
        let lines = lines_of(vec![unreadable, line("a").into_bytes()]).await;
        assert!(lines[..3].iter().all(|line| line.contains("cannot be read")), "{lines:?}");
        assert_eq!(lines[3..], ["a"]);
    }

    #[tokio::test]
    async fn a_line_without_end_is_not_kept() {
        let mut pieces = vec![vec![b'x'; 1 << 20]; 20];
        pieces.push([b"\n".to_vec(), line("a").into_bytes()].concat());
        let lines = lines_of(pieces).await;
        assert!(lines[0].contains("longer than 8388608 bytes"), "{lines:?}");
        assert_eq!(lines[1..], ["a"]);
    }

    #[tokio::test]
    async fn an_answer_without_end_is_not_kept() {
        let failed = whole::<Value>(response(200, vec![vec![b' '; 1 << 20]; 65]).await).await.unwrap_err();
        assert!(failed.to_string().contains("longer than 67108864 bytes"), "{failed}");
    }

    #[tokio::test]
    async fn an_error_page_for_people_is_shortened() {
        let page = format!("<html>{}</html>", "x".repeat(5000)).into_bytes();
        let failed = whole::<Value>(response(502, vec![page]).await).await.unwrap_err();
        assert_eq!(failed.code(), Some(502));
        assert!(failed.to_string().len() < 300, "{failed}");
    }
}

//! One HTTP request over its own connection. Tests send few requests, and nothing here waits indefinitely.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const READ_LIMIT: Duration = Duration::from_secs(15);

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The response body.
    pub body: String,
}

/// A request to a server.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) host: &'a str,
    /// Additional header lines, each with its line end.
    pub(crate) headers: &'a str,
    pub(crate) body: &'a str,
}

/// Fetches a page without TLS.
pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    let host = address.to_string();
    exchange(connect(address)?, &Request { method: "GET", path, host: &host, headers: "", body: "" })
        .with_context(|| format!("GET http://{address}{path}"))
}

/// Connects for one [`exchange`].
pub(crate) fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).with_context(|| address.to_string())?;
    stream.set_read_timeout(Some(READ_LIMIT))?;
    stream.set_write_timeout(Some(READ_LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request and reads the whole answer. In HTTP/1.0 it ends with the connection, and is never chunked.
pub(crate) fn exchange(mut stream: impl Read + Write, request: &Request) -> Result<Answer> {
    let Request { method, path, host, headers, body } = request;
    let head = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n", body.len());
    stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).context("this is no HTTP answer")
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn status_and_body_are_reported_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let asked: Vec<_> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            stream.write_all(b"HTTP/1.0 503 Sorry\r\nA: b\r\n\r\nnot\r\n\r\nyet").unwrap();
            asked
        });
        let answer = get(address, "/readyz").unwrap();
        assert_eq!(answer, Answer { status: 503, body: "not\r\n\r\nyet".to_owned() });
        assert_eq!(server.join().unwrap()[0], "GET /readyz HTTP/1.0");
    }

    #[test]
    fn half_an_answer_is_an_error() {
        assert_eq!(parse("HTTP/1.0 200 OK\r\nContent"), None);
        assert_eq!(parse(""), None);
    }
}

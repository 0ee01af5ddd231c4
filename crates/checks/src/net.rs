//! Connections, with a timeout on every step and a separate kind for every failure.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_ok;
use hickory_resolver::TokioResolver;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::check::{Kind, Trouble, span};

/// The time for the first attempt, before a silent peer is tried again.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// A connection of any kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Repeats an attempt until the deadline, as long as the peer is silent: `None` from the attempt.
///
/// On a new node the rules of kube-proxy may be installed a moment after the first packet. The kernel then has a
/// conntrack entry without them for this connection, and retransmits along the same path. Only a new connection gets
/// through, so one is made after a second, and after two and four more.
pub(crate) async fn persist<T, F>(deadline: Instant, mut attempt: impl FnMut(Instant) -> F) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    let mut wait = FIRST_WAIT;
    loop {
        let until = deadline.min(Instant::now() + wait);
        let heard = attempt(until).await;
        if heard.is_some() || until >= deadline {
            return heard;
        }
        wait *= 2;
    }
}

/// Connects to an address.
pub(crate) async fn connect(address: SocketAddr, deadline: Instant) -> Result<TcpStream, Trouble> {
    let start = Instant::now();
    let attempt = |until| async move { timeout_at(until, TcpStream::connect(address)).await.ok() };
    match persist(deadline, attempt).await {
        Some(Ok(stream)) => {
            // A failure here only costs time.
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
        Some(Err(error)) => Err(io_trouble(&error, &format!("{address}: connection"))),
        None => {
            let detail = format!("{address}: no connection after {}", span(start.elapsed()));
            Err(Trouble::new(Kind::Timeout, detail))
        }
    }
}

/// Connects to a host by name or address. If it has several addresses, one is enough.
pub(crate) async fn dial(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, Trouble> {
    let addresses = resolve(host, deadline).await?;
    let each = addresses.into_iter().map(|ip| Box::pin(connect(SocketAddr::new(ip, port), deadline)));
    select_ok(each).await.map(|(stream, _)| stream)
}

/// Returns the addresses of a host, at least one.
async fn resolve(host: &str, deadline: Instant) -> Result<Vec<IpAddr>, Trouble> {
    if let Ok(ip) = unbracketed(host).parse() {
        return Ok(vec![ip]);
    }
    let trouble = |why: String| Trouble::new(Kind::Resolve, format!("{host}: {why}"));
    let mut builder = TokioResolver::builder_tokio().map_err(|error| trouble(error.to_string()))?;
    builder.options_mut().cache_size = 0;
    let resolver = builder.build().map_err(|error| trouble(error.to_string()))?;
    let start = Instant::now();
    match timeout_at(deadline, resolver.lookup_ip(host)).await {
        Ok(Ok(found)) => {
            let addresses: Vec<IpAddr> = found.iter().collect();
            if addresses.is_empty() { Err(trouble("no address".to_owned())) } else { Ok(addresses) }
        }
        Ok(Err(error)) => Err(trouble(error.to_string())),
        Err(_) => Err(trouble(format!("not resolved after {}", span(start.elapsed())))),
    }
}

/// Removes the brackets of an IPv6 address, which it has where a port may follow.
pub(crate) fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// Performs a TLS handshake on a connection. `peer` is for messages, `name` for the certificate.
pub(crate) async fn secure<S: Stream>(
    stream: S,
    peer: &str,
    name: &str,
    config: Arc<ClientConfig>,
    deadline: Instant,
) -> Result<tokio_rustls::client::TlsStream<S>, Trouble> {
    let server = ServerName::try_from(unbracketed(name).to_owned()).map_err(|_| {
        Trouble::new(Kind::Tls, format!("{peer}: {name:?} cannot be the name in a certificate"))
    })?;
    let start = Instant::now();
    match timeout_at(deadline, TlsConnector::from(config).connect(server, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(tls_trouble(&error, peer)),
        Err(_) => {
            let detail =
                format!("{peer}: connected, but the TLS handshake did not end in {}", span(start.elapsed()));
            Err(Trouble::new(Kind::TlsTimeout, detail))
        }
    }
}

fn tls_trouble(error: &io::Error, peer: &str) -> Trouble {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            Trouble::new(Kind::Untrusted, format!("{peer}: certificate not trusted: {why}"))
        }
        Some(other) => Trouble::new(Kind::Tls, format!("{peer}: TLS handshake: {other}")),
        None => io_trouble(error, &format!("{peer}: TLS handshake")),
    }
}

/// Converts a system error, with its number.
pub(crate) fn io_trouble(error: &io::Error, what: &str) -> Trouble {
    let (kind, words) = match error.kind() {
        ErrorKind::ConnectionRefused => (Kind::Refused, "refused".to_owned()),
        // The peer's machine may be down: its neighbours and routers say so.
        ErrorKind::HostUnreachable => (Kind::HostUnreachable, "not possible".to_owned()),
        ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable
        | ErrorKind::PermissionDenied => (Kind::Unreachable, "not possible".to_owned()),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::NotConnected
        | ErrorKind::UnexpectedEof => (Kind::Closed, "closed".to_owned()),
        ErrorKind::TimedOut => (Kind::Timeout, "timed out".to_owned()),
        _ => (Kind::Io, error.to_string()),
    };
    let number = error.raw_os_error().map_or(String::new(), |number| format!(" (errno {number})"));
    Trouble::new(kind, format!("{what} {words}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, soon};

    #[tokio::test]
    async fn a_listener_is_reached() {
        let address = testing::silent_tcp().await;
        assert!(dial("127.0.0.1", address.port(), soon()).await.is_ok());
        assert!(dial("localhost", address.port(), soon()).await.is_ok());
    }

    #[tokio::test]
    async fn a_closed_port_refuses() {
        let address = testing::closed_tcp().await;
        let trouble = connect(address, soon()).await.unwrap_err();
        assert_eq!(
            trouble,
            Trouble::new(Kind::Refused, format!("{address}: connection refused (errno 111)"))
        );
    }

    #[tokio::test]
    async fn an_address_without_a_way_is_unreachable() {
        // The kernel does not connect to a broadcast address, whatever its routes.
        let trouble = connect("255.255.255.255:1".parse().unwrap(), soon()).await.unwrap_err();
        assert_eq!(trouble.kind, Kind::Unreachable, "{trouble:?}");
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_resolved_says_so() {
        let trouble = dial("no-such-name.invalid", 1, soon()).await.unwrap_err();
        assert_eq!(trouble.kind, Kind::Resolve, "{trouble:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_by_new_tries_until_the_deadline() {
        let start = Instant::now();
        let mut tries = Vec::new();
        let heard: Option<()> = persist(start + Duration::from_secs(10), |until| {
            tries.push((until - start).as_secs());
            async move {
                tokio::time::sleep_until(until).await;
                None
            }
        })
        .await;
        assert_eq!((heard, tries), (None, vec![1, 3, 7, 10]));
        assert_eq!(start.elapsed().as_secs(), 10);
    }

    #[test]
    fn errors_of_the_system_are_distinguished() {
        let kind = |number| io_trouble(&io::Error::from_raw_os_error(number), "x").kind;
        assert_eq!(
            [104, 32, 110, 113, 101, 1].map(kind),
            [
                Kind::Closed,
                Kind::Closed,
                Kind::Timeout,
                Kind::HostUnreachable,
                Kind::Unreachable,
                Kind::Unreachable,
            ]
        );
        let other = io_trouble(&io::Error::from_raw_os_error(24), "a:1: connection");
        assert_eq!(other.kind, Kind::Io);
        assert!(other.detail.ends_with("(errno 24)"), "{}", other.detail);
    }
}

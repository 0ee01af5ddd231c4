//! One DNS question to one nameserver over one transport. A resolver would hide which of them failed.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;

use futures::future::{Either, select};
use hickory_resolver::proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use crate::check::{Kind, Trouble, span};
use crate::net::{self, io_trouble, persist};

/// The transport of a question to a nameserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// A nameserver and the transport to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) transport: Transport,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.port() {
            53 => write!(f, "{} over {}", self.address.ip(), self.transport),
            _ => write!(f, "{} over {}", self.address, self.transport),
        }
    }
}

/// Looks up a name as it is. One address of either family is enough.
pub(crate) async fn addresses(name: &Name, server: Server, deadline: Instant) -> Result<(), Trouble> {
    let v4 = pin!(has_records(name, RecordType::A, server, deadline));
    let v6 = pin!(has_records(name, RecordType::AAAA, server, deadline));
    let (first, rest) = match select(v4, v6).await {
        Either::Left((first, rest)) => (first, Either::Left(rest)),
        Either::Right((first, rest)) => (first, Either::Right(rest)),
    };
    match first {
        // A name that does not exist has addresses of neither family.
        Ok(()) | Err(Trouble { kind: Kind::Nxdomain, .. }) => first,
        Err(Trouble { kind: Kind::NoRecords, .. }) => rest.await,
        Err(_) => match rest.await {
            Err(Trouble { kind: Kind::NoRecords, .. }) => first,
            other => other,
        },
    }
}

async fn has_records(
    name: &Name,
    kind: RecordType,
    server: Server,
    deadline: Instant,
) -> Result<(), Trouble> {
    let answer = ask(name, kind, server, deadline).await?;
    let trouble = |kind, words: &str| Err(Trouble::new(kind, format!("{} {words} {server}", shown(name))));
    match answer.metadata.response_code {
        // A truncated answer means that the client should ask over TCP, which is checked separately.
        ResponseCode::NoError if answer.metadata.truncation => Ok(()),
        ResponseCode::NoError if answer.answers.iter().any(|record| record.record_type() == kind) => Ok(()),
        ResponseCode::NoError => trouble(Kind::NoRecords, "has no address at"),
        ResponseCode::NXDomain => trouble(Kind::Nxdomain, "does not exist at"),
        ResponseCode::ServFail => trouble(Kind::Servfail, "could not be looked up (SERVFAIL) by"),
        ResponseCode::Refused => trouble(Kind::QueryRefused, "was refused (REFUSED) by"),
        other => trouble(Kind::BadAnswer, &format!("was answered with {other} by")),
    }
}

/// Sends a question and waits for any answer to it.
pub(crate) async fn ask(
    name: &Name,
    kind: RecordType,
    server: Server,
    deadline: Instant,
) -> Result<Message, Trouble> {
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(name.clone(), kind));
    let bytes = query.to_vec().map_err(|error| Trouble::new(Kind::BadAnswer, format!("{name}: {error}")))?;
    let start = Instant::now();
    let heard = match server.transport {
        Transport::Udp => {
            persist(deadline, |until| {
                let exchange = over_udp(&query, &bytes, server.address);
                async move { timeout_at(until, exchange).await.ok() }
            })
            .await
        }
        Transport::Tcp => {
            let stream =
                net::connect(server.address, deadline).await.map_err(|trouble| match trouble.kind {
                    Kind::Timeout => timed_out(name, server, start),
                    kind => trouble.within(kind, &format!("{}: ", shown(name))),
                })?;
            timeout_at(deadline, over_tcp(&query, &bytes, stream)).await.ok()
        }
    };
    match heard {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Trouble::new(Kind::BadAnswer, format!("{}: {error} from {server}", shown(name))))
        }
        Some(Err(error)) => {
            Err(io_trouble(&error, &format!("{} asked at {server}: connection", shown(name))))
        }
        None => Err(timed_out(name, server, start)),
    }
}

fn timed_out(name: &Name, server: Server, start: Instant) -> Trouble {
    let detail = format!("{} timed out after {} at {server}", shown(name), span(start.elapsed()));
    Trouble::new(Kind::Timeout, detail)
}

/// Returns a name without its trailing dot.
fn shown(name: &Name) -> String {
    let text = name.to_ascii();
    text.strip_suffix('.').filter(|text| !text.is_empty()).unwrap_or(&text).to_owned()
}

async fn over_udp(query: &Message, bytes: &[u8], server: SocketAddr) -> io::Result<Message> {
    let any =
        if server.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    // Only a connected socket gets an error if nothing listens on the port.
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Anybody can send to this port. A message that does not match the question is ignored.
        if let Ok(answer) = Message::from_vec(&buffer[..length])
            && answers(&answer, query)
        {
            return Ok(answer);
        }
    }
}

async fn over_tcp(query: &Message, bytes: &[u8], mut stream: impl net::Stream) -> io::Result<Message> {
    let invalid = |words: &str| io::Error::new(io::ErrorKind::InvalidData, words.to_owned());
    let length = u16::try_from(bytes.len()).map_err(|_| invalid("too long a question"))?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await?;
    let answer = Message::from_vec(&buffer).map_err(|_| invalid("an unreadable answer"))?;
    if answers(&answer, query) { Ok(answer) } else { Err(invalid("an answer to another question")) }
}

fn answers(answer: &Message, query: &Message) -> bool {
    answer.metadata.id == query.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && (answer.queries.is_empty() || answer.queries == query.queries)
}

#[cfg(test)]
mod tests;

//! A fake nameserver.

use std::net::{Ipv4Addr, SocketAddr};

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::A;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// The reply to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Address,
    Code(ResponseCode),
    Truncated,
    OtherId,
    OtherQuestion,
    Garbage,
    Silence,
}

/// The transports over which it answers. Over the others it is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportSet {
    Both,
    UdpOnly,
    TcpOnly,
}

/// A nameserver with scripted replies.
#[derive(Debug)]
pub(crate) struct FakeDns {
    pub(crate) address: SocketAddr,
}

impl FakeDns {
    pub(crate) async fn start(reply: Reply) -> Self {
        Self::with(move |_, _| reply, TransportSet::Both).await
    }

    /// Chooses the reply by name and type.
    pub(crate) async fn with(
        decide: impl Fn(&Name, RecordType) -> Reply + Copy + Send + Sync + 'static,
        transports: TransportSet,
    ) -> Self {
        let (udp, tcp) = sockets().await;
        let address = tcp.local_addr().unwrap();
        let silent = move |_: &Name, _: RecordType| Reply::Silence;
        match transports {
            TransportSet::Both => {
                tokio::spawn(serve_udp(udp, decide));
                tokio::spawn(serve_tcp(tcp, decide));
            }
            TransportSet::UdpOnly => {
                tokio::spawn(serve_udp(udp, decide));
                tokio::spawn(serve_tcp(tcp, silent));
            }
            TransportSet::TcpOnly => {
                tokio::spawn(serve_udp(udp, silent));
                tokio::spawn(serve_tcp(tcp, decide));
            }
        }
        Self { address }
    }
}

/// Binds the same port for UDP and TCP. A port that is free for TCP may be taken for UDP.
async fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
    panic!("no port is free for both");
}

async fn serve_udp(socket: UdpSocket, decide: impl Fn(&Name, RecordType) -> Reply) {
    let mut buffer = [0; 512];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else { continue };
        if let Some(bytes) = answer(&buffer[..length], &decide) {
            socket.send_to(&bytes, peer).await.unwrap();
        }
    }
}

async fn serve_tcp(
    listener: TcpListener,
    decide: impl Fn(&Name, RecordType) -> Reply + Copy + Send + Sync + 'static,
) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut buffer = vec![0; length.into()];
                stream.read_exact(&mut buffer).await.unwrap();
                if let Some(bytes) = answer(&buffer, decide) {
                    stream.write_u16(bytes.len().try_into().unwrap()).await.unwrap();
                    stream.write_all(&bytes).await.unwrap();
                }
            }
        });
    }
}

fn answer(bytes: &[u8], decide: impl Fn(&Name, RecordType) -> Reply) -> Option<Vec<u8>> {
    let mut message = Message::from_vec(bytes).unwrap();
    let query = message.queries[0].clone();
    message.metadata.message_type = MessageType::Response;
    match decide(query.name(), query.query_type()) {
        Reply::Silence => return None,
        Reply::Garbage => return Some(b"garbage".to_vec()),
        Reply::Address => drop(message.add_answer(Record::from_rdata(
            query.name().clone(),
            5,
            RData::A(A(Ipv4Addr::LOCALHOST)),
        ))),
        Reply::Code(code) => message.metadata.response_code = code,
        Reply::Truncated => message.metadata.truncation = true,
        Reply::OtherId => message.metadata.id = message.metadata.id.wrapping_add(1),
        Reply::OtherQuestion => drop(message.queries[0].set_name(Name::from_ascii("other.").unwrap())),
    }
    Some(message.to_vec().unwrap())
}

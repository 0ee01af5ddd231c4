//! Servers on the loopback interface, each working or broken in its own way.

mod api;
mod dns;
mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use crate::api::ApiAccess;
use crate::check::{Check, Context, Outcome, Surroundings};

pub(crate) use self::api::{Answer, FakeApi};
pub(crate) use self::dns::{FakeDns, Reply, TransportSet};
pub(crate) use self::tls::Authority;

/// A deadline for something that does happen, long enough on any machine.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// A deadline for something that does not happen, long enough to get that far on a busy machine.
pub(crate) fn shortly() -> Instant {
    Instant::now() + Duration::from_millis(1500)
}

/// A context without an API server.
pub(crate) fn context(deadline: Instant) -> Context {
    context_with(deadline, ApiAccess::Missing("no kubeconfig".to_owned()))
}

pub(crate) fn context_with(deadline: Instant, api: ApiAccess) -> Context {
    let surroundings = Surroundings { node: Some("here".to_owned()), api, kubernetes_service: None };
    Context { deadline, surroundings: Arc::new(surroundings) }
}

/// Runs a check, and asserts that its failure is one that it lists.
pub(crate) async fn outcome(check: &dyn Check, cx: &Context) -> Outcome {
    let outcome = check.run(cx).await;
    if let Outcome::Fail(trouble) = &outcome {
        assert!(!check.about().hint(trouble.kind).is_empty(), "{trouble:?}");
    }
    outcome
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Accepts connections and sends nothing.
pub(crate) async fn silent_tcp() -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = listener.accept().await {
            held.push(connection);
        }
    });
    address
}

/// Accepts connections and closes them.
pub(crate) async fn closing_tcp() -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    address
}

/// Listens, but its backlog is full: the next connection gets no answer.
pub(crate) async fn full_tcp() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(connection)) = timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        held.push(connection);
    }
    tokio::spawn(async move {
        let _held = (listener, held);
        std::future::pending::<()>().await;
    });
    address
}

/// Nothing listens there.
pub(crate) async fn closed_tcp() -> SocketAddr {
    listen().await.1
}

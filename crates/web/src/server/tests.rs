use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::{Health, router};

/// Longer than anything here takes, even on a slow machine. A paused clock skips it if nothing else happens.
const PATIENCE: Duration = Duration::from_mins(1);

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

async fn start(router: Router) -> Running {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(serve(listener, router, async move {
        let _ = stopped.await;
    }));
    Running { address, stop, served }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Reads everything until the peer closes the connection. A reset counts as an end.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the connection stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn ask(running: &Running, request: &str) -> String {
    let mut stream = running.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

#[tokio::test]
async fn a_request_is_answered_and_the_connection_closed() {
    let running = start(router(None, Health::new())).await;
    let answer = ask(&running, "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");
    let answer = ask(&running, "POST /livez HTTP/1.1\r\nHost: node\r\nContent-Length: 9999999\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "a body is not waited for: {answer}");
}

#[tokio::test]
async fn a_request_without_end_is_refused() {
    let running = start(router(None, Health::new())).await;
    let long = "a".repeat(2 * MOST_HEADER_BYTES);
    let answer = ask(&running, &format!("GET /livez HTTP/1.1\r\nHost: node\r\nX-Long: {long}\r\n\r\n")).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = "A: b\r\n".repeat(MOST_HEADERS + 1);
    let answer = ask(&running, &format!("GET /livez HTTP/1.1\r\n{many}\r\n")).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_finishes_its_request_is_dropped() {
    let running = start(router(None, Health::new())).await;
    let begun = Instant::now();
    let (mut mute, mut slow) = (running.connect().await, running.connect().await);
    slow.write_all(b"GET /livez HTTP/1.1\r\nHo").await.unwrap();
    assert!(!rest(&mut mute).await.contains("200"));
    assert!(!rest(&mut slow).await.contains("200"));
    assert!(begun.elapsed() < HEADER_LIMIT * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_dropped() {
    let large = "a".repeat(64 * 1024 * 1024);
    let running = start(Router::new().route("/", get(|| async { large }))).await;
    let mut stream = running.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    tokio::time::sleep(CONNECTION_LIMIT * 2).await;
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.len() < 64 * 1024 * 1024, "{}", answer.len());
}

#[tokio::test(start_paused = true)]
async fn idle_clients_keep_nobody_from_being_served() {
    let running = start(router(None, Health::new())).await;
    let mut idle = Vec::new();
    for _ in 0..=MOST_CONNECTIONS {
        idle.push(running.connect().await);
    }
    let answer = ask(&running, "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n").await;
    assert!(answer.ends_with("ok"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_an_answer_but_not_for_idle_clients() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (asked, go) = (asked.clone(), go.clone());
        get(async move || {
            asked.notify_one();
            go.notified().await;
            "done"
        })
    };
    let Running { address, stop, served } = start(Router::new().route("/slow", slow)).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET").await.unwrap();
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(b"GET /slow HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    asked.notified().await;
    stop.send(()).unwrap();
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    assert!(rest(&mut busy).await.ends_with("done"));
    let stopping = Instant::now();
    timeout(PATIENCE, served).await.expect("the server does not stop").unwrap();
    assert!(stopping.elapsed() <= GRACE, "{:?}", stopping.elapsed());
    assert!(rest(&mut idle).await.is_empty());
}

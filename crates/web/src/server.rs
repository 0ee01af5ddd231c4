//! The server: one request for each connection, and no client can hold a connection indefinitely.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The time in which the head of a request must arrive.
const HEADER_LIMIT: Duration = Duration::from_secs(5);
/// A connection ends after this time, whether its answer was read or not. A scrape has 10 s by default.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// The time that open connections get on shutdown.
const GRACE: Duration = Duration::from_secs(2);
/// The maximum number of concurrent connections. Others wait in the backlog of the kernel.
const MOST_CONNECTIONS: usize = 256;
/// No request of a probe or a scrape has a longer head.
const MOST_HEADER_BYTES: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;
/// The pause after a failed accept, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is ready, and then until all requests are answered, but at most for two more seconds.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let (ending, _) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => drop(connections.spawn(answer(stream, router.clone(), ending.subscribe()))),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "Connection not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    ending.send_replace(());
    // Connections that are still open then are dropped together with the set.
    let _ = timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
}

/// Serves one connection. Errors of a single client are ignored.
async fn answer(stream: TcpStream, router: Router, mut ending: watch::Receiver<()>) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .max_buf_size(MOST_HEADER_BYTES)
            .max_headers(MOST_HEADERS)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let _ = timeout(CONNECTION_LIMIT, async {
        tokio::select! {
            _ = connection.as_mut() => {}
            _ = ending.changed() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests;

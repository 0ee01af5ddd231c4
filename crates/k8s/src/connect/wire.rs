//! A connection that is read in large pieces.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::BufReader;
use tokio::net::TcpStream;

/// Room for what comes at once: an object, or what a watch tells of a few. Memory that is never filled is never taken.
const PIECE: usize = 32 << 10;

/// TLS asks for 4 KiB at a time, a third of a node. What has come is fetched from the kernel at once instead.
pub(super) struct Wire(TokioIo<BufReader<TcpStream>>);

impl From<TokioIo<TcpStream>> for Wire {
    fn from(stream: TokioIo<TcpStream>) -> Self {
        Self(TokioIo::new(BufReader::with_capacity(PIECE, stream.into_inner())))
    }
}

impl Wire {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TokioIo<BufReader<TcpStream>>> {
        Pin::new(&mut self.get_mut().0)
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        self.0.inner().get_ref().connected()
    }
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

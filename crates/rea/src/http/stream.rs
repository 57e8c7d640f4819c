//! What lies between a connection's bytes and its requests: an end for peers that take nothing, bounded bodies, and word of
//! what the connection is doing.

use std::fmt;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::house::{Guest, House, Stage};

/// A socket whose writes fail when the peer has taken nothing for a while. Its connection is idle when an answer has left.
pub(super) struct Paced {
    stream: TcpStream,
    guest: Arc<Guest>,
    patience: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    pub(super) fn new(stream: TcpStream, guest: Arc<Guest>, patience: Duration) -> Paced {
        Paced { stream, guest, patience, stuck: None }
    }

    fn paced<T>(&mut self, written: Poll<Result<T>>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let patience = self.patience;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl AsyncRead for Paced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.paced(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.paced(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // hyper flushes the socket only when it has written all that it holds.
        self.guest.flushed();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The bodies of all requests together are too much for now.
#[derive(Debug)]
pub(super) struct Crowded;

impl fmt::Display for Crowded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server holds as much of requests as it may")
    }
}

impl std::error::Error for Crowded {}

/// What one request has taken of the room for bodies; given back when the request has been answered, or before.
pub(super) struct Room {
    house: Arc<House>,
    bytes: std::sync::atomic::AtomicU64,
}

impl Room {
    pub(super) fn new(house: Arc<House>) -> Arc<Room> {
        Arc::new(Room { house, bytes: 0.into() })
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = self.house.take_bytes(bytes);
        if taken {
            self.bytes.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        taken
    }

    /// For a request that lives on without its body.
    pub(super) fn give_back(&self) {
        self.house.give_bytes(self.bytes.swap(0, std::sync::atomic::Ordering::Relaxed));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The body of a request. The connection counts as reading while it lives.
pub(super) struct Arriving {
    body: Incoming,
    guest: Arc<Guest>,
    room: Arc<Room>,
}

impl Arriving {
    pub(super) fn new(body: Incoming, guest: Arc<Guest>, room: Arc<Room>) -> Arriving {
        guest.set(if body.is_end_stream() { Stage::Busy } else { Stage::Reading });
        Arriving { body, guest, room }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len) as u64,
            _ => 0,
        };
        if !self.room.take(bytes) {
            return Poll::Ready(Some(Err(Crowded.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        HttpBody::size_hint(&self.body)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.guest.set(Stage::Busy);
    }
}

/// The body of an answer. hyper drops it when it has the last of it, which may be long before the peer has.
pub(super) struct Leaving {
    pub(super) body: Body,
    pub(super) guest: Arc<Guest>,
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.guest.set(Stage::Sent);
    }
}

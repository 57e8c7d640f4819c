//! The accept loop: bounded in connections, bytes and time, so that slow, idle or many peers can't keep others out.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::house::{House, Place};
use super::stream::{Arriving, Leaving, Paced, Room};
use super::{Api, Peer};
use crate::error::{Code, Problem};

/// Largest head of a request, its first line and all fields together.
const HEAD_MAX: usize = 64 << 10;
/// Most header fields.
const HEADERS_MAX: usize = 64;
/// How long open connections get to finish their request when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Most peers at a time that are told that there is no place; further ones are cut off.
const TURNED_AWAY: usize = 64;
/// How long such a peer may take to hear it.
const FAREWELL: Duration = Duration::from_millis(500);
/// A full house is told to the log this often.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The bounds of a server's connections.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Most connections at a time. When all are taken, whoever is idle for longest makes room.
    pub connections: usize,
    /// How long a request's head may take to arrive, and how long a connection may be idle.
    pub head_timeout: Duration,
    /// How long a peer may take nothing of its answer.
    pub write_timeout: Duration,
    /// Most bytes of the bodies of all requests that are being read or worked on.
    pub body_bytes: u64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            connections: 1024,
            head_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            body_bytes: 256 << 20,
        }
    }
}

/// Serves `api` on `listener` within `rules` until `ending`; returns when all have been let go.
pub async fn serve(listener: TcpListener, api: Api, rules: Rules, ending: CancellationToken) {
    let house = House::new(rules.connections, rules.body_bytes);
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
    let mut told: Option<Instant> = None;
    let open = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = ending.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok((stream, address)) => (stream, address.ip()),
            Err(error) => {
                // Out of descriptors or the like: the loop must neither end nor spin.
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let now = Instant::now();
        if let Some(place) = house.enter(now) {
            let (api, house, ending) = (api.clone(), Arc::clone(&house), ending.clone());
            open.spawn(async move { connection(stream, Peer(peer), place, house, api, rules, ending).await });
            continue;
        }
        if told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY) {
            told = Some(now);
            let most = rules.connections;
            tracing::warn!(action = "full", most, %peer, "all connections are at work: others are turned away");
        }
        if let Ok(permit) = Arc::clone(&turned_away).try_acquire_owned() {
            open.spawn(async move {
                let _permit = permit;
                let _ = tokio::time::timeout(FAREWELL, turn_away(stream)).await;
            });
        }
    }
    drop(listener);
    open.close();
    // What has not ended by then is dropped with the runtime.
    let _ = tokio::time::timeout(LAST_WORDS, open.wait()).await;
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    place: Place,
    house: Arc<House>,
    api: Api,
    rules: Rules,
    ending: CancellationToken,
) {
    // Answers are small and whole: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let guest = place.guest();
    let paced = Paced::new(stream, Arc::clone(&guest), rules.write_timeout);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (api, guest, room) = (api.clone(), Arc::clone(&guest), Room::new(Arc::clone(&house)));
        let arriving = |body| Body::new(Arriving::new(body, Arc::clone(&guest), Arc::clone(&room)));
        let mut request = request.map(arriving);
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(room);
        // Begun here and not in the future: that one is never asked for anything if the client has gone by now.
        let answer = api.answer(request);
        async move { Ok::<_, Infallible>(answer.await.map(|body| Leaving { body, guest })) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(rules.head_timeout);
    builder.max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
    let connection = builder.serve_connection(TokioIo::new(paced), service);
    tokio::pin!(connection);
    // A connection that breaks is its client's business.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = place.left() => {}
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Says that there is no place, whatever is asked.
async fn turn_away(mut stream: TcpStream) {
    let problem = Problem::new(Code::TooManyConnections, "all connections of this server are at work")
        .hint("try again in a second; --max-connections allows more");
    let body = problem.document().to_string();
    let text = format!(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncache-control: no-store\r\n\
         content-type: application/problem+json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    if stream.write_all(text.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    // What the peer has sent is read, because closing before it would tear down the answer as well.
    let mut rest = [0; 1024];
    while matches!(stream.read(&mut rest).await, Ok(n) if n > 0) {}
}

//! The accept loop: bounded in connections and in time, so that slow or idle peers can't keep others out for long.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Api;

/// How long a request's head may take to arrive, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of a request.
const HEAD_MAX: usize = 64 << 10;
/// Most header fields.
const HEADERS_MAX: usize = 64;
/// How long open connections get to finish their request when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves `api` on `listener` with at most `connections` at a time until `ending`; returns when all have been let go.
/// Further clients wait in the system's backlog.
pub async fn serve(listener: TcpListener, api: Api, connections: usize, ending: CancellationToken) {
    let permits = Arc::new(Semaphore::new(connections));
    let open = TaskTracker::new();
    loop {
        let permit = tokio::select! {
            () = ending.cancelled() => break,
            permit = Arc::clone(&permits).acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = ending.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (api, ending) = (api.clone(), ending.clone());
                open.spawn(async move {
                    let _permit = permit;
                    connection(stream, api, ending).await;
                });
            }
            Err(error) => {
                // Out of descriptors or the like: the loop must neither end nor spin.
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    open.close();
    // What has not ended by then is dropped with the runtime.
    let _ = tokio::time::timeout(LAST_WORDS, open.wait()).await;
}

async fn connection(stream: TcpStream, api: Api, ending: CancellationToken) {
    // Answers are small and whole: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let api = api.clone();
        async move { Ok::<_, Infallible>(api.answer(request.map(Body::new)).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // A connection that breaks is its client's business.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

//! Over a real socket: many requests on one connection, slow and idle peers, and the end of the server.

use std::time::{Duration, Instant};

use rea::http::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::bed::Bed;

const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 4096];
    let n =
        tokio::time::timeout(Duration::from_secs(5), stream.read(&mut bytes)).await.expect("an answer").unwrap_or(0);
    String::from_utf8_lossy(&bytes[..n]).into_owned()
}

/// F60: a slow head holds its own connection only, and a full house makes others wait, not fail.
#[tokio::test]
async fn f60_slow_peers_hold_nobody_up_and_the_end_comes_in_bound() {
    let bed = Bed::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = CancellationToken::new();
    let serving = tokio::spawn(listen::serve(listener, bed.api.clone(), 4, ending.clone()));
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHo").await.unwrap();
        slow.push(stream);
    }
    let mut good = TcpStream::connect(address).await.unwrap();
    for _ in 0..3 {
        good.write_all(ASK).await.unwrap();
        assert!(answer(&mut good).await.starts_with("HTTP/1.1 200 OK"));
    }
    // The fifth has to wait until a place is free.
    let mut fifth = TcpStream::connect(address).await.unwrap();
    fifth.write_all(ASK).await.unwrap();
    drop(slow.pop());
    assert!(answer(&mut fifth).await.starts_with("HTTP/1.1 200 OK"));
    // F61: an announced length over the limit is refused before the body is sent.
    fifth
        .write_all(b"POST /enqueue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n")
        .await
        .unwrap();
    assert!(answer(&mut fifth).await.starts_with("HTTP/1.1 413"));
    let begun = Instant::now();
    ending.cancel();
    serving.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(TcpStream::connect(address).await.is_err());
    bed.end().await;
}

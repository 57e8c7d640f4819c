//! Load over HTTP on many connections from one thread: requests are built once, answers barely looked at, so that the
//! client takes as little as possible of the cores it shares with the server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::NOOP_PYTHON;
use crate::http;

/// `connections` clients that each post one job, wait for the answer and post the next. Jobs a second.
pub(super) fn one_job_each(runtime: &Runtime, url: &str, connections: usize, span: Duration) -> Result<f64> {
    let address = url.trim_start_matches("http://").to_owned();
    let body = format!("{{\"task\":\"{NOOP_PYTHON}\",\"args\":[1]}}");
    let request = http::request("POST", "/enqueue", &address, &body);
    runtime.block_on(async {
        let mut streams = Vec::with_capacity(connections);
        for _ in 0..connections {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let begun = Instant::now();
        let clients: Vec<_> =
            streams.into_iter().map(|stream| tokio::spawn(client(stream, request.clone(), begun + span))).collect();
        let mut stored = 0.0;
        for client in clients {
            stored += client.await??;
        }
        Ok(stored / begun.elapsed().as_secs_f64())
    })
}

async fn client(mut stream: TcpStream, request: String, until: Instant) -> Result<f64> {
    let mut stored = 0.0;
    let mut answer = Vec::with_capacity(1024);
    while Instant::now() < until {
        stream.write_all(request.as_bytes()).await?;
        answer.clear();
        while !is_whole(&answer)? {
            ensure!(stream.read_buf(&mut answer).await? > 0, "the server closed the connection");
        }
        stored += 1.0;
    }
    Ok(stored)
}

/// Whether `answer` holds a whole 2xx answer.
fn is_whole(answer: &[u8]) -> Result<bool> {
    let Some(head_end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(false) };
    let head = std::str::from_utf8(&answer[..head_end]).context("the head is not text")?;
    ensure!(head.starts_with("HTTP/1.1 2"), "refused: {}", String::from_utf8_lossy(answer));
    let length = head
        .lines()
        .find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")))
        .and_then(|(_, length)| length.trim().parse::<usize>().ok())
        .context("an answer without a length")?;
    Ok(answer.len() >= head_end + 4 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        assert!(is_whole(answer).unwrap());
        assert!(!is_whole(&answer[..answer.len() - 1]).unwrap());
        assert!(!is_whole(b"HTTP/1.1 201 Cr").unwrap());
        assert!(is_whole(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").is_err());
    }
}

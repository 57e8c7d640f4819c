//! A small HTTP client: one request a connection, so that no test depends on how another one ended.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) json: Value,
}

pub(crate) fn get(url: &str, path: &str) -> io::Result<Answer> {
    exchange(url, &format!("GET {path} HTTP/1.1\r\n"), "")
}

pub(crate) fn post(url: &str, path: &str, body: &Value) -> io::Result<Answer> {
    let body = body.to_string();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
    exchange(url, &head, &body)
}

fn exchange(url: &str, head: &str, body: &str) -> io::Result<Answer> {
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(format!("{head}host: {address}\r\nconnection: close\r\n\r\n{body}").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(broken)?;
    let json = serde_json::from_str(body).map_err(|_| broken())?;
    Ok(Answer { status, json })
}

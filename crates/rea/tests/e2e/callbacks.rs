//! Callbacks outlive their server: killed before the job's end, and killed while the receiver thinks.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use crate::bed::{Bed, job, with};

/// The next request: its head in small letters, its body, and the connection that waits for an answer.
fn next(listener: &TcpListener) -> (String, String, TcpStream) {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "the request broke off");
        bytes.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length: usize = field(head, "content-length").parse().unwrap();
        if body.len() >= length {
            return (head.to_owned(), body.to_owned(), stream);
        }
    }
}

fn field<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_else(|| panic!("no {name}: {head}"))
}

#[test]
fn a_callback_outlives_its_server_and_is_the_same_one_each_time() {
    let bed = Bed::new();
    assert_eq!(bed.rea(&["callback", "secret", "--file", "rea.callback"]).code, Some(0));
    let settings = "[serve]\ncallback_secret_file = \"rea.callback\"\ncallback_allow = [\"127.0.0.1\"]\n";
    std::fs::write(bed.path("rea.toml"), settings).unwrap();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", receiver.local_addr().unwrap());

    // Killed before the job's end.
    let server = bed.serve(1);
    let id = server.enqueue(&with(job("once_long", &json!([bed.text("runs")])), json!({ "callback_url": url })));
    bed.pid_of_run("runs", 1);
    server.kill();

    // Killed while the receiver thinks.
    let server = bed.serve(1);
    let (first, told, _unanswered) = next(&receiver);
    assert!(told.contains(&format!("\"task_id\":\"{id}\"")) && told.contains("\"state\":\"success\""), "{told}");
    server.kill();

    let server = bed.serve(1);
    let (second, told_again, mut stream) = next(&receiver);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!(field(&first, "webhook-id"), field(&second, "webhook-id"));
    assert_eq!(told, told_again);
    let callback = server.reach(field(&second, "webhook-id"), "success");
    assert_eq!(callback["result"], json!({ "status": 200 }), "{callback}");
    server.stop();
}

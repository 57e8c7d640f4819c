//! C128: what jobs carry stays with the jobs, and secrets among it with their functions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::bed::Bed;

const SECRET: &str = "hunter2-and-then-some";

/// One request over a connection of its own; the whole answer as it came.
fn ask(url: &str, method: &str, path: &str, body: &str) -> String {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Job arguments with secrets reach neither the log, nor the metrics, nor events, nor any error page.
#[test]
fn c128_secret_arguments_are_told_to_nobody_but_the_function() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py", "--log", "json"]);
    let url = server.url.clone();
    let mut events = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(events, "GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let watching = std::thread::spawn(move || {
        let lines = BufReader::new(events).lines().map_while(Result::ok);
        lines.fold(String::new(), |all, line| all + &line + "\n")
    });
    let kwargs = format!("{{\"password\": \"{SECRET}\"}}");
    let job = |task: &str, more: &str| format!("{{\"task\": \"{task}\", \"kwargs\": {kwargs}{more}}}");
    let mut told = String::new();
    // A job that is right, one with the wrong arguments, one that breaks, one that runs over its time.
    for task in ["tasks:keep", "tasks:add", "tasks:broken", "tasks:sleepy"] {
        let made = ask(&url, "POST", "/enqueue", &job(task, ", \"timeout\": 0.5, \"max_attempts\": 1"));
        assert!(made.starts_with("HTTP/1.1 201"), "{made}");
        let id = made.split("\"task_id\":\"").nth(1).unwrap().split('"').next().unwrap();
        let ended = ask(&url, "GET", &format!("/jobs/{id}?wait=20"), "");
        assert!(ended.contains("success") || ended.contains("dead"), "{ended}");
        assert!(
            ended.contains("\"password\":\"[redacted]\"") || ended.contains("\"password\": \"[redacted]\""),
            "{ended}"
        );
        if task == "tasks:keep" {
            assert!(ended.contains(&format!("\"result\":{}", SECRET.len())), "the function gets it: {ended}");
        }
        told += &ended;
        told += &ask(&url, "GET", &format!("/trace/{id}"), "");
        told += &ask(&url, "GET", &format!("/jobs/{id}/attempts"), "");
        told += &ask(&url, "POST", &format!("/jobs/{id}/cancel"), "{}");
    }
    for wrong in [
        job("tasks:nonsuch", ""),
        job("tasks:add", ", \"priority\": 99"),
        job("tasks:add", ", \"unknown\": 1"),
        format!("{{\"task\": \"tasks:add\", \"args\": \"{SECRET}\"}}"),
        format!("{{\"task\": \"tasks:add\", \"kwargs\": [\"{SECRET}\"]}}"),
        format!("{{\"task\": \"tasks:add\", \"args\": [\"{SECRET}\", NaN]}}"),
        format!("{{\"task\": \"tasks:add\", \"args\": [\"{SECRET}\""),
        format!("{{\"task\": \"tasks:add\", \"args\": [\"{SECRET}{}\"]}}", "x".repeat(1 << 20)),
    ] {
        let refused = ask(&url, "POST", "/enqueue", &wrong);
        assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
        told += &refused;
        told += &ask(&url, "POST", "/jobs", &format!("[{wrong}]"));
    }
    // A key that is used again with other content.
    ask(&url, "POST", "/enqueue", &job("tasks:keep", ", \"key\": \"k\""));
    told += &ask(&url, "POST", "/enqueue", "{\"task\": \"tasks:keep\", \"key\": \"k\", \"kwargs\": {}}");
    for path in [
        "/jobs",
        "/jobs/failed",
        "/metrics",
        "/status",
        "/nodes",
        "/queues",
        "/queues/default",
        "/tasks/tasks:keep",
        "/jobs/running",
        "/",
    ] {
        told += &ask(&url, "GET", path, "");
    }
    assert!(told.contains("rea_steps_total") && told.contains("key_conflict"), "everything was asked");
    let (code, log) = server.stop();
    assert_eq!(code, 0, "{log}");
    let seen = watching.join().unwrap();
    assert!(log.contains("\"finish\"") && seen.contains("event: finish"), "there is something to look through");
    for (place, text) in [("an answer", &told), ("the log", &log), ("the events", &seen)] {
        let line = text.lines().find(|line| line.contains(SECRET));
        assert_eq!(line, None, "in {place}");
    }
}

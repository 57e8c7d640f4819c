//! With a server: commands find it through the lock, jobs run in Python processes, and it ends in order.

use std::time::{Duration, Instant};

use crate::bed::Bed;

#[test]
fn jobs_run_and_are_seen_through_the_server() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py"]);
    assert_eq!(bed.rea(&["enqueue", "tasks:add", "2", "3", "--wait"]).word(), "5");
    let id = bed.rea(&["enqueue", "tasks:add", "\"a\"", "b"]).word().to_owned();
    let waited = bed.rea(&["enqueue", "tasks:broken", "--wait=20"]);
    assert_eq!(waited.code, 1, "{}", waited.err);
    assert!(waited.err.contains("is dead: ValueError") && !waited.err.contains('\x1b'), "{:?}", waited.err);
    let shown = bed.rea(&["job", &id]);
    assert!(shown.out.contains("\"ab\""), "{}", shown.out);
    assert_eq!(bed.rea(&["log", &id]).out, "adding a b\n");
    let status = bed.rea(&["status"]);
    assert!(status.out.contains(&server.url) && status.out.contains("1 dead"), "{}", status.out);
    assert!(status.out.contains("WORST TODAY"), "{}", status.out);
    let failed = bed.rea(&["enqueue", "tasks:later", "--json"]).json()["task_id"].as_str().unwrap().to_owned();
    let mut shown = bed.rea(&["job", &failed]);
    let begun = Instant::now();
    while !shown.out.contains("its retry in") && begun.elapsed() < Duration::from_secs(10) {
        shown = bed.rea(&["job", &failed]);
    }
    assert!(shown.out.contains("after failure 1 of 2"), "{}", shown.out);
    let second = bed.rea(&["serve", "--port", "0", "tasks.py"]);
    assert_eq!(second.code, 6, "{}", second.err);
    assert!(second.err.contains(&server.url) && second.err.contains(&server.pid().to_string()), "{}", second.err);
    assert_eq!(bed.rea(&["db", "check"]).code, 6);
    let url = server.url.clone();
    let (code, log) = server.stop();
    assert_eq!(code, 0, "{log}");
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(line["ts"].is_string() && line["level"].is_string(), "{line}");
    }
    let life: Vec<&str> = log.lines().filter(|l| l.contains(&id)).collect();
    assert_eq!(life.len(), 3, "{life:#?}");
    assert!(!log.contains("adding"), "arguments and output are not logged");
    assert_eq!(bed.rea(&["status", "--url", &url]).code, 5);
    assert!(bed.rea(&["status"]).out.contains("none runs"));
}

#[test]
fn a_second_signal_ends_running_jobs_at_once() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py", "--grace", "60"]);
    let id = bed.rea(&["enqueue", "tasks:slow"]).word().to_owned();
    let begun = Instant::now();
    while bed.rea(&["job", &id, "--json"]).json()["started_at"].is_null() && begun.elapsed() < Duration::from_secs(10) {
    }
    let waiting = {
        let mut command = bed.command();
        command.args(["enqueue", "tasks:slow", "--wait=30", "--url", &server.url]);
        std::thread::spawn(move || command.output().unwrap())
    };
    std::thread::sleep(Duration::from_millis(300));
    server.signal();
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let (code, log) = server.stop();
    assert_eq!(code, 0, "{log}");
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert!(log.contains("asked twice"), "{log}");
    // Whoever waited is told that the server is gone.
    let waited = waiting.join().unwrap();
    assert_eq!(waited.status.code(), Some(5), "{}", String::from_utf8_lossy(&waited.stderr));
    let job = bed.rea(&["job", &id, "--json"]).json();
    assert_eq!((&job["state"], &job["failures"]), (&"pending".into(), &0.into()), "{job}");
}

#[test]
fn a_server_without_code_stores_what_it_knows() {
    let bed = Bed::new();
    assert_eq!(bed.serve(&["tasks.py"]).stop().0, 0);
    let server = bed.serve(&[]);
    let id = bed.rea(&["enqueue", "tasks:add", "1", "2"]).word().to_owned();
    assert!(bed.rea(&["job", &id]).out.contains("offers tasks:add: none does"));
    assert_eq!(bed.rea(&["enqueue", "tasks:ad"]).code, 4);
    assert_eq!(server.stop().0, 0);
}

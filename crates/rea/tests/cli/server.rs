//! With a server: commands find it through the lock, jobs run in Python processes, and it ends in order.

use std::time::{Duration, Instant};

use crate::bed::{Bed, TASKS};

#[test]
fn jobs_run_and_are_seen_through_the_server() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py"]);
    assert_eq!(bed.rea(&["enqueue", "tasks:add", "2", "3", "--wait"]).word(), "5");
    let id = bed.rea(&["enqueue", "tasks:add", "\"a\"", "b"]).word().to_owned();
    let waited = bed.rea(&["enqueue", "tasks:broken", "--wait=20"]);
    assert_eq!(waited.code, 1, "{}", waited.err);
    assert!(waited.err.contains("is dead: ValueError: never") && !waited.err.contains('\x1b'), "{:?}", waited.err);
    let shown = bed.rea(&["job", &id]);
    assert!(shown.out.contains("\"ab\""), "{}", shown.out);
    assert_eq!(bed.rea(&["log", &id]).out, "adding a b\n");
    let dead = bed.rea(&["jobs", "--state", "dead", "--ids"]).word().to_owned();
    let shown = bed.rea(&["job", &dead]);
    assert!(shown.out.contains("not retried: ValueError is not retryable; raise RetryableError"), "{}", shown.out);
    let silent = bed.rea(&["log", &dead]);
    assert_eq!((silent.out.as_str(), silent.err.as_str()), ("", "(no output)\n"));
    let done = bed.rea(&["retry", &id]);
    assert!(done.code == 4 && done.err.contains("enqueue it anew"), "{}", done.err);
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

#[test]
fn a_log_is_followed_over_its_attempts_until_the_job_ends() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py"]);
    let words = ["enqueue", "tasks:twice", bed.dir.path().to_str().unwrap(), "--retry-base", "0.2"];
    let id = bed.rea(&words).word().to_owned();
    let followed = bed.rea(&["log", "-f", &id]);
    assert_eq!((followed.code, followed.out.as_str()), (0, "one\ntwo\n"), "{}", followed.err);
    assert!(followed.err.contains("(attempt 2)"), "{}", followed.err);
    assert_eq!(bed.rea(&["log", "-f", &id, "--attempt", "1"]).out, "one\n");
    assert_eq!(server.stop().0, 0);
}

#[test]
fn who_waits_is_told_of_failed_attempts_and_of_shut_gates() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py"]);
    let waited = bed.rea(&["enqueue", "tasks:later", "--retry-base", "2", "--wait=20"]);
    assert_eq!((waited.code, waited.out.as_str()), (1, ""), "{}", waited.err);
    let told = |part: &str| waited.err.matches(part).count();
    assert_eq!(told("attempt 1 failed: rea.exception.RetryableError: not now; next try in "), 1, "{}", waited.err);
    assert_eq!((told("attempt 2"), told("is dead: rea.exception.RetryableError: not now")), (0, 1), "{}", waited.err);
    assert_eq!(bed.rea(&["queue", "pause", "default"]).code, 0);
    let waited = bed.rea(&["enqueue", "tasks:add", "1", "2", "--wait=4"]);
    assert_eq!(waited.code, 7, "{}", waited.err);
    assert_eq!(waited.err.matches("waits for queue default, which is paused").count(), 1, "{}", waited.err);
    assert_eq!(server.stop().0, 0);
}

#[test]
fn a_server_says_that_it_loads_and_that_it_stops() {
    let bed = Bed::new();
    std::fs::write(bed.dir.path().join("tasks.py"), format!("{TASKS}\ntime.sleep(0.5)\n")).unwrap();
    let server = bed.serve(&["tasks.py", "--grace", "3"]);
    assert!(
        server.before.contains("\"action\":\"loading\"") && server.before.contains(&server.url),
        "{}",
        server.before
    );
    assert!(bed.rea(&["status", "--json"]).json()["not_ready"].is_null());
    let id = bed.rea(&["enqueue", "tasks:slow"]).word().to_owned();
    let begun = Instant::now();
    while bed.rea(&["job", &id, "--json"]).json()["state"] != "running" && begun.elapsed() < Duration::from_secs(10) {}
    server.signal();
    std::thread::sleep(Duration::from_millis(300));
    let status = bed.rea(&["status", "--url", &server.url]);
    assert!(status.out.contains("not ready    the server is stopping"), "{} {}", status.out, status.err);
    assert_eq!(server.stop().0, 0);
}

/// I14: a short job may be handed ahead to a busy worker process; a pause takes it back all the same.
#[test]
fn i14_a_pause_takes_back_what_waits_behind_a_long_job() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py", "--grace", "0.2"]);
    assert_eq!(bed.rea(&["enqueue", "tasks:add", "1", "1", "--wait"]).word(), "2");
    let state = |id: &str| bed.rea(&["job", id, "--json"]).json()["state"].as_str().unwrap().to_owned();
    let reaches = |id: &str, wanted: &str| {
        let begun = Instant::now();
        while state(id) != wanted {
            assert!(begun.elapsed() < Duration::from_secs(10), "{id} is {}, not {wanted}", state(id));
        }
    };
    let long = bed.rea(&["enqueue", "tasks:slow", "--queue", "long"]).word().to_owned();
    reaches(&long, "running");
    let waiting = bed.rea(&["enqueue", "tasks:add", "2", "3", "--queue", "mail"]).word().to_owned();
    reaches(&waiting, "dispatched");
    assert_eq!(bed.rea(&["queue", "pause", "mail"]).code, 0);
    reaches(&waiting, "pending");
    assert_eq!(bed.rea(&["cancel", &long]).code, 0);
    reaches(&long, "cancelled");
    std::thread::sleep(Duration::from_millis(300));
    let job = bed.rea(&["job", &waiting, "--json"]).json();
    assert_eq!((&job["state"], &job["attempt"]), (&"pending".into(), &0.into()), "it cost nothing: {job}");
    assert_eq!(bed.rea(&["queue", "resume", "mail"]).code, 0);
    reaches(&waiting, "success");
    assert_eq!(server.stop().0, 0);
}

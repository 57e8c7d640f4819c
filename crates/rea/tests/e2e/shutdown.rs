//! Stops in order: running jobs get their time, the rest is put back, nothing is lost.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Bed, Server, eventually, job, left, with, within};
use crate::{http, processes};

/// celery#2700: the signal that a service manager sends to every process of a service ended jobs at once.
#[test]
fn c075_sigterm_to_the_whole_group_lets_a_running_job_finish() {
    let bed = Bed::new();
    let server = bed.serve(1);
    let id = server.enqueue(&job("long", &json!([bed.text("runs"), 1.5])));
    bed.pid_of_run("runs", 1);
    processes::signal_group(server.pid(), Signal::TERM);
    let (status, took, log) = server.wait(Duration::from_secs(8));
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(took > Duration::from_millis(500), "{took:?}");
    assert_eq!(bed.lines("runs").get(1).map(String::as_str), Some("end"));
    let server = bed.serve(1);
    let ended = server.job(&id);
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("success"), &json!(1)), "{ended}");
    assert!(server.causes(&id).is_empty());
    server.stop();
}

/// pg-boss#102: after a stop, jobs stayed active. Here a job needs longer than the grace and must be killed; another has
/// not begun.
#[test]
fn c075_c076_a_job_over_the_grace_is_put_back_unburnt_and_starts_at_once_on_a_new_server() {
    let bed = Bed::new();
    let server = bed.serve_with(1, &["--grace", "0.5"]);
    let id = server.enqueue(&job("stubborn", &json!([bed.text("runs")])));
    let child = bed.pid_of_run("runs", 1);
    let waiting = server.enqueue(&job("append", &json!([bed.text("waiting"), "ran"])));
    processes::signal_group(server.pid(), Signal::TERM);
    // Grace, kill grace, and time to write it down.
    let (status, _, log) = server.wait(Duration::from_millis(500 + 5_000 + 3_000));
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!processes::lives(child));
    let shown = bed.rea(&["job", &id, "--json"]).word();
    let stored: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&stored["state"], &stored["failures"]), (&json!("pending"), &json!(0)), "{stored}");
    assert_eq!(bed.lines("waiting").len(), 0);

    let server = bed.serve(1);
    within(left(server.ready, Duration::from_secs(1)), "both run", || {
        bed.lines("runs").len() == 2 && bed.lines("waiting").len() == 1
    });
    server.reach(&waiting, "success");
    assert_eq!(server.causes(&id), [(1, "interrupted".to_owned())]);
    assert!(server.causes(&waiting).is_empty());
    server.stop();
}

/// celery#7339: a job was lost when the signal came while it moved between two queues. Here it comes at any moment.
#[test]
fn c005_nothing_is_lost_or_done_twice_when_servers_are_stopped_under_load() {
    let bed = Bed::new();
    let mut stored: HashSet<String> = HashSet::new();
    for round in 0..5 {
        let server = bed.serve(2);
        let wait = Duration::from_millis(RandomState::new().hash_one(round) % 300);
        let accepted = thread::scope(|scope| {
            let senders: Vec<_> = (0..2).map(|_| scope.spawn(|| send(&bed, &server))).collect();
            thread::sleep(wait);
            server.signal(Signal::TERM);
            senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect::<Vec<_>>()
        });
        eprintln!("round {round}: SIGTERM after {wait:?}, {} accepted", accepted.len());
        stored.extend(accepted);
        let (status, _, log) = server.wait(Duration::from_secs(8));
        assert_eq!(status.code(), Some(0), "{log}");
    }
    assert!(stored.len() > 10, "hardly any load: {}", stored.len());

    let server = bed.serve(2);
    eventually("all are done", || {
        let counts = server.get("/status")["counts"].clone();
        ["pending", "dispatched", "running", "failed"].iter().all(|state| counts[*state] == 0)
    });
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    for line in bed.lines("runs") {
        *runs.entry(line).or_default() += 1;
    }
    // Every stop was in order and no job is longer than the grace: each ran exactly once, also those with a lost answer.
    let twice: Vec<_> = runs.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let lost: Vec<_> = stored.iter().filter(|id| !runs.contains_key(*id)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let counts = server.get("/status")["counts"].clone();
    assert_eq!(counts["success"], json!(runs.len()), "{counts}");
    server.stop();
}

/// Stores jobs as fast as it can until the server refuses; gives the ids of those that it accepted.
fn send(bed: &Bed, server: &Server) -> Vec<String> {
    let begun = Instant::now();
    let mut accepted = Vec::new();
    for number in 0..u32::MAX {
        let mark = RandomState::new().hash_one(number);
        let id = format!("01936f00-0000-7000-8000-{:012x}", mark & 0xffff_ffff_ffff);
        let wanted = with(job("append", &json!([bed.text("runs"), id])), json!({ "task_id": id }));
        match http::post(&server.url, "/enqueue", &wanted) {
            Ok(answer) if answer.status == 201 => accepted.push(id),
            Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.json),
            Err(_) => return accepted,
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "the server goes on taking jobs");
    }
    accepted
}

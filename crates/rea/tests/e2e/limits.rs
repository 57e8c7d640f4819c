//! Jobs that run over their time.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::bed::{Bed, eventually, job, with, within};
use crate::processes;

/// From the request to end to the kill.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Every rival left grandchildren of a job behind at its timeout; this one ignores SIGTERM in a session of its own.
#[test]
fn a_timeout_ends_the_whole_tree_and_frees_the_slot() {
    let bed = Bed::new();
    let server = bed.serve(1);
    let wanted = with(job("family", &json!([bed.text("pids")])), json!({ "timeout": 1, "max_attempts": 1 }));
    let begun = Instant::now();
    let id = server.enqueue(&wanted);
    let next = server.enqueue(&job("append", &json!([bed.text("next"), "ran"])));
    let pids: Vec<u32> = bed.wait_for_lines("pids", 3).iter().map(|line| line.parse().unwrap()).collect();
    assert!(bed.lines("next").is_empty(), "there is one slot");
    let limit = Duration::from_secs(1) + KILL_GRACE + Duration::from_secs(2);
    within(limit.saturating_sub(begun.elapsed()), "the job is dead", || server.job(&id)["state"] == "dead");
    // Settled means gone: not a moment later.
    assert!(!pids.iter().any(|pid| processes::lives(*pid)), "survivors");
    server.reach(&next, "success");
    let ended = server.job(&id);
    assert_eq!(ended["last_cause"], "timeout", "{ended}");
    assert_eq!((&ended["attempt"], &ended["failures"]), (&json!(1), &json!(1)), "{ended}");
    assert!(ended["last_error"]["message"].as_str().unwrap().contains("timeout="), "{ended}");
    server.stop();
}

/// Cancel takes the same road, for a job that ends when asked within a second.
#[test]
fn cancel_of_a_running_job_ends_it_within_a_second() {
    let bed = Bed::new();
    let server = bed.serve(1);
    let id = server.enqueue(&job("long", &json!([bed.text("pids")])));
    let child = bed.pid_of_run("pids", 1);
    let asked = Instant::now();
    assert_eq!(bed.rea(&["cancel", &id]).code, Some(0));
    eventually("it is cancelled", || server.job(&id)["state"] == "cancelled");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(!processes::lives(child));
    assert_eq!(bed.lines("pids").len(), 1, "it went on to its end");
    server.stop();
}

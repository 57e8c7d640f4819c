//! Jobs whose process is killed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Bed, Server, eventually, job, with};
use crate::processes;

/// rq#2015: a job whose worker is killed again and again vanished from every list.
#[test]
fn c002_a_job_that_is_killed_each_time_is_seen_in_every_state_and_ends_dead() {
    let bed = Bed::new();
    let server = bed.serve(2);
    let wanted = with(job("long", &json!([bed.text("pids")])), json!({ "max_attempts": 4, "retry_base": 0.2 }));
    let id = server.enqueue(&wanted);
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&server, &id, &done));
        for run in 1..=4 {
            processes::signal(bed.pid_of_run("pids", run), Signal::KILL);
        }
        server.reach(&id, "dead");
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    assert!(seen.contains("failed") && seen.contains("dead"), "{seen:?}");
    let ended = server.job(&id);
    assert_eq!((&ended["attempt"], &ended["failures"]), (&json!(4), &json!(4)), "{ended}");
    assert_eq!(bed.lines("pids").len(), 4);
    let history = server.get(&format!("/jobs/{id}/attempts"));
    let attempts = history["history"].as_array().unwrap();
    assert_eq!(attempts.len(), 4, "{history}");
    for attempt in attempts {
        assert_eq!(attempt["cause"], "crashed", "{attempt}");
        assert!(attempt["error"].to_string().contains("signal 9"), "{attempt}");
    }
    assert!(ended["last_error"].to_string().contains("signal 9"), "{ended}");
    server.stop();
}

/// Asks for the job without a pause. It must be found each time, by its id and in the list.
fn watch(server: &Server, id: &str, done: &AtomicBool) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    while !done.load(Ordering::Relaxed) {
        let listed = server.get("/jobs");
        assert_eq!(listed["jobs"][0]["task_id"], id, "not in the list: {listed}");
        seen.insert(server.job(id)["state"].as_str().unwrap().to_owned());
    }
    seen.insert(server.job(id)["state"].as_str().unwrap().to_owned());
    let known = ["pending", "dispatched", "running", "failed", "dead"];
    assert!(seen.iter().all(|state| known.contains(&state.as_str())), "{seen:?}");
    seen
}

/// A job that kills its worker does not hold up others, and its slot gets a new process.
#[test]
fn a_poison_job_ends_after_its_attempts_and_the_others_are_done() {
    let bed = Bed::new();
    let server = bed.serve(1);
    let poison = server.enqueue(&with(
        job("long", &json!([bed.text("poison")])),
        json!({ "priority": 1, "max_attempts": 2, "retry_base": 0.1 }),
    ));
    for number in 0..10 {
        server.enqueue(&job("append", &json!([bed.text("others"), number])));
    }
    for run in 1..=2 {
        processes::signal(bed.pid_of_run("poison", run), Signal::KILL);
    }
    server.reach(&poison, "dead");
    eventually("the others are done", || server.get("/status")["counts"]["success"] == 10);
    assert_eq!(bed.lines("others").len(), 10);
    assert_eq!(server.causes(&poison), [(1, "crashed".to_owned()), (2, "crashed".to_owned())]);
    server.stop();
}

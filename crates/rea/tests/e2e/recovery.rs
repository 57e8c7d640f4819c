//! Servers that die, and what the next one makes of their jobs.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Bed, eventually, job, left, with, within};
use crate::{http, processes};

/// How soon after a start the jobs of a dead server must run again.
const SOON: Duration = Duration::from_secs(1);

/// huey#253: a killed worker lost its job for good.
#[test]
fn c001_a_job_survives_the_kill_of_its_server_and_its_process() {
    let bed = Bed::new();
    let server = bed.serve(1);
    let id = server.enqueue(&job("once_long", &json!([bed.text("runs")])));
    let child = bed.pid_of_run("runs", 1);
    // A run shorter than a second is not on disk as started; see the next test.
    server.reach(&id, "running");
    processes::signal(server.pid(), Signal::KILL);
    processes::signal(child, Signal::KILL);
    server.kill();

    let server = bed.serve(1);
    assert!(!processes::lives(child));
    within(left(server.ready, SOON), "it runs again", || bed.lines("runs").len() >= 2);
    let ended = server.reach(&id, "success");
    assert_eq!(bed.lines("runs").len(), 2);
    assert_eq!((&ended["attempt"], &ended["failures"], &ended["interruptions"]), (&json!(2), &json!(0), &json!(1)));
    assert_eq!(server.causes(&id), [(1, "interrupted".to_owned())]);
    server.stop();
}

/// A kill in the first second, before the start is on disk: the job runs again all the same, and its second start is on
/// disk before it begins, so that a job which takes servers down can't go on for ever uncounted.
#[test]
fn c001_a_job_that_ran_for_a_moment_runs_again_and_is_watched_from_then_on() {
    let bed = Bed::new();
    let server = bed.serve(1);
    let id = server.enqueue(&job("long", &json!([bed.text("runs")])));
    bed.pid_of_run("runs", 1);
    server.kill();
    let server = bed.serve(1);
    bed.pid_of_run("runs", 2);
    assert_eq!(server.job(&id)["state"], "running");
    server.kill();
    let server = bed.serve(1);
    bed.pid_of_run("runs", 3);
    assert_eq!(server.causes(&id), [(1, "never_started".to_owned()), (2, "interrupted".to_owned())]);
    assert_eq!(server.job(&id)["interruptions"], 1);
    server.kill();
}

/// oban#862: after a quick restart on the same host, old jobs looked as if they belonged to a live node.
#[test]
fn c027_a_quick_restart_takes_back_all_jobs_of_the_dead_server() {
    let bed = Bed::new();
    let server = bed.serve(2);
    let running: Vec<_> =
        ["a", "b"].map(|name| server.enqueue(&job("once_long", &json!([bed.text(name)])))).into_iter().collect();
    bed.pid_of_run("a", 1);
    bed.pid_of_run("b", 1);
    running.iter().for_each(|id| drop(server.reach(id, "running")));
    let waiting: Vec<_> =
        (0..5).map(|number| server.enqueue(&job("append", &json!([bed.text("waiting"), number])))).collect();
    let node = server.get("/status")["node"].clone();
    server.kill();

    let server = bed.serve(2);
    assert_ne!(server.get("/status")["node"], node);
    within(left(server.ready, SOON), "all seven are done", || server.get("/status")["counts"]["success"] == 7);
    for id in running {
        assert_eq!(server.causes(&id), [(1, "interrupted".to_owned())]);
        let history = server.get(&format!("/jobs/{id}/attempts"));
        assert_eq!(history["history"][0]["node"], node, "{history}");
    }
    // What only waited was not burnt, also where a claim had taken it.
    for id in waiting {
        let job = server.job(&id);
        assert_eq!((&job["failures"], &job["interruptions"]), (&json!(0), &json!(0)), "{job}");
    }
    assert_eq!(bed.lines("waiting").len(), 5);
    server.stop();
}

/// JMSJobQueueBundle#258: a job was stuck for a month after a crash between its claim and its start.
#[test]
fn c029_a_job_that_was_claimed_and_never_started_runs_after_the_restart() {
    let bed = Bed::new();
    bed.serve(1).stop();
    let id = bed.rea(&["enqueue", "tasks:append", &bed.text("runs"), "ran"]).word();
    // The server may reach the point while it starts, or just after.
    if let Ok(server) = bed.start(1, &[], Some("claim.after_commit:1")) {
        let (status, _, log) = server.wait(Duration::from_secs(10));
        assert_eq!(status.code(), None, "{log}");
    }
    assert_eq!(bed.lines("runs").len(), 0);

    let server = bed.serve(1);
    within(left(server.ready, SOON), "it runs", || bed.lines("runs").len() == 1);
    let ended = server.reach(&id, "success");
    assert_eq!((&ended["attempt"], &ended["failures"], &ended["interruptions"]), (&json!(2), &json!(0), &json!(0)));
    assert_eq!(server.causes(&id), [(1, "never_started".to_owned())]);
    server.stop();
    assert_eq!(bed.rea(&["db", "check"]).code, Some(0));
}

/// The same, with the job stored and claimed in one commit whose answer its client never gets.
#[test]
fn c029_a_job_whose_enqueue_was_cut_off_after_the_commit_is_there_and_runs_once() {
    let bed = Bed::new();
    let server = bed.start(1, &[], Some("claim.after_commit:1")).unwrap();
    let id = "01936f00-0000-7000-8000-000000000029";
    let wanted = with(job("append", &json!([bed.text("runs"), "ran"])), json!({ "task_id": id }));
    assert!(http::post(&server.url, "/enqueue", &wanted).is_err(), "the server lives");
    server.wait(Duration::from_secs(5));

    let server = bed.serve(1);
    // The client repeats what it got no answer to: no second job.
    let again = server.post("/enqueue", &wanted);
    assert_eq!(again["created"], false, "{again}");
    server.reach(id, "success");
    assert_eq!(bed.lines("runs").len(), 1);
    assert_eq!(server.get("/status")["counts"]["success"], 1);
    server.stop();
}

/// A killed server leaves no process behind: neither workers nor what their jobs have started.
#[test]
fn a_killed_server_takes_its_whole_tree_along() {
    let bed = Bed::new();
    let server = bed.serve(1);
    server.enqueue(&job("family", &json!([bed.text("pids")])));
    let pids: Vec<u32> = bed.wait_for_lines("pids", 3).iter().map(|line| line.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| processes::lives(*pid)));
    server.kill();
    eventually("nothing is left", || !pids.iter().any(|pid| processes::lives(*pid)));
}

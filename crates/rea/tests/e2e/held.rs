//! `on_crash = "hold"`: a job that may have done its work waits for a person.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::bed::{Bed, job, with};

#[test]
fn a_held_job_is_not_started_by_itself_and_a_person_decides() {
    let bed = Bed::new();
    let server = bed.serve(2);
    let hold = |name: &str| {
        server.enqueue(&with(job("once_long", &json!([bed.text(name)])), json!({ "on_crash": "hold", "key": name })))
    };
    let (again, settled) = (hold("again"), hold("settled"));
    bed.pid_of_run("again", 1);
    bed.pid_of_run("settled", 1);
    // The start is on disk before the function has its arguments.
    assert_eq!(server.job(&again)["state"], "running");
    server.kill();

    let server = bed.serve(2);
    for id in [&again, &settled] {
        let job = server.reach(id, "held");
        assert_eq!(job["last_cause"], "interrupted", "{job}");
    }
    thread::sleep(Duration::from_millis(700));
    server.stop();
    let server = bed.serve(2);
    thread::sleep(Duration::from_millis(300));
    assert_eq!((bed.lines("again").len(), bed.lines("settled").len()), (1, 1), "started by itself");
    assert_eq!(server.get("/status")["counts"]["held"], 2);
    let failed = server.get("/jobs/failed");
    assert_eq!(failed["jobs"].as_array().unwrap().len(), 2, "{failed}");

    assert_eq!(bed.rea(&["retry", &again]).code, Some(0));
    server.reach(&again, "success");
    assert_eq!(bed.lines("again").len(), 2);
    server.post(&format!("/jobs/{settled}/mark-success"), &json!({}));
    assert_eq!(server.job(&settled)["state"], "success");
    assert_eq!(bed.lines("settled").len(), 1);
    server.stop();
}

//! Switches of queues.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::bed::{Bed, eventually, job};

/// lavinmq#446: a pause was lost at the restart.
#[test]
fn c104_a_paused_queue_is_still_paused_after_a_kill() {
    let bed = Bed::new();
    let server = bed.serve(1);
    assert_eq!(bed.rea(&["queue", "pause", "default"]).code, Some(0));
    for number in 0..5 {
        server.enqueue(&job("append", &json!([bed.text("runs"), number])));
    }
    server.kill();

    let server = bed.serve(1);
    thread::sleep(Duration::from_millis(700));
    let queues = server.get("/queues");
    assert_eq!(queues["queues"][0]["paused"], true, "{queues}");
    assert!(bed.lines("runs").is_empty());
    assert_eq!(server.get("/status")["counts"]["pending"], 5);
    assert_eq!(bed.rea(&["queue", "resume", "default"]).code, Some(0));
    eventually("all have run", || server.get("/status")["counts"]["success"] == 5);
    assert_eq!(bed.lines("runs"), ["0", "1", "2", "3", "4"]);
    server.stop();
}

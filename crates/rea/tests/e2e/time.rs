//! Clocks and sleep.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Bed, job, with, within};

/// node-schedule#632: a machine's sleep pushed due times back by its length.
#[test]
fn c056_work_that_came_due_while_the_server_was_stopped_starts_at_once_when_it_goes_on() {
    let bed = Bed::new();
    let server = bed.serve(1);
    let id = server.enqueue(&with(job("append", &json!([bed.text("runs"), "ran"])), json!({ "delay": 2 })));
    server.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(5));
    assert!(bed.lines("runs").is_empty());
    server.signal(Signal::CONT);
    let resumed = Instant::now();
    within(Duration::from_secs(2), "it runs", || bed.lines("runs").len() == 1);
    server.reach(&id, "success");
    assert!(resumed.elapsed() < Duration::from_secs(2), "{:?}", resumed.elapsed());
    server.stop();
}

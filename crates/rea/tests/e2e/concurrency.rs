//! Limits of queues, tasks and keys, with real processes.

use std::time::Duration;

use serde_json::json;

use crate::bed::{Bed, eventually, job, with, within};
use crate::processes;

/// PrefectHQ/prefect#17563: a cancelled run kept its place. This one has to be killed first.
#[test]
fn c060_a_cancelled_job_frees_its_keys_place_when_its_process_is_gone() {
    let bed = Bed::new();
    let server = bed.serve(2);
    let key = json!({ "concurrency_key": "account:7" });
    let running = server.enqueue(&with(job("stubborn", &json!([bed.text("pid")])), key.clone()));
    let pid: u32 = bed.wait_for_lines("pid", 1)[0].parse().unwrap();
    for number in 0..20 {
        server.enqueue(&with(job("append", &json!([bed.text("runs"), number])), key.clone()));
    }
    assert_eq!(bed.rea(&["cancel", &running]).code, Some(0));
    // Five seconds from the request to end to the kill.
    within(Duration::from_secs(9), "the next ones run", || !bed.lines("runs").is_empty());
    assert!(!processes::lives(pid), "it was gone before the next one began");
    assert_eq!(server.job(&running)["state"], "cancelled");
    eventually("all have run", || bed.lines("runs").len() == 20);
    let in_order: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(bed.lines("runs"), in_order);
    server.stop();
}

#[test]
fn limits_of_code_and_file_hold_and_what_people_set_survives_a_restart() {
    let bed = Bed::new();
    std::fs::write(bed.path("rea.toml"), "[queues.mail]\nconcurrency = 3\nfair = true\n").unwrap();
    let server = bed.serve(4);
    for number in 0..3 {
        server.enqueue(&job("alone", &json!([bed.text("one"), number])));
        let by_name = json!({ "kwargs": { "path": bed.text("one"), "text": number } });
        server.enqueue(&with(job("alone", &json!([])), by_name));
    }
    eventually("all have run", || bed.lines("one").len() == 12);
    let lines = bed.lines("one");
    for pair in lines.chunks(2) {
        assert_eq!(pair[0].replace("begin", "end"), pair[1], "one at a time: {lines:?}");
    }
    let list = server.get("/limits");
    let said = |of: &serde_json::Value| {
        let limits = of["limits"].as_array().unwrap().iter();
        limits.map(|l| (l["name"].clone(), l["concurrency"].clone(), l["rate"].clone())).collect::<Vec<_>>()
    };
    let declared = [(json!("mail"), json!(3), json!(null)), (json!("tasks:alone"), json!(2), json!("1000/min"))];
    assert_eq!(said(&list), declared);
    assert_eq!(bed.rea(&["limit", "set", "queue", "mail", "--concurrency", "7"]).code, Some(0));
    assert_eq!(bed.rea(&["limit", "clear", "task", "tasks:alone"]).code, Some(0));
    server.stop();

    let server = bed.serve(1);
    assert_eq!(said(&server.get("/limits")), [(json!("mail"), json!(7), json!(null))], "what people set stays");
    std::fs::write(bed.path("rea.toml"), "[queues.mail]\nconcurrency = 4\n").unwrap();
    assert_eq!(bed.rea(&["reload"]).code, Some(0));
    let mail = server.get("/limits/queue/mail");
    assert_eq!((&mail["concurrency"], &mail["fair"]), (&json!(4), &json!(false)), "a changed declaration counts whole");
    server.stop();
}
